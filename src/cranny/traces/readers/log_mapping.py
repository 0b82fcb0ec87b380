"""What the readers of other systems' logs share: how rows become a trace, and which of them cannot."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.model.validate import counted
from cranny.traces.presence import PRESENCE, no_presence, presence_of, shifted
from cranny.traces.readers import timestamps
from cranny.traces.schema import CLOCKED, CPU_ONLY, LOGGED, SCHEMA, TIME_ZERO, Find, RowRule, checked
from cranny.traces.trace import Trace

Columns = dict[str, str | pl.Expr]
Step = Callable[[pl.DataFrame], tuple[pl.DataFrame, Mapping[str, int], Sequence[str]]]
UTC = "UTC"
OWN_CLOCK = "the log's own clock; no zone is given"
_A_TIME = "must be a time"
_RUNNING = RowRule("end_s", "no end in the log: still running", pl.col("end_s").is_null(), of_value=False)
# The columns that Helios and Acme share.
DATED = {
    "gpus": "gpu_num",
    "submit_s": "submit_time",
    "start_s": "start_time",
    "end_s": "end_time",
    "machines": "node_num",
    "status": "state",
}


def life(start: str = "start_s", *, running: bool = False) -> tuple[RowRule, ...]:
    """Return the rules for logs with submission, start and end of each job; with `running` one may have no end."""
    rules = (
        CPU_ONLY,
        RowRule(start, "never started", pl.col(start).is_null(), of_value=False),
        RowRule("submit_s", _A_TIME, pl.col("submit_s").fill_null(math.nan).is_nan()),
        RowRule(start, _A_TIME, pl.col(start).is_nan()),
        _RUNNING,
        RowRule("end_s", _A_TIME, pl.col("end_s").is_not_null() & pl.col("end_s").is_nan()),
        RowRule(
            "end_s",
            "ended before it started",
            (pl.col("end_s") < pl.col(start)).fill_null(value=False),
            of_value=False,
        ),
    )
    return tuple(rule for rule in rules if not (running and rule is _RUNNING))


def endless(finished: pl.Expr) -> RowRule:
    """Return the rule for logs whose jobs may run on: one that `finished` must have an end."""
    over = (pl.col("end_s").is_null() & finished).fill_null(value=False)
    return RowRule("end_s", "over, but the log does not say since when", over, of_value=False)


def _as_it_is(frame: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int], Sequence[str]]:
    return frame, {}, ()


@dataclass(frozen=True, slots=True)
class LogMapping:
    """How our columns come from those of a log.

    `before` and `after` look at all rows at once, before and after those that cannot be used are skipped. They
    return the rows, which `before` may change but neither add nor move, what was skipped, and notes.

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
    before: Step = _as_it_is
    after: Step = _as_it_is
    read_in: str | None = None  # the name of the zone that the caller gave
    no_gpus: str = ""  # what to look for if no row of a log names GPUs

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
    frame, _, first = log.before(frame)
    if "start_s" in frame.columns and "end_s" in frame.columns:
        frame = _with_durations(frame)
    presence = _without_gpus(frame, log)
    if log.no_gpus and bool((frame["gpus"] == 0).any()) and not bool((frame["gpus"] > 0).any()):
        raise InputError(f"{path}: no jobs: no row names GPUs; {log.no_gpus}")
    frame, notes, skipped = checked(frame, str(path), find, profiles, strict=strict, rules=log.rules)
    frame, joined, last = log.after(frame)
    frame = frame.select(name for name in (*SCHEMA, *LOGGED) if name in frame.columns)
    zero_s = float(frame["submit_s"].min())  # type: ignore[arg-type]
    clocked = [name for name in CLOCKED if name in frame.columns]
    frame = frame.with_columns(pl.col(clocked) - zero_s)
    day = None if log.zone is None else timestamps.said(zero_s, log.read_in)
    second = f"{zero_s:,.3f}".rstrip("0").rstrip(".") if zero_s < 1e15 else f"{zero_s:g}"
    zero = f"second {second} of the log's own clock" if day is None else f"{day} ({log.zone})"
    notes = (f"{TIME_ZERO}{zero}", *log.notes, *first, *_running(frame), *notes, *last)
    zero_epoch_s = None if day is None else zero_s
    presence = shifted(presence, -zero_s)
    zone = log.read_in or (UTC if log.zone == UTC else None)
    return Trace(path.stem, frame, notes, {**skipped, **joined}, zero_epoch_s, zone, presence)


def _without_gpus(frame: pl.DataFrame, log: LogMapping) -> pl.DataFrame:
    """Return where jobs without GPUs ran."""
    if not {"ran_on", "start_s", "duration_s"} <= set(frame.columns):
        return no_presence()
    columns = [name for name in ("job_id", "gpus", *PRESENCE) if name in frame.columns]
    rows = frame.filter(CPU_ONLY.broken & pl.col("ran_on").is_not_null()).select(columns)
    return presence_of(log.after(rows.with_columns(pl.col("gpus").cast(pl.Int32)))[0])


def _with_durations(frame: pl.DataFrame) -> pl.DataFrame:
    """Let jobs last from start to end where the log says no more, and to the end of the log without an end."""
    logged = [name for name in ("duration_s",) if name in frame.columns]
    frame = frame.with_columns(pl.coalesce(*logged, pl.col("end_s") - pl.col("start_s")).alias("duration_s"))
    open_ended = frame.select((pl.col("end_s").is_null() & pl.col("start_s").is_not_null()).any()).item()
    if not open_ended:
        return frame
    times = (pl.col("submit_s"), pl.col("start_s"), pl.col("end_s"), pl.col("start_s") + pl.col("duration_s"))
    known = pl.max_horizontal(pl.when(time.is_finite()).then(time).max() for time in times)
    lasted_s = pl.when(pl.col("end_s").is_null()).then(known - pl.col("start_s"))
    return frame.with_columns(pl.coalesce("duration_s", lasted_s))


def _running(frame: pl.DataFrame) -> Sequence[str]:
    """Say how many jobs have no end."""
    count = frame["end_s"].null_count() if {"start_s", "end_s"} <= set(frame.columns) else 0
    return [f"{counted(count, 'job')} still ran when the log was written, and counted so far"] if count else []
