"""Reader of Slurm's accounting: `sacct -X -P` with any fields in any order, as long as they suffice.

GPUs come from the first of AllocTRES, ReqTRES, AllocGRES, ReqGRES that says something; the last two are taken as
the job's total. `gres/gpu=8` counts all GPUs of a job; where only types are listed, as in `gres/gpu:h100=8`, these
are added up.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers import timestamps
from cranny.traces.readers.delimited import DelimitedFormat, first_fields
from cranny.traces.readers.log_mapping import Columns, LogMapping, life, number, text
from cranny.traces.schema import RowRule, missing

IDS = ("JobID", "JobIDRaw")
TRES = ("AllocTRES", "ReqTRES")
GRES = ("AllocGRES", "ReqGRES")
ASK_FOR = "JobID,User,Partition,State,Submit,Start,End,ElapsedRaw,NNodes,Timelimit,AllocTRES,ReqTRES"

_IS_STEP = pl.col("job_id").str.contains(".", literal=True).fill_null(value=False)
_time = partial(timestamps.epoch_s, between="T")
_STEP = RowRule("JobID", "a step, whose job has a row of its own", _IS_STEP, of_value=False, error=False)


def sniff(head: bytes) -> bool:
    """Say whether a file begins with a line of field names of sacct."""
    names = first_fields(head, "|")
    return not set(IDS).isdisjoint(names) and len(names) > 1


def log(names: Sequence[str], _: Mapping[str, ModelProfile], file: str) -> LogMapping:
    """Take our columns."""
    tells_gpus = [name for name in (*TRES, *GRES) if name in names]
    ids = [name for name in IDS if name in names]
    lasts, limit = _first(names, "ElapsedRaw", "Elapsed"), _first(names, "TimelimitRaw", "Timelimit")
    if not ids or not tells_gpus:
        raise InputError(f"{file}: has no column for {'GPUs' if ids else 'ids'}; ask for sacct -X -P -o {ASK_FOR}")
    missing(file, ("Submit", "Start", "End"), names)
    start = _time(pl.col("Start"))
    if "AllocTRES" in names:  # cancelled before it started: some versions of Slurm log a start all the same
        start = pl.when(text("AllocTRES").is_not_null()).then(start)
    columns: Columns = {
        "job_id": ids[0],
        "submit_s": "Submit",
        "start_s": start,
        "end_s": "End",
        "gpus": pl.coalesce(_gpus(name) for name in tells_gpus),
        "gpu_type": pl.coalesce(_gpu_type(name) for name in tells_gpus),
    }
    called = {"start_s": "Start", "gpus": tells_gpus[0]}
    if lasts:
        columns["duration_s"] = number(lasts) if lasts.endswith("Raw") else timestamps.length_s(pl.col(lasts))
        called["duration_s"] = lasts
    if "State" in names:
        columns["status"] = text("State").str.extract(r"^(\S+)")  # less the "by 1000" after CANCELLED
    if limit:
        # A limit may be "UNLIMITED" or "Partition_Limit", which is none that we know.
        limit_s = timestamps.length_s(pl.col(limit)).fill_nan(None)
        columns["limit_s"] = number(limit) * 60 if limit.endswith("Raw") else limit_s
    further = {
        "tenant": _first(names, "Partition", "Account"),
        "user": "User",
        "cluster": "Cluster",
        "machines": _first(names, "NNodes", "AllocNodes"),
    }
    zone = "the clock of the cluster that wrote the log"
    return LogMapping(columns, further, (_STEP, *life()), called, zone, times=_time)


def _first(names: Sequence[str], *wanted: str) -> str:
    """Return the first of these columns that the log has, or no name."""
    return next((name for name in wanted if name in names), "")


def _gpus(name: str) -> pl.Expr:
    """Count the GPUs of a field; null where it is empty, 0 where it names no GPU."""
    given = text(name)
    # TRES reads gres/gpu=8 or gres/gpu:h100=8, GRES reads gpu:8 or gpu:h100:8.
    one, typed = (r"gres/gpu=(\d+)", r"gres/gpu:[^=,]+=(\d+)")
    if name in GRES:
        one, typed = (r"(?:^|,)gpu:(\d+)(?:[,(]|$)", r"(?:^|,)gpu:[^:,]+:(\d+)")
    total = given.str.extract(one).cast(pl.Float64, strict=False)
    by_type = pl.when(total.is_null()).then(given).str.extract_all(typed)
    counts = by_type.list.eval(pl.element().str.extract(typed).cast(pl.Float64, strict=False))
    return pl.when(given.is_not_null()).then(pl.coalesce(total, counts.list.sum(), 0.0))


def _gpu_type(name: str) -> pl.Expr:
    """Take the type of GPU that a field names; none if it names several."""
    types = text(name).str.extract_all(r"gpu:[^:=,]+[:=]\d").list.eval(pl.element().str.extract(r"gpu:([^:=,]+)"))
    return pl.when(types.list.n_unique() == 1).then(types.list.first())


read = DelimitedFormat(log, separator="|").read
