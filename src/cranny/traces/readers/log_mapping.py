"""What the readers of other systems' logs share: how rows become a trace, and which of them cannot."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from cranny.model.profile import ModelProfile
from cranny.traces.readers import timestamps
from cranny.traces.schema import CLOCKED, CPU_ONLY, LOGGED, SCHEMA, Find, RowRule, checked
from cranny.traces.trace import Trace

Columns = dict[str, str | pl.Expr]
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

    `columns` and `further` give the log's name for a column of ours, which is then read as what ours holds;
    `columns` may also hold expressions, and what `rules` look at besides ours; only ours stay. Times count from
    any zero, the same for all. Where there is no `duration_s` it is `end_s - start_s`.
    """

    columns: Mapping[str, str | pl.Expr]
    further: Mapping[str, str] = field(default_factory=dict)  # columns that a log may lack
    rules: Sequence[RowRule] = life()
    called: Mapping[str, str] = field(default_factory=dict)  # the log's names for expressions, for errors
    zone: str | None = None  # of times since 1970, as a note says it; None: the log has a clock of its own
    notes: Sequence[str] = ()
    times: Callable[[pl.Expr], pl.Expr] = timestamps.seconds  # how the log writes them

    @property
    def names(self) -> dict[str, str]:
        """The log's names for our columns."""
        return {**{ours: how for ours, how in self.columns.items() if isinstance(how, str)}, **self.called}

    def taken(self, names: Sequence[str]) -> list[pl.Expr]:
        """Return our columns as expressions, of a log with columns of these names."""
        taken = {**self.columns, **{ours: name for ours, name in self.further.items() if name in names}}
        return [
            (self._read(ours, how) if isinstance(how, str) else how).alias(ours) for ours, how in taken.items()
        ]

    def _read(self, ours: str, name: str) -> pl.Expr:
        """Read a column of the log as what ours holds."""
        if ours in CLOCKED:
            return self.times(pl.col(name))
        return text(name) if {**SCHEMA, **LOGGED}[ours] == pl.String() else number(name)


def text(name: str) -> pl.Expr:
    """Take a column of words; nothing and an empty field are the same."""
    return pl.when(pl.col(name) != "").then(pl.col(name))


def number(name: str) -> pl.Expr:
    """Take a column of numbers; what is none becomes null."""
    return pl.col(name).cast(pl.Float64, strict=False)


def as_trace(
    path: Path,
    frame: pl.DataFrame,
    log: LogMapping,
    find: Find,
    profiles: Mapping[str, ModelProfile],
    *,
    strict: bool,
) -> Trace:
    """Check the rows of a log, let time begin at the first submission, and say what was assumed."""
    if "start_s" in frame.columns and "end_s" in frame.columns:
        logged = [name for name in ("duration_s",) if name in frame.columns]
        frame = frame.with_columns(pl.coalesce(*logged, pl.col("end_s") - pl.col("start_s")).alias("duration_s"))
    frame, notes, skipped = checked(frame, str(path), find, profiles, strict=strict, rules=log.rules)
    frame = frame.select(name for name in (*SCHEMA, *LOGGED) if name in frame.columns)
    zero_s = float(frame["submit_s"].min())  # type: ignore[arg-type]
    clocked = [name for name in CLOCKED if name in frame.columns]
    frame = frame.with_columns(pl.col(clocked) - zero_s)
    day = None if log.zone is None else timestamps.said(zero_s)
    second = f"{zero_s:,.3f}".rstrip("0").rstrip(".") if zero_s < 1e15 else f"{zero_s:g}"
    zero = f"second {second} of the log's own clock" if day is None else f"{day} ({log.zone})"
    notes = (f"time zero is {zero}", *log.notes, *notes)
    return Trace(path.stem, frame, notes, skipped, None if day is None else zero_s)
