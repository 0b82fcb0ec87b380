"""A window of a log: from one moment to another, with jobs that cross its edges cut there.

By what the log says, with a job running from its start for its duration:

- one that runs when the window begins is there at time zero, and lasts as long as it still ran;
- one that waits when the window begins is there at time zero, and waits on;
- one that runs on when the window ends is cut there; one that still ran when the log was written is taken to run
  to there, if its limit allows;
- one that waits when the window ends stays as it is: others wait for the same GPUs;
- one that arrives after the window, or ends before it, is skipped, and so is one that is in no window because its
  start is unknown and its submission is outside.

The column `counted` is true for jobs whose wait belongs to the window: neither there at its begin, nor submitted
in the warm-up. The column `running` is true for those that run when it begins. Time zero is the begin of the
window.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from cranny.model.errors import InputError
from cranny.model.validate import counted, not_negative
from cranny.traces.inspect import DAY_S
from cranny.traces.readers.timestamps import said
from cranny.traces.schema import CLOCKED, TIME_ZERO
from cranny.traces.trace import Trace, TraceWindow
from cranny.traces.zones import A_LENGTH, parse_length_s, parse_moment

FEW = 0.01  # share of the jobs that may lie far outside of the rest
LEAST_FEW = 3  # jobs that may, in a short log, if they are not a tenth of it
FAR_SHARE = 0.2  # of the time of the rest, from where on a distance is far
FAR_GAPS = 20  # mean times between submissions of the rest, likewise
Edge = str | float | None  # of a window: a date, or what has passed since the trace's time zero


def cut(trace: Trace, from_s: float | None = None, to_s: float | None = None, warm_up_s: float = 0.0) -> Trace:
    """Return the jobs of a window; `from_s` and `to_s` are seconds from the trace's time zero.

    Without `to_s` it goes on to the end of the log, or of the window that the trace was cut to before.
    """
    if to_s is None and trace.window is not None:
        to_s = trace.window.end_s
    begin_s, finish_s = 0.0 if from_s is None else from_s, math.inf if to_s is None else to_s
    not_negative(warm_up_s, "warm_up_s")
    if not (math.isfinite(begin_s) and finish_s > begin_s):
        given = f"not from {_moment(trace, begin_s)} to {_moment(trace, finish_s)}"
        raise InputError(f"the window must begin before it ends, {given}; {_span(trace)}")
    if warm_up_s >= finish_s - begin_s:
        raise InputError(f"the warm-up of {warm_up_s:,.0f} s is as long as the window")
    frame = trace.frame if "start_s" in trace.frame.columns else trace.frame.with_columns(start_s=None)
    start_s = pl.col("start_s").cast(pl.Float64)
    start_s = pl.when(start_s.is_finite()).then(start_s)
    frame = _to_the_cut(frame, finish_s)
    end_s = start_s + pl.col("duration_s")
    submitted_in = pl.col("submit_s").is_between(begin_s, finish_s, closed="left")
    # A job of no seconds is where it starts.
    lasts_in = (end_s > begin_s) | ((end_s == begin_s) & (start_s == begin_s))
    late = (start_s >= finish_s) & (_arrival_s(frame) < finish_s)
    inside = pl.coalesce(lasts_in & ((start_s < finish_s) | late), submitted_in)
    kept = frame.filter(inside)
    if kept.is_empty():
        raise InputError(f"{trace.name}: no jobs in that window; {_span(trace)}")
    before_s = pl.max_horizontal(begin_s - start_s, 0.0).fill_null(0.0)  # that it ran before the window
    after_s = pl.when(late).then(0.0).otherwise(pl.max_horizontal(end_s - finish_s, 0.0)).fill_null(0.0)
    changed = [
        (pl.col("duration_s") - before_s - after_s).clip(lower_bound=0.0).alias("duration_s"),
        ((pl.col("submit_s") >= begin_s + warm_up_s) & _said(frame, "counted", otherwise=True)).alias("counted"),
        _ran_at(begin_s, start_s, frame).alias("running"),
    ]
    if "end_s" in kept.columns:
        changed.append(pl.when(after_s <= 0.0).then(pl.col("end_s")).alias("end_s"))
    if "limit_s" in kept.columns:
        changed.append((pl.col("limit_s") - before_s).clip(lower_bound=0.0).alias("limit_s"))
    figures = _figures(frame.with_columns(inside=inside, cut=after_s > 0.0), start_s, begin_s, finish_s)
    shifted = _from_zero(kept.with_columns(changed), begin_s)
    if not shifted["running"].any():
        shifted = shifted.drop("running")
    if "start_s" not in trace.frame.columns:
        shifted = shifted.drop("start_s")
    zero_s = None if trace.zero_epoch_s is None else trace.zero_epoch_s + begin_s
    notes = [note for note in trace.notes if not note.startswith(TIME_ZERO)]
    notes.append(figures.note(zero_s, trace.zone))
    edges = TraceWindow(0.0, finish_s - begin_s if math.isfinite(finish_s) else None, warm_up_s)
    presence = _presence(trace.presence, begin_s, finish_s)
    changed_trace = replace(trace, frame=shifted, notes=tuple(notes), zero_epoch_s=zero_s)
    return replace(changed_trace, presence=presence, window=edges)


def _presence(presence: pl.DataFrame, begin_s: float, finish_s: float) -> pl.DataFrame:
    """Cut the presence of skipped jobs at the edges of a window."""
    presence = _to_the_cut(presence, finish_s)
    from_s, to_s = (
        each.clip(begin_s, finish_s) for each in (pl.col("start_s"), pl.col("start_s") + pl.col("duration_s"))
    )
    presence = presence.with_columns(
        start_s=from_s - begin_s, duration_s=to_s - from_s, end_s=pl.col("end_s") - begin_s
    )
    return presence.filter(pl.col("duration_s") > 0)


def _moment(trace: Trace, at_s: float) -> str:
    """Write a time as a date if the trace has them, else as seconds."""
    day = None if trace.zero_epoch_s is None else said(trace.zero_epoch_s + at_s, trace.zone)
    return day or f"{at_s:,.0f} s"


def _said(frame: pl.DataFrame, name: str, *, otherwise: bool) -> pl.Expr:
    """Return what an earlier cut said of each job."""
    return pl.col(name).fill_null(value=otherwise) if name in frame.columns else pl.lit(value=otherwise)


def _ran_at(begin_s: float, start_s: pl.Expr, frame: pl.DataFrame) -> pl.Expr:
    """Say which jobs ran when a window began; a start before the submission is no such run."""
    before = (start_s < begin_s) & (pl.col("submit_s") < begin_s)
    return (before | ((start_s == begin_s) & _said(frame, "running", otherwise=False))).fill_null(value=False)


def _arrival_s(frame: pl.DataFrame) -> pl.Expr:
    """Return when each job could first have started."""
    if "eligible_s" not in frame.columns:
        return pl.col("submit_s")
    return pl.max_horizontal("submit_s", pl.col("eligible_s").fill_nan(None))


def _to_the_cut(frame: pl.DataFrame, finish_s: float) -> pl.DataFrame:
    """Let jobs that still ran when the log was written run to the end of the window, within their limit."""
    if "end_s" not in frame.columns or not math.isfinite(finish_s):
        return frame
    longest_s = finish_s - pl.col("start_s")
    if "limit_s" in frame.columns:
        longest_s = pl.min_horizontal(longest_s, "limit_s")
    runs_on = pl.col("end_s").is_null() & pl.col("start_s").is_finite()
    lasts_s = pl.when(runs_on).then(pl.max_horizontal("duration_s", longest_s)).otherwise("duration_s")
    return frame.with_columns(lasts_s.alias("duration_s"))


def _from_zero(frame: pl.DataFrame, begin_s: float) -> pl.DataFrame:
    """Count times from the begin of the window; what ran then comes before what waited."""
    clocked = [name for name in CLOCKED if name in frame.columns]
    arriving = [name for name in ("submit_s", "start_s", "eligible_s") if name in clocked]
    first_of_all = ~pl.col("running"), pl.when("running").then("start_s")
    frame = frame.sort(pl.max_horizontal("submit_s", begin_s), *first_of_all, maintain_order=True)
    return frame.with_columns(pl.col(clocked) - begin_s).with_columns(pl.col(arriving).clip(lower_bound=0.0))


class _Figures(NamedTuple):
    """How many jobs are where."""

    begin_s: float
    ran: int  # when the window began
    waited: int
    cut: int  # ran on when it ended
    late: int  # waited when it ended
    outside: int

    def note(self, zero_epoch_s: float | None, zone: str | None) -> str:
        """Say it."""
        day = None if zero_epoch_s is None else said(zero_epoch_s, zone)
        begin = f"second {self.begin_s:,.0f} of the log" if day is None else f"{day}"
        begin += f" ({zone})" if zone else ""
        places = (
            (self.ran, "running when it began, counted from then on"),
            (self.waited, "waiting when it began"),
            (self.cut, "running on when it ended, cut there"),
            (self.late, "waiting when it ended"),
            (self.outside, "outside of it, skipped"),
        )
        where = "; ".join(f"{place}: {counted(count, 'job')}" for count, place in places if count)
        return f"{TIME_ZERO}{begin}, the begin of the window" + (f"; {where}" if where else "")


def _figures(frame: pl.DataFrame, start_s: pl.Expr, begin_s: float, finish_s: float) -> _Figures:
    carried, inside = pl.col("submit_s") < begin_s, pl.col("inside")
    counts = frame.select(
        ran=(inside & carried & (start_s < begin_s)).sum(),
        waited=(inside & carried & (start_s >= begin_s)).sum(),
        cut=(inside & pl.col("cut")).sum(),
        late=(inside & (start_s >= finish_s)).sum(),
        outside=(~inside).sum(),
    ).row(0)
    return _Figures(begin_s, *(int(count or 0) for count in counts))


def window(
    trace: Trace,
    start: Edge = None,
    end: Edge = None,
    zone: str | None = None,
    warm_up: str | float = 0.0,
) -> Trace:
    """Return the jobs from one time to another; the trace as it is if neither these nor a warm-up are given.

    A time is a date, in `zone` if it names none, else in the trace's; or what has passed since the trace's time
    zero, such as "2d" or a number of seconds. The warm-up is a length of time too.
    """
    if start is None and end is None and not warm_up:
        return trace
    edges_s = [_edge_s(trace, *edge, zone or trace.zone) for edge in (("from", start), ("to", end))]
    return cut(trace, edges_s[0], edges_s[1], _seconds("warm-up", warm_up))


def _edge_s(trace: Trace, name: str, edge: Edge, zone: str | None) -> float | None:
    """Read an edge of a window as seconds from the trace's time zero."""
    since_s = parse_length_s(edge) if isinstance(edge, str) else edge
    if edge is None or since_s is not None:
        return since_s
    try:
        moment_s = parse_moment(str(edge), zone)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if trace.zero_epoch_s is None:
        raise InputError(f"{name}: the times of {trace.name} have no date; give a time such as 2d from its first")
    return moment_s - trace.zero_epoch_s


def _seconds(name: str, length: str | float) -> float:
    """Read a length of time."""
    length_s = parse_length_s(length) if isinstance(length, str) else length
    if length_s is None:
        raise InputError(f"{name}: {A_LENGTH}, not {length!r}")
    return length_s


class FarJobs(NamedTuple):
    """A few jobs that were submitted long before all others, or after."""

    jobs: int
    far_s: float  # how far from the rest
    apart: bool  # all of them; otherwise they come one by one in that time
    rest_s: float  # the submission of the rest that is nearest
    before: bool


def far_jobs(trace: Trace) -> list[FarJobs]:
    """Find few jobs that are submitted far from the rest: they would set the time over which all is measured."""
    submit_s = trace.frame["submit_s"].to_numpy()
    return [
        FarJobs(count, far_s, apart, float(submit_s[count] if before else submit_s[-1 - count]), before)
        for before, times in ((True, submit_s), (False, -submit_s[::-1]))
        for count, far_s, apart in _far(times)
    ]


def _far(submit_s: np.typing.NDArray[np.float64]) -> list[tuple[int, float, bool]]:
    """Return how many of the first times are far from the rest, how far, and whether all; nothing if none are."""
    jobs = len(submit_s)
    few = max(int(FEW * jobs), min(LEAST_FEW, jobs // 10))
    if not few or jobs - few < 2:
        return []
    gaps_s = np.diff(submit_s[: few + 1])
    count = int(gaps_s.argmax()) + 1
    rest_s = float(submit_s[-1] - submit_s[count])
    least_s = max(DAY_S, FAR_SHARE * rest_s, FAR_GAPS * rest_s / (jobs - count - 1))
    if gaps_s[count - 1] >= least_s:
        return [(count, float(gaps_s[count - 1]), True)]
    # Not one gap, but a few jobs all along: such as those that ran on into the month that was asked for.
    rest_s = float(submit_s[-1] - submit_s[few])
    far_s = float(submit_s[few] - submit_s[0])
    thin = far_s / few >= FAR_GAPS * rest_s / (jobs - few - 1)
    return [(few, far_s, False)] if far_s >= max(DAY_S, FAR_SHARE * rest_s) and thin else []


def far_sentence(trace: Trace) -> str | None:
    """Say in a sentence that jobs are far from the rest, and which window is without them; None if none are."""
    found = [] if trace.window is not None else far_jobs(trace)  # in a window that was asked for, no job is far
    if not found:
        return None
    first_s, last_s = float(trace.frame["submit_s"][0]), float(trace.frame["submit_s"][-1])
    places = []
    for far in found:
        place = "before" if far.before else "after"
        days = f"{far.far_s / DAY_S:,.0f} days"
        when = f"{days} {place}" if far.apart else f"in the {days} {place}"
        places.append(f"{counted(far.jobs, 'job')} submitted {when} the rest")
        first_s, last_s = (far.rest_s, last_s) if far.before else (first_s, far.rest_s)
    edges = f"--from {_day(trace, first_s)} --to {_day(trace, last_s, after=True)}"
    return f"{'; '.join(places)}: all is measured over that time too; use {edges}"


def _day(trace: Trace, at_s: float, *, after: bool = False) -> str:
    """Return the day of a time as the options of a window take it, or the day after it."""
    more_s = DAY_S if after else 0.0
    day = None if trace.zero_epoch_s is None else said(trace.zero_epoch_s + at_s + more_s, trace.zone)
    return f"{math.floor((at_s + more_s) / DAY_S)}d" if day is None else day[:10]


def _span(trace: Trace) -> str:
    """Say when jobs are submitted."""
    first_s, last_s = float(trace.frame["submit_s"][0]), float(trace.frame["submit_s"][-1])
    if trace.zero_epoch_s is not None:
        days = [said(trace.zero_epoch_s + submit_s, trace.zone) for submit_s in (first_s, last_s)]
        if None not in days:
            return f"jobs are submitted from {days[0]} to {days[1]}"
    return f"jobs are submitted from {first_s:,.0f} s to {last_s:,.0f} s"
