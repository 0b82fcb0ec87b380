"""Axes: where a value falls, where the ticks are, and what is written beside them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cranny.traces.zones import ClockOffset

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0
TIME_UNITS = (("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S), ("s", 1.0))
TIME_STEPS_S = (
    *(1.0, 2.0, 5.0, 10.0, 30.0),
    *(minutes * MINUTE_S for minutes in (1, 2, 5, 10, 30)),
    *(hours * HOUR_S for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_S for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)),
)
CALENDAR_STEPS_S = (
    *(1.0, 2.0, 5.0, 10.0, 30.0),
    *(minutes * MINUTE_S for minutes in (1, 2, 5, 10, 30)),
    *(hours * HOUR_S for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_S for days in (1, 2, 4, 7, 14, 28)),
)
NEAR_S = 1e-3  # a tick that is outside of an axis by less is on its edge
TINY = 1e-30  # no metric has a range under this; dividing by less would leave the range of floats
LEAST_FLOOR_S = 1e-5
# Where an axis of shares may begin, and the step of its ticks there.
SHARE_STEPS = {0.99: 0.002, 0.95: 0.01, 0.9: 0.02, 0.8: 0.05, 0.5: 0.1, 0.0: 0.25}
LOG_TIMES_S = (
    *(1e-3, 1e-2, 0.1, 1.0, 10.0, MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * HOUR_S),
    *(days * DAY_S for days in (4, 40, 400, 4000)),
)
CLOSE_LOG_TIMES_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 40.0),
    *(minutes * MINUTE_S for minutes in (1, 2, 5, 10, 20, 40)),
    *(hours * HOUR_S for hours in (1, 2, 5, 10)),
    *(days * DAY_S for days in (1, 2, 4, 10, 20, 40, 100, 200, 400, 1000, 2000, 4000)),
)
Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values, with the ticks to draw; a log axis shows everything below `low` at `low`."""

    low: float
    high: float
    ticks: tuple[Tick, ...] = ()
    log: bool = False

    def share(self, value: float) -> float:
        """Return where `value` falls between the ends, from 0 to 1; values outside stay on the edge."""
        if self.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)


def count_axis(values: Iterable[float | None], *, factor: float = 1.0, suffix: str = "") -> Axis:
    """Make an axis from zero (or the lowest value below it) to a round number over the highest value."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    if high - low < TINY:
        high = low + 1.0 / factor
    step = _round_step((high - low) * factor / 4.5) / factor
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # A line may end a little over the last tick, rather than leave a fifth of the frame empty.
    top = high if high - (last - 1) * step < 0.45 * step and last - 1 > first else last * step
    places = len(f"{step * factor:.6g}".partition(".")[2])
    ticks = [(index * step, index * step * factor) for index in range(first, last + 1)]
    return Axis(
        first * step,
        top,
        tuple((at, f"{_short(shown, places)}{suffix}") for at, shown in ticks if at <= top * (1 + 1e-9)),
    )


def time_axis(low_s: float, high_s: float) -> Axis:
    """Make an axis of the time since `low_s`, with ticks on whole days, hours or minutes."""
    span_s = high_s - low_s if high_s > low_s else 1.0
    step_s = next((step for step in TIME_STEPS_S if span_s / step <= 8), _round_step(span_s / 5))
    count = int(span_s / step_s + 1e-9)
    unit, length_s = next((entry for entry in TIME_UNITS if step_s >= entry[1]), ("s", 1.0))
    texts = ("0", *(f"{index * step_s / length_s:g} {unit}" for index in range(1, count + 1)))
    return Axis(low_s, low_s + span_s, tuple((low_s + at * step_s, text) for at, text in enumerate(texts)))


def calendar_axis(
    low_s: float, high_s: float, zero_epoch_s: float, offsets: Sequence[ClockOffset] = ((0.0, 0.0),)
) -> Axis:
    """Make an axis of dates, with ticks on midnights, the first of months, or whole hours.

    `offsets` says how far clocks are ahead of UTC, from when on; the first also holds before that.
    """
    span_s = high_s - low_s if high_s > low_s else 1.0
    start, end = low_s + zero_epoch_s, low_s + span_s + zero_epoch_s
    since = [-math.inf, *(at for at, _ in offsets[1:]), math.inf]
    ahead_s = [ahead for _, ahead in offsets]
    shown = _clock_ticks(start + min(ahead_s), end + max(ahead_s), span_s)
    ticks = [
        (shown_s - ahead - zero_epoch_s, text)
        for shown_s, text in shown
        for ahead, begin, past in zip(ahead_s, since, since[1:], strict=False)
        if max(begin, start - NEAR_S) <= shown_s - ahead <= end + NEAR_S and shown_s - ahead < past
    ]
    return Axis(low_s, low_s + span_s, tuple(sorted(ticks)))


def _clock_ticks(start: float, end: float, span_s: float) -> list[Tick]:
    """Return the ticks of an axis of some length between two times of a clock, since 1970."""
    if span_s > 200 * DAY_S:
        return _months(start, end)
    step_s = next(step for step in CALENDAR_STEPS_S if span_s / step <= 8)
    first, last = math.ceil(start / step_s - 1e-9), math.floor(end / step_s + 1e-9)
    return [(at * step_s, _moment(at * step_s)) for at in range(first, last + 1)]


def _months(start: float, end: float) -> list[Tick]:
    """Return the first of each month, or of each few months of a long time; times are since 1970."""
    step = next(
        months for months in (1, 2, 3, 6, 12, 24, 60, 120, 1200) if (end - start) / (30 * DAY_S) / months <= 8
    )
    first, last = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at) for at in (start, end))
    ticks = []
    for month in range(first.year * 12, last.year * 12 + 12, step):
        at = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
        if first <= at <= last:
            ticks.append((at.timestamp(), f"{at:%b} {at.year}"))
    return ticks


def _moment(epoch_s: float) -> str:
    """Write a date, or the time of a day that has begun."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=epoch_s)
    if epoch_s % DAY_S == 0:
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M:%S}" if epoch_s % MINUTE_S else f"{at:%H:%M}"


def log_time_axis(values_s: Iterable[float], *, floor_s: float = 1.0) -> Axis:
    """Make a logarithmic axis of durations; what is under the floor is drawn on it, and the tick says so."""
    finite = [value for value in values_s if math.isfinite(value)]
    positive = [value for value in finite if value > 0]
    high_s = max(positive, default=floor_s)
    while high_s < floor_s * 2 and positive and floor_s > LEAST_FLOOR_S:
        floor_s /= 10  # Everything is quicker than the floor: go down until there is something to see.
    above = [value for value in positive if value >= floor_s]
    low_s = 10.0 ** math.floor(math.log10(min(above, default=floor_s)) + 1e-9)
    high_s = max(high_s, low_s * 10)
    clamped = any(value < low_s for value in finite)
    low_s = floor_s if clamped else low_s
    times = [at for at in LOG_TIMES_S if low_s <= at <= high_s]
    if len(times) < 4:
        times = [at for at in CLOSE_LOG_TIMES_S if low_s <= at <= high_s]
    ticks = [(at, duration_text(at)) for at in times]
    if clamped:
        ticks = [(low_s, f"≤ {duration_text(low_s)}"), *(tick for tick in ticks if tick[0] >= low_s * 5)]
    return Axis(low_s, high_s, tuple(ticks), log=True)


def share_axis(low: float) -> Axis:
    """Make an axis of shares up to 100 % from a round share under `low`; from 0 if `low` is all."""
    start = next(start for start in SHARE_STEPS if start <= max(low, 0.0)) if low < 1 else 0.0
    step = SHARE_STEPS[start]
    count = round((1.0 - start) / step)
    return Axis(
        start,
        1.0,
        tuple((start + index * step, f"{(start + index * step) * 100:.4g} %") for index in range(count + 1)),
    )


def duration_text(seconds: float) -> str:
    """Write a duration in the unit that suits it: `45 s`, `3.2 h`, `12 d`."""
    if seconds < 1:
        return f"{seconds:.3g} s"
    for unit, length_s in TIME_UNITS:
        # Two days read better as 48 h, and ninety minutes as 90 min, than as fractions.
        if seconds >= length_s * (2 if unit in "dh" and seconds % length_s else 1):
            amount = seconds / length_s
            return f"{amount:.0f} {unit}" if amount >= 10 or amount.is_integer() else f"{amount:.1f} {unit}"
    return f"{seconds:.0f} s"


def significant(value: float | None, digits: int = 4) -> float | int | None:
    """Round to a few significant digits, to keep the page small."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _round_step(step: float) -> float:
    """Return the least of 1, 2, 2.5, 5 and 10 times a power of ten that is no less than `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(round_ * power for round_ in (1.0, 2.0, 2.5, 5.0, 10.0) if round_ * power >= step * (1 - 1e-9))


def _short(value: float, places: int) -> str:
    """Write a tick, with k, M or G for thousands, millions and billions."""
    for suffix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 10 * size or (abs(value) >= size and value % (size / 10) == 0):
            return f"{value / size:g}{suffix}"
    return f"{value:,.{places}f}"
