"""Reader of Slurm's accounting: `sacct -D -X -P` with any fields in any order, as long as they suffice.

GPUs come from the first of AllocTRES, ReqTRES, AllocGRES, ReqGRES that says something; the last two are taken as
the job's total. `gres/gpu=8` counts all GPUs of a job; where only types are listed, as in `gres/gpu:h100=8`, these
are added up. A job that holds shards has a part of one GPU on each of its machines.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers import slurm_rows, timestamps
from cranny.traces.readers.delimited import DelimitedFormat, first_fields
from cranny.traces.readers.distinct import of_distinct
from cranny.traces.readers.log_mapping import Columns, LogMapping, life, number, text
from cranny.traces.readers.slurm_rows import LATER, PARTS, REPEATED, STEP
from cranny.traces.schema import RowRule, missing
from cranny.traces.trace import Trace
from cranny.traces.zones import time_zone

IDS = ("JobID", "JobIDRaw")
TRES = ("AllocTRES", "ReqTRES")
GRES = ("AllocGRES", "ReqGRES")
ASK_FOR = (
    "Cluster,JobID,User,Account,Partition,QOS,Reservation,Priority,State,Submit,Eligible,Start,End,ElapsedRaw,"
    "Timelimit,NNodes,NodeList,AllocTRES,ReqTRES"
)
NO_MACHINES = ("", "None assigned", "(null)", "None", "Unknown")
OWN_CLOCK = "the clock of the cluster that wrote the log"

_STEP = RowRule("JobID", "a step, whose job has a row of its own", STEP, of_value=False, error=False)
_RULES = (_STEP, REPEATED, *life(running=True))


def sniff(head: bytes) -> bool:
    """Say whether a file begins with a line of field names of sacct."""
    names = first_fields(head, "|")
    return not set(IDS).isdisjoint(names) and len(names) > 1


def log(names: Sequence[str], _: Mapping[str, ModelProfile], file: str, zone: str | None = None) -> LogMapping:
    """Take our columns; times are read in `zone` where they name none."""
    tells_gpus = [name for name in (*TRES, *GRES) if name in names]
    ids = [name for name in IDS if name in names]
    if not ids or not tells_gpus:
        lacks = "GPUs" if ids else "ids"
        raise InputError(f"{file}: has no column for {lacks}; ask for sacct -a -D -X -P -o {ASK_FOR}")
    missing(file, ("Submit", "Start", "End"), names)
    lasts, limit = _first(names, "ElapsedRaw", "Elapsed"), _first(names, "TimelimitRaw", "Timelimit")
    columns: Columns = {
        "job_id": ids[0],
        "gpus": pl.coalesce(
            of_distinct(given, partial(_gpus, name=name), pl.Float64())
            for name, given in _first_given(tells_gpus).items()
        ),
        "gpu_type": pl.coalesce(of_distinct(text(name), _gpu_type, pl.String()) for name in tells_gpus),
        PARTS: of_distinct(pl.coalesce(text(name) for name in tells_gpus), _parts, pl.String()),
        **_times(names, zone),
    }
    called = {"submit_s": "Submit", "start_s": "Start", "end_s": "End", "gpus": tells_gpus[0]}
    if lasts:
        columns["duration_s"] = number(lasts) if lasts.endswith("Raw") else timestamps.length_s(pl.col(lasts))
        called["duration_s"] = lasts
    if "State" in names:
        columns["status"] = text("State").str.extract(r"^(\S+)")  # less the "by 1000" after CANCELLED
    if "NodeList" in names:
        columns["ran_on"] = pl.when(_assigned()).then(pl.col("NodeList"))
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
    return LogMapping(columns, further, _RULES, called, clock, before=_before, after=after, read_in=zone)


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
    began = [text(name).is_not_null() for name in ("AllocTRES",) if name in names]
    began += [_assigned()] if "NodeList" in names else []
    for ours in ("start_s", LATER + "start_s"):
        if began and ours in columns:
            columns[ours] = pl.when(*began).then(columns[ours])
    return columns


def _assigned() -> pl.Expr:
    """Say whether machines were given to a job."""
    return ~pl.col("NodeList").is_in(NO_MACHINES)


def _further(names: Sequence[str]) -> dict[str, str]:
    """Return what a log may say besides."""
    return {
        "tenant": _first(names, "Partition", "Account"),
        "user": "User",
        "account": "Account",
        "partition": "Partition",
        "qos": "QOS",
        "reservation": "Reservation",
        "priority": "Priority",
        "cluster": "Cluster",
        "machines": _first(names, "NNodes", "AllocNodes"),
    }


def _before(frame: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int], Sequence[str]]:
    """Look at rows together that are of one job."""
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


def _first(names: Sequence[str], *wanted: str) -> str:
    """Return the first of these columns that the log has, or no name."""
    return next((name for name in wanted if name in names), "")


def _first_given(names: Sequence[str]) -> dict[str, pl.Expr]:
    """Return each field where none before it is given: what need not be looked at is null, and costs nothing."""
    given = [text(name) for name in names]
    before = [
        pl.lit(value=True),
        *(pl.all_horizontal(each.is_null() for each in given[:k]) for k in range(1, len(names))),
    ]
    return {name: pl.when(empty).then(each) for name, empty, each in zip(names, before, given, strict=True)}


def _gpus(given: pl.Expr, name: str) -> pl.Expr:
    """Count the GPUs of a field; null where it is empty, 0 where it names no GPU."""
    # TRES reads gres/gpu=8 or gres/gpu:h100=8, GRES reads gpu:8 or gpu:h100:8.
    one, typed, machines = (r"gres/gpu=(\d+)", r"gres/gpu:[^=,]+=(\d+)", r"node=(\d+)")
    if name in GRES:
        one, typed, machines = (r"(?:^|,)gpu:(\d+)(?:[,(]|$)", r"(?:^|,)gpu:[^:,]+:(\d+)", r"node:(\d+)")
    total = given.str.extract(one).cast(pl.Float64, strict=False)
    left = pl.when(total.is_null()).then(given)
    by_type = left.str.extract_all(typed)
    counts = by_type.list.eval(pl.element().str.extract(typed).cast(pl.Float64, strict=False)).list.sum()
    shared = pl.when(left.str.contains("shard", literal=True)).then(left)
    machines_shared = shared.str.extract(machines).cast(pl.Float64, strict=False)
    on = pl.when(shared.is_not_null()).then(machines_shared.fill_null(1.0))
    found = pl.coalesce(total, pl.when(counts > 0).then(counts), on, 0.0)
    return pl.when(given.is_not_null()).then(found)


def _gpu_type(given: pl.Expr) -> pl.Expr:
    """Take the type of GPU that a field names; none if it names several."""
    named = r"gpu:([^:=,]+)[:=]\d"
    return pl.when(given.str.count_matches(named) == 1).then(given.str.extract(named))


def _parts(given: pl.Expr) -> pl.Expr:
    """Take a field if it names MIG instances, or shards and no GPU."""
    # Most rows name no parts, and looking for a plain text is quick.
    likely = pl.when(given.str.contains_any(["g.", "shard"])).then(given)
    parts = likely.str.contains(r"gpu:[^=,]*\dg\.\d+gb")
    shards = likely.str.contains("shard", literal=True) & ~likely.str.contains("gpu[:=]")
    return pl.when(parts | shards).then(likely)


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool, zone: str | None = None) -> Trace:
    """Read a file; times that name no zone are of `zone`, or on a clock of their own."""
    if zone is not None:
        time_zone(zone)
    return DelimitedFormat(partial(log, zone=zone), separator="|").read(path, profiles, strict=strict)
