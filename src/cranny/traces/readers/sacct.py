"""Reader of Slurm's accounting: `sacct -D -X -P` with any fields in any order, as long as they suffice.

It may also be `sacct --json`, have another delimiter, or be a table that a program made of it: CSV or Parquet with
the names of sacct's fields.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers import slurm_rows, timestamps
from cranny.traces.readers.cranny_format import sniff_parquet
from cranny.traces.readers.delimited import HEAD_BYTES, HEADER_WITHIN, DelimitedFormat, first_fields
from cranny.traces.readers.distinct import of_distinct
from cranny.traces.readers.log_mapping import UTC, Columns, LogMapping, life, number, text
from cranny.traces.readers.log_table import read_log_table
from cranny.traces.readers.sacct_fields import (
    ASK_FOR,
    FREE_TEXT,
    GRES,
    IDS,
    NODES,
    STATES,
    TRES,
    first_of,
    spelled,
)
from cranny.traces.readers.sacct_gpus import gpu_columns
from cranny.traces.readers.sacct_json import read_json, sniff_json
from cranny.traces.readers.slurm_rows import LATER, REPEATED, STEP
from cranny.traces.schema import RowRule, missing
from cranny.traces.trace import Trace
from cranny.traces.zones import time_zone

DELIMITERS = ("|", "\t", ";", "^", "~", "!", "@", "#", ",")  # of --delimiter; a comma needs quotation marks
HAS_ONE = (*TRES, *GRES, "Submit", "Start", "State")  # beside an id, to be taken for sacct's
STILL_THERE = "^(RUNNING|SUSPENDED|PENDING|REQUEUED|RESIZING|COMPLETING|STOPPED)"
NO_MACHINES = ("", "[]", "None assigned", "(null)", "None", "Unknown")
NO_GPUS = (
    "ask for AllocTRES and ReqTRES, which have them if AccountingStorageTRES in slurm.conf has gres/gpu, or for "
    "AllocGRES and ReqGRES in older versions"
)
OWN_CLOCK = "the clock of the cluster that wrote the log"

_STEP = RowRule("JobID", "a step, whose job has a row of its own", STEP, of_value=False, error=False)
_RULES = (_STEP, REPEATED, *life(running=True))


def sniff(head: bytes) -> bool:
    """Say whether a file begins with a line of field names of sacct, or with its JSON."""
    return _delimiter(head) is not None or sniff_json(head)


def _delimiter(head: bytes) -> str | None:
    """Return what stands between the field names that a file begins with, if they are sacct's."""
    lines = [line for line in head.split(b"\n") if line.strip()][:HEADER_WITHIN]
    for line in lines if b"\0" not in head else ():
        for delimiter in DELIMITERS:
            names = [spelled(name) for name in first_fields(line, delimiter)]
            if not set(IDS).isdisjoint(names) and not set(HAS_ONE).isdisjoint(names):
                return delimiter
    return None


def is_sacct_table(path: Path) -> bool:
    """Say whether a Parquet file has the names of sacct's fields."""
    try:
        names = set(map(spelled, pl.read_parquet_schema(path)))
    except (pl.exceptions.PolarsError, OSError):
        return False
    return not names.isdisjoint(IDS) and not names.isdisjoint((*TRES, *GRES))


def log(names: Sequence[str], _: Mapping[str, ModelProfile], file: str, zone: str | None = None) -> LogMapping:
    """Take our columns; times are read in `zone` where they name none."""
    tells_gpus = [name for name in (*TRES, *GRES) if name in names]
    ids = [name for name in IDS if name in names]
    if not ids or not tells_gpus:
        lacks = "GPUs" if ids else "ids"
        raise InputError(f"{file}: has no column for {lacks}; ask for sacct -a -D -X -P -o {ASK_FOR}")
    lasts, limit = first_of(names, "ElapsedRaw", "Elapsed"), first_of(names, "TimelimitRaw", "Timelimit")
    missing(file, ("Submit", "Start", *(() if lasts else ("End",))), names)
    columns: Columns = {"job_id": ids[0], **gpu_columns(tells_gpus, names), **_times(names, zone)}
    called = {"submit_s": "Submit", "start_s": "Start", "end_s": "End", "gpus": tells_gpus[0]}
    if lasts:
        columns["duration_s"] = number(lasts) if lasts.endswith("Raw") else timestamps.length_s(pl.col(lasts))
        called["duration_s"] = lasts
        if "End" not in names:
            columns |= _ends(columns, names)
    if "State" in names:
        columns["status"] = text("State").str.extract(r"^(\S+)")  # less the "by 1000" after CANCELLED
    if "NodeList" in names:
        columns["ran_on"] = pl.when(_assigned()).then(_names_only())
    if limit:
        # A limit may be "UNLIMITED" or "Partition_Limit", which is none that we know.
        columns["limit_s"] = (
            number(limit) * 60
            if limit.endswith("Raw")
            else of_distinct(pl.col(limit), timestamps.limit_s, pl.Float64())
        )
    clock = OWN_CLOCK if zone is None else zone
    after = partial(_after, allocated="AllocTRES" in names)
    further = _further(names)
    steps: Any = {"before": _before, "after": after}
    return LogMapping(columns, further, _RULES, called, clock, **steps, read_in=zone, no_gpus=NO_GPUS)


def _ends(columns: Columns, names: Sequence[str]) -> Columns:
    """Let jobs that are over end when they have lasted as long as the log says."""
    over = (
        ~text("State").str.contains(STILL_THERE).fill_null(value=False) if "State" in names else pl.lit(value=True)
    )
    return {
        "end_s" if ours == "start_s" else f"{LATER}end_s": pl.when(over).then(
            columns[ours] + columns["duration_s"]
        )
        for ours in ("start_s", f"{LATER}start_s")
        if ours in columns
    }


def _times(names: Sequence[str], zone: str | None) -> Columns:
    """Take the times of a job, each in both its readings if there is a zone whose clocks may be changed."""
    columns: Columns = {}
    read_as = {"submit_s": "Submit", "start_s": "Start", "end_s": "End", "eligible_s": "Eligible"}
    for ours, name in read_as.items():
        if name in names:
            columns[ours] = timestamps.epoch_s(pl.col(name), "T", zone)
            if zone is not None:
                columns[LATER + ours] = timestamps.epoch_s(pl.col(name), "T", zone, later=True)
    # Cancelled before it started: some versions of Slurm log a start all the same.
    # Machines say it best: sites that keep no account of resources have an empty AllocTRES for every job.
    began = (
        _assigned()
        if "NodeList" in names
        else text("AllocTRES").is_not_null()
        if "AllocTRES" in names
        else pl.lit(value=True)
    )
    for ours in ("start_s", LATER + "start_s"):
        if ours in columns:
            columns[ours] = pl.when(began).then(columns[ours])
    return columns


def _assigned() -> pl.Expr:
    """Say whether machines were given to a job."""
    return ~pl.col("NodeList").is_in(NO_MACHINES)


def _names_only() -> pl.Expr:
    """Take the machines of a job, also from a list that Python wrote: ['n1', 'n2']."""
    listed = pl.when(pl.col("NodeList").str.starts_with("['")).then("NodeList")  # few, and nulls cost nothing
    return pl.coalesce(listed.str.replace_all(r"[\[\]' ]", ""), "NodeList")


def _further(names: Sequence[str]) -> dict[str, str]:
    """Return what a log may say besides."""
    return {
        "tenant": first_of(names, "Partition", "Account"),
        "user": "User",
        "account": "Account",
        "partition": "Partition",
        "qos": "QOS",
        "reservation": "Reservation",
        "priority": "Priority",
        "cluster": "Cluster",
        "machines": first_of(names, *NODES),
    }


def _before(frame: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int], Sequence[str]]:
    """Look at rows together that are of one job."""
    if "status" in frame.columns and bool(frame["status"].str.contains(r"^\d").any()):
        frame = frame.with_columns(pl.col("status").replace(STATES))
    frame, clocks = slurm_rows.once(frame)
    frame, again = slurm_rows.attempts(frame)
    if "eligible_s" in frame.columns:
        # A requeued job keeps the time of its first attempt.
        frame = frame.with_columns(pl.col("eligible_s").fill_nan(None).clip("submit_s", "start_s"))
    return frame, {}, (*clocks, *again)


def _after(frame: pl.DataFrame, *, allocated: bool) -> tuple[pl.DataFrame, Mapping[str, int], Sequence[str]]:
    """Say where jobs ran and on which parts of GPUs, and join jobs that have several parts."""
    frame, parts = slurm_rows.with_parts(frame)
    frame, lists = slurm_rows.with_machines(frame, allocated=allocated)
    frame, heterogeneous = slurm_rows.joined(frame)
    return frame, heterogeneous, (*parts, *lists)


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool, zone: str | None = None) -> Trace:
    """Read a file; times that name no zone are of `zone`, or on a clock of their own."""
    if zone is not None:
        time_zone(zone)
    make_log = partial(log, zone=zone)
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if sniff_json(head):
        return read_json(path, profiles, partial(log, zone=zone or UTC), strict=strict)
    delimiter = _delimiter(head) or "|"
    if sniff_parquet(head) or delimiter == ",":
        return read_log_table(path, profiles, make_log, spelled, strict=strict, parquet=sniff_parquet(head))
    return DelimitedFormat(
        make_log, separator=delimiter, needs_one=IDS, free_text=FREE_TEXT, spelled=spelled
    ).read(path, profiles, strict=strict)
