"""What the readers of other systems' logs share: how rows become a trace, and which of them cannot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from cranny.model.profile import ModelProfile
from cranny.traces.readers import timestamps
from cranny.traces.schema import CLOCKED, CPU_ONLY, LOGGED, SCHEMA, Origin, RowRule, checked
from cranny.traces.trace import Trace

_A_TIME = "must be a time"
# The columns that Helios and Acme share.
DATED = {
    "gpus": "gpu_num",
    "submit_s": "submit_time",
    "start_s": "start_time",
    "end_s": "end_time",
    "machines": "node_num",
    "status": "state",
}


def life(start: str = "start_s") -> tuple[RowRule, ...]:
    """Return the rules for logs with submission, start and end of each job."""
    return (
        CPU_ONLY,
        RowRule(start, "never started", pl.col(start).is_null(), of_value=False),
        RowRule("submit_s", _A_TIME, pl.col("submit_s").fill_null(math.nan).is_nan()),
        RowRule(start, _A_TIME, pl.col(start).is_nan()),
        RowRule("end_s", "no end in the log: still running", pl.col("end_s").is_null(), of_value=False),
        RowRule("end_s", _A_TIME, pl.col("end_s").is_nan()),
        RowRule("end_s", "ended before it started", pl.col("end_s") < pl.col(start), of_value=False),
    )


@dataclass(frozen=True, slots=True)
class LogMapping:
    """How our columns come from those of a log.

    `columns` may hold, besides ours, what `rules` look at; only ours stay. Times count from any zero, the same for
    all. Where there is no `duration_s` it is `end_s - start_s`.
    """

    columns: Mapping[str, pl.Expr]
    rules: Sequence[RowRule] = life()
    called: Mapping[str, str] = field(default_factory=dict)  # the log's names for our columns, for errors
    zone: str | None = None  # of times since 1970, as a note says it; None: the log has a clock of its own
    notes: Sequence[str] = ()


def text(name: str) -> pl.Expr:
    """Take a column of words; nothing and an empty field are the same."""
    return pl.when(pl.col(name) != "").then(pl.col(name))


def number(name: str) -> pl.Expr:
    """Take a column of numbers; what is none becomes null."""
    return pl.col(name).cast(pl.Float64, strict=False)


def dated() -> dict[str, pl.Expr]:
    """Take the columns that Helios and Acme share."""
    times = {name: timestamps.epoch_s(pl.col(DATED[name])) for name in ("submit_s", "start_s", "end_s")}
    sizes = {name: number(DATED[name]) for name in ("gpus", "machines")}
    return {"job_id": text("job_id"), "user": text("user"), "status": text(DATED["status"]), **times, **sizes}


def where_there(names: Sequence[str], columns: Mapping[str, tuple[str, pl.Expr]]) -> dict[str, pl.Expr]:
    """Keep the columns, given as ours: (theirs, expression), that the log has."""
    return {ours: expr for ours, (theirs, expr) in columns.items() if theirs in names}


def as_trace(
    path: Path,
    frame: pl.DataFrame,
    log: LogMapping,
    origin: Origin,
    profiles: Mapping[str, ModelProfile],
    *,
    strict: bool,
) -> Trace:
    """Check the rows of a log, let time begin at the first submission, and say what was assumed."""
    if "start_s" in frame.columns and "end_s" in frame.columns:
        logged = [name for name in ("duration_s",) if name in frame.columns]
        frame = frame.with_columns(pl.coalesce(*logged, pl.col("end_s") - pl.col("start_s")).alias("duration_s"))
    result = checked(frame, origin, profiles, strict=strict, rules=log.rules)
    frame = result.frame.select(name for name in (*SCHEMA, *LOGGED) if name in result.frame.columns)
    zero_s = float(frame["submit_s"].min())  # type: ignore[arg-type]
    clocked = [name for name in CLOCKED if name in frame.columns]
    frame = frame.with_columns(pl.col(clocked) - zero_s)
    day = None if log.zone is None else timestamps.said(zero_s)
    second = f"{zero_s:,.3f}".rstrip("0").rstrip(".") if zero_s < 1e15 else f"{zero_s:g}"
    zero = f"second {second} of the log's own clock" if day is None else f"{day} ({log.zone})"
    return Trace(path.stem, frame, (f"time zero is {zero}", *log.notes, *result.notes), result.skipped)
