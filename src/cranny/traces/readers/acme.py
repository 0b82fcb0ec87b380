"""Reader of Shanghai AI Lab Acme logs: `trace_seren.csv` and `trace_kalos.csv`.

The running time is end - start in both. Their column `duration` is that in Seren, but end - submit in Kalos.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from cranny.model.profile import ModelProfile
from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import DATED, Columns, LogMapping
from cranny.traces.readers.timestamps import epoch_s

NEEDS = ("job_id", "user", "type", *DATED.values())
KALOS_ONLY = "mem_per_pod_GB"


def log(names: Sequence[str], _: Mapping[str, ModelProfile], __: str) -> LogMapping:
    """Take our columns."""
    kalos = KALOS_ONLY in names
    cluster = pl.lit("Kalos" if kalos else "Seren")
    notes = ["Kalos counts its column `duration` from submission; end - start is used"] if kalos else []
    columns: Columns = {"job_id": "job_id", "user": "user", "cluster": cluster, **DATED}
    return LogMapping(columns, zone="UTC", notes=notes, times=epoch_s)


_FORMAT = DelimitedFormat(log, NEEDS)
sniff, read = _FORMAT.sniff, _FORMAT.read
