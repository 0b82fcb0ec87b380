"""Reader of SenseTime Helios logs: `cluster_log.csv` of one cluster.

Times carry no zone. `duration` and `queue` repeat what the times say, and are not read.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from cranny.model.profile import ModelProfile
from cranny.traces.readers import slurm_rows
from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import DATED, OWN_CLOCK, Columns, LogMapping
from cranny.traces.readers.timestamps import epoch_s
from cranny.traces.trace import Trace

NEEDS = ("job_id", "user", "vc", *DATED.values())
TIMES = ("submit_s", "start_s", "end_s")


def log(_: Sequence[str], __: Mapping[str, ModelProfile], ___: str, zone: str | None = None) -> LogMapping:
    """Take our columns; times in `zone` have two readings where its clocks are changed."""
    columns: Columns = {"job_id": "job_id", "user": "user", "tenant": "vc", **DATED}
    if zone is None:
        return LogMapping(columns, zone=OWN_CLOCK, times=epoch_s)
    for ours in TIMES:
        columns[slurm_rows.LATER + ours] = epoch_s(pl.col(DATED[ours]), zone=zone, later=True)
    return LogMapping(columns, zone=zone, times=partial(epoch_s, zone=zone), before=_once, read_in=zone)


def _once(frame: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int], Sequence[str]]:
    """Choose between the two readings of a time."""
    frame, notes = slurm_rows.once(frame)
    return frame, {}, notes


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool, zone: str | None = None) -> Trace:
    """Read a file; its times are of `zone`, or on a clock of their own."""
    return DelimitedFormat(partial(log, zone=zone), NEEDS).read(path, profiles, strict=strict)


sniff = DelimitedFormat(log, NEEDS).sniff
