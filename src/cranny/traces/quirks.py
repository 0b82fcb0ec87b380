"""Quirks of job logs: what to know before trusting the figures of a trace.

Each quirk is one function that looks at a trace and returns one sentence with numbers, or None.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from cranny.traces.generate import Floats
from cranny.traces.inspect import DAY_S, HOUR_S, requested, waits
from cranny.traces.readers.timestamps import MOST_S
from cranny.traces.schema import DRAWN_MODELS_COLUMN
from cranny.traces.trace import Trace
from cranny.traces.window import far_sentence

Flags = npt.NDArray[np.bool_]

FEW = 20  # jobs that may look alike by chance
MINUTE_S = 60.0
WEEK_S = 7 * DAY_S
YEAR_S = 365 * DAY_S
MOST_YEARS = 20  # of a log
LOST_SHARE = 0.01  # of rows that may be jobs
# Reasons to skip a row that say nothing of what it was; others (CPU-only, never started, steps) do.
LOST = re.compile("^(does not have|ended before|over, but|no end in the log|no duration|not a job)|: must")
LIMIT_HOURS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 36, 48, 72, 96, 120, 168, 240, 336, 720)


def quirks(trace: Trace, capacity_gpus: int | None = None) -> list[str]:
    """Return what is odd about a trace; with the GPUs of a cluster, also what is odd about running it there."""
    found = [quirk(trace) for quirk in QUIRKS]
    if capacity_gpus is not None:
        found += [quirk(trace, capacity_gpus) for quirk in CAPACITY_QUIRKS]
    return [sentence for sentence in found if sentence]


def rows_lost(trace: Trace) -> str | None:
    """Find logs of which many rows cannot be used, so that all figures are of a part of the cluster's work."""
    lost = {reason: count for reason, count in trace.skipped.items() if LOST.search(reason)}
    count = sum(lost.values())
    share = count / (len(trace) + count)
    why = "; ".join(f"{count:,} {reason}" for reason, count in lost.items())
    said = f"{count:,} rows, {_percent(share)} of those that may be jobs on GPUs, cannot be used ({why})"
    return f"{said}: all figures are without them" if share >= LOST_SHARE else None


def not_seconds(trace: Trace) -> str | None:
    """Find times that cannot be seconds, since the log would last for decades or be of a far year."""
    first_s, last_s = float(trace.frame["submit_s"][0]), float(trace.frame["submit_s"][-1])
    years = (first_s if first_s >= MOST_S else last_s - first_s) / YEAR_S
    what = (
        "the first submission is {:,.0f} years after time zero"
        if first_s >= MOST_S
        else "the log is of {:,.0f} years"
    )
    why = "times may be milliseconds, and must be seconds"
    return f"{what.format(years)}: {why}" if years > MOST_YEARS else None


def cut_durations(trace: Trace) -> str | None:
    """Find durations that were cut: many jobs last exactly as long as the longest."""
    duration_s = _column(trace, "duration_s")
    longest_s = float(duration_s.max())
    count = int((duration_s == longest_s).sum())
    # Where most jobs last equally long, that is how they were made, and nothing was cut.
    many = f"{_of(count, trace)} last exactly {longest_s / HOUR_S:,.4g} h, the longest of all"
    cut = "durations seem to be cut there, so that GPU-hours are a lower bound"
    return f"{many}: {cut}" if FEW <= count <= len(trace) / 2 else None


def time_limits(trace: Trace) -> str | None:
    """Find jobs that a time limit ended: their own limit if it is logged, else a round number of hours."""
    duration_s, limit_s = _column(trace, "duration_s"), _column(trace, "limit_s")
    count = int(((limit_s > 0) & (duration_s >= limit_s)).sum())
    if count:
        return f"{_of(count, trace)} ran until their time limit: how long they would have run is not known"
    longest_s = duration_s.max()
    for hours in LIMIT_HOURS:
        late_s = duration_s - hours * HOUR_S
        count = int(((late_s >= 0) & (late_s < MINUTE_S)).sum())
        near = int((np.abs(late_s) <= 30 * MINUTE_S).sum()) - count
        # As many as ten times what the other minutes of that hour hold.
        if count >= max(FEW, 0.005 * len(trace), 10 * near / 59) and longest_s >= hours * HOUR_S + MINUTE_S:
            return f"{_of(count, trace)} last {hours} h to the minute, as if a time limit had ended them"
    return None


def starts_before_submission(trace: Trace) -> str | None:
    """Find jobs that start before they are submitted."""
    wait_s = waits(trace)
    early_s = -wait_s[wait_s < 0]
    if not len(early_s):
        return None
    typical_s = float(np.median(early_s))
    offset = f"typically by {typical_s:,.0f} s"
    if _is_whole_hours(np.array([typical_s]))[0]:
        offset += ", which is whole hours: times may be of two zones, or the clock was set back"
    return f"{_of(len(early_s), trace)} start before their submission, {offset}; they count for no wait"


def never_starts_soon(trace: Trace) -> str | None:
    """Find clocks that differ between submissions and starts: even the quickest jobs wait for long."""
    wait_s = waits(trace)
    quick_s = float(np.quantile(wait_s, 0.01)) if len(wait_s) >= FEW else 0.0
    why = "submission and start may be in different time zones"
    return f"99 % of the jobs wait {quick_s / HOUR_S:,.1f} h or more: {why}" if quick_s >= 30 * MINUTE_S else None


def clock_changes(trace: Trace) -> str | None:
    """Find jobs of one attempt that end whole hours before or after their start and duration say."""
    ran_s = _column(trace, "end_s") - _column(trace, "start_s")
    once = ~(_column(trace, "attempts") > 1)
    count = int((once & _is_whole_hours(ran_s - _column(trace, "duration_s"))).sum())
    off = "end whole hours off their start plus duration: was the clock changed meanwhile?"
    return f"{_of(count, trace)} {off}" if count else None


def several_clusters(trace: Trace) -> str | None:
    """Find more than one cluster in the file."""
    if "cluster" not in trace.frame.columns:
        return None
    names = sorted(trace.frame["cluster"].drop_nulls().cast(pl.String).unique().to_list())
    if len(names) < 2:
        return None
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return (
        f"{len(names)} clusters are in one file ({shown}): pick one with traces slice --where cluster={names[0]}"
    )


def repeated_attempts(trace: Trace) -> str | None:
    """Find jobs that were started more than once."""
    attempts = _column(trace, "attempts")
    count, most = int((attempts > 1).sum()), np.nanmax(attempts, initial=0.0)
    several = f"ran in several attempts, up to {most:.0f}: each counts as one job"
    return f"{_of(count, trace)} {several}" if count else None


def repeated_ids(trace: Trace) -> str | None:
    """Find rows that were skipped because an earlier row has their job id."""
    count = sum(rows for reason, rows in trace.skipped.items() if "repeated" in reason)
    lost = "if they are further attempts, the time they ran is not counted"
    return f"{count:,} rows repeat the id of a job and are skipped: {lost}" if count else None


def uneven_load(trace: Trace) -> str | None:
    """Find a trace of four weeks or more with most of its jobs in few of them."""
    since_s = _since_first(trace)
    if since_s[-1] < 4 * WEEK_S or len(trace) < 5 * FEW:
        return None
    weeks = np.bincount((since_s // WEEK_S).astype(np.int64))
    busiest_first = np.sort(weeks)[::-1]
    busy = int(np.searchsorted(np.cumsum(busiest_first), len(trace) / 2)) + 1
    if busy > len(weeks) / 4:
        return None
    return f"load is uneven: half of the jobs come in {busy} of {len(weeks)} weeks"


def idle_gaps(trace: Trace) -> str | None:
    """Find days on end without a submission, in a log where jobs usually come much faster."""
    gaps_s = np.diff(_since_first(trace))
    if not len(gaps_s):
        return None
    least_s = max(3 * DAY_S, 20 * float(gaps_s.mean()))
    count = int((gaps_s >= least_s).sum())
    at = int(gaps_s.argmax())
    longest = f"{gaps_s[at] / DAY_S:.1f} days from day {float(trace.frame['submit_s'][at]) / DAY_S:.0f} on"
    if count <= 1:
        return f"nothing is submitted for {longest}" if count else None
    return f"{count} times nothing is submitted for {least_s / DAY_S:.2g} days or more, once for {longest}"


def far_from_the_rest(trace: Trace) -> str | None:
    """Find a few jobs that are submitted long before all others, or after."""
    return far_sentence(trace)


def zero_seconds(trace: Trace) -> str | None:
    """Find jobs that last no time."""
    count = int((_column(trace, "duration_s") == 0).sum())
    return f"{_of(count, trace)} last zero seconds: they hold no GPU" if count else None


def drawn_models(trace: Trace) -> str | None:
    """Find models that the authors of a published table drew at random."""
    drawn = {"model", DRAWN_MODELS_COLUMN} <= set(trace.frame.columns)
    noted = any("drawn" in note for note in trace.notes)
    return "models in this table were drawn by its authors, not observed" if drawn and not noted else None


def demand_above_capacity(trace: Trace, capacity_gpus: int) -> str | None:
    """Find more GPUs asked for than there are, if each job started when submitted."""
    held = requested(trace)
    peak = int(held.value.max())
    if peak <= capacity_gpus:
        return None
    ends_s = trace.frame["submit_s"].to_numpy()[[0, -1]]
    mean, share = 0.0, 0.0
    if ends_s[1] > ends_s[0]:
        mean, share = float(held.means(ends_s)[0]), float(held.above(capacity_gpus).means(ends_s)[0])
    if mean > capacity_gpus:
        return (
            f"jobs ask for {mean:,.0f} GPUs on average and {peak:,} at most, the cluster has "
            f"{capacity_gpus:,}: its queue grows until the last submission"
        )
    return (
        f"jobs ask for up to {peak:,} GPUs at once, the cluster has {capacity_gpus:,}: "
        f"demand is above it {_percent(share)} of the time, and jobs wait"
    )


def jobs_too_large(trace: Trace, capacity_gpus: int) -> str | None:
    """Find jobs that no cluster of this size can ever run."""
    gpus = _column(trace, "gpus")
    count = int((gpus > capacity_gpus).sum())
    sizes = f"more GPUs than the cluster has, up to {gpus.max():,.0f} of {capacity_gpus:,}"
    return f"{_of(count, trace)} ask for {sizes}: they can never be placed" if count else None


QUIRKS: Sequence[Callable[[Trace], str | None]] = (
    rows_lost,
    not_seconds,
    several_clusters,
    far_from_the_rest,
    cut_durations,
    time_limits,
    zero_seconds,
    repeated_attempts,
    repeated_ids,
    starts_before_submission,
    never_starts_soon,
    clock_changes,
    uneven_load,
    idle_gaps,
    drawn_models,
)
CAPACITY_QUIRKS: Sequence[Callable[[Trace, int], str | None]] = (demand_above_capacity, jobs_too_large)


def _column(trace: Trace, name: str) -> Floats:
    """Return a column as numbers, (jobs,); NaN where there is none."""
    if name not in trace.frame.columns:
        return np.full(len(trace), np.nan)
    numbers: Floats = trace.frame[name].cast(pl.Float64, strict=False).to_numpy()
    return numbers


def _since_first(trace: Trace) -> Floats:
    """Return the seconds from the first submission to each, (jobs,)."""
    since_s: Floats = (trace.frame["submit_s"] - trace.frame["submit_s"][0]).to_numpy()
    return since_s


def _is_whole_hours(offset_s: Floats) -> Flags:
    """Return which offsets are an hour or several, give or take a second."""
    with np.errstate(invalid="ignore"):  # a time may be missing, or infinite where a log says so
        hours = np.round(offset_s / HOUR_S)
        whole: Flags = (np.abs(offset_s - hours * HOUR_S) <= 1) & (hours != 0)
    return whole


def _of(count: int, trace: Trace) -> str:
    return f"{count:,} of {len(trace):,} jobs ({_percent(count / len(trace))})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share >= 0.001 else "under 0.1 %"
