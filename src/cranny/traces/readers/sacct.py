"""Reader of Slurm's accounting: `sacct -X -P` with any fields in any order, as long as they suffice.

GPUs come from the first of AllocTRES, ReqTRES, AllocGRES, ReqGRES that says something; the last two are taken as
the job's total. `gres/gpu=8` counts all GPUs of a job; where only types are listed, as in `gres/gpu:h100=8`, these
are added up.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers import timestamps
from cranny.traces.readers.delimited import DelimitedFormat, first_fields
from cranny.traces.readers.log_mapping import LogMapping, life, number, text, where_there
from cranny.traces.schema import RowRule, missing

IDS = ("JobID", "JobIDRaw")
TRES = ("AllocTRES", "ReqTRES")
GRES = ("AllocGRES", "ReqGRES")
ASK_FOR = "JobID,User,Partition,State,Submit,Start,End,ElapsedRaw,NNodes,Timelimit,AllocTRES,ReqTRES"

_IS_STEP = pl.col("job_id").str.contains(".", literal=True).fill_null(value=False)
_STEP = RowRule("JobID", "a step, whose job has a row of its own", _IS_STEP, of_value=False, error=False)


def sniff(head: bytes) -> bool:
    """Say whether a file begins with a line of field names of sacct."""
    names = first_fields(head, "|")
    return not set(IDS).isdisjoint(names) and len(names) > 1


def log(names: Sequence[str], _: Mapping[str, ModelProfile], file: str) -> LogMapping:
    """Take our columns."""
    tells_gpus = [name for name in (*TRES, *GRES) if name in names]
    ids = [name for name in IDS if name in names]
    lasts = _first(names, "ElapsedRaw", "Elapsed")
    if not ids or not tells_gpus:
        raise InputError(f"{file}: has no column for {'GPUs' if ids else 'ids'}; ask for sacct -X -P -o {ASK_FOR}")
    missing(file, ("Submit", "Start", "End"), names)
    start = timestamps.epoch_s(pl.col("Start"), "T")
    if "AllocTRES" in names:  # cancelled before it started: some versions of Slurm log a start all the same
        start = pl.when(text("AllocTRES").is_not_null()).then(start)
    columns = {
        "job_id": text(ids[0]),
        "submit_s": timestamps.epoch_s(pl.col("Submit"), "T"),
        "start_s": start,
        "end_s": timestamps.epoch_s(pl.col("End"), "T"),
        "gpus": pl.coalesce(_gpus(name) for name in tells_gpus),
        "gpu_type": pl.coalesce(_gpu_type(name) for name in tells_gpus),
        **where_there(
            names,
            {
                "duration_s": (
                    lasts,
                    number(lasts) if lasts.endswith("Raw") else timestamps.length_s(pl.col(lasts)),
                ),
                **_further(names),
            },
        ),
    }
    called = {"job_id": ids[0], "submit_s": "Submit", "start_s": "Start", "end_s": "End", "gpus": tells_gpus[0]}
    called |= {"duration_s": lasts} if lasts else {}
    return LogMapping(
        columns, rules=(_STEP, *life()), called=called, zone="the clock of the cluster that wrote the log"
    )


def _first(names: Sequence[str], *wanted: str) -> str:
    """Return the first of these columns that the log has, or no name."""
    return next((name for name in wanted if name in names), "")


def _further(names: Sequence[str]) -> dict[str, tuple[str, pl.Expr]]:
    """Take what a policy does not need."""
    tenant = _first(names, "Partition", "Account")
    nodes = _first(names, "NNodes", "AllocNodes")
    limit = _first(names, "TimelimitRaw", "Timelimit")
    # A limit may be "UNLIMITED" or "Partition_Limit", which is none that we know.
    limit_s = number(limit) * 60 if limit.endswith("Raw") else timestamps.length_s(pl.col(limit)).fill_nan(None)
    return {
        "tenant": (tenant, text(tenant)),
        "user": ("User", text("User")),
        "status": ("State", text("State").str.extract(r"^(\S+)")),  # less the "by 1000" after CANCELLED
        "cluster": ("Cluster", text("Cluster")),
        "machines": (nodes, number(nodes)),
        "limit_s": (limit, limit_s),
    }


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
