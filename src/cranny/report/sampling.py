"""Fewer points: what a chart needs of a timeline of many thousand rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cranny.sim.result import Result

FloatArray = NDArray[np.float64]
SLICES = 240
GAP = 4  # slices without arrivals that a line still goes on over, not a fiftieth of the chart
CDF_POINTS = 200


@dataclass(frozen=True, slots=True)
class Slices:
    """A timeline cut into slices of equal length; None where a slice has no arrival."""

    mean: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]


def arrival_span_s(results: Sequence[Result]) -> tuple[float, float]:
    """Return the times of the first and the last arrival of all runs."""
    times = [numbers(result.timeline, "time_s") for result in results]
    every = np.concatenate([*times, np.empty(0)])
    every = every[np.isfinite(every)]
    if every.size == 0:
        return 0.0, 1.0
    low_s, high_s = float(every.min()), float(every.max())
    return (low_s, high_s) if high_s > low_s else (low_s, low_s + 1.0)


def numbers(frame: pl.DataFrame, name: str) -> FloatArray:
    """Return a column as floats, nulls as NaN; empty where the frame lacks it."""
    if name not in frame.columns:
        return np.empty(0)
    return frame[name].cast(pl.Float64).to_numpy().astype(np.float64)


def slices(timeline: pl.DataFrame, name: str, span_s: tuple[float, float], count: int = SLICES) -> Slices:
    """Cut a column into `count` slices of time: the mean of each, its lowest and its highest value."""
    time_s, values = numbers(timeline, "time_s"), numbers(timeline, name)
    if values.size == 0:
        return Slices((None,) * count, (None,) * count, (None,) * count)
    good = np.isfinite(values) & np.isfinite(time_s)
    time_s, values = time_s[good], values[good]
    low_s, high_s = span_s
    place = np.clip(((time_s - low_s) / (high_s - low_s) * count).astype(np.int64), 0, count - 1)  # (rows,)
    rows = np.bincount(place, minlength=count)
    total = np.bincount(place, weights=values, minlength=count)
    lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lowest, place, values)
    np.maximum.at(highest, place, values)
    filled = rows > 0
    means = np.divide(total, rows, out=np.full(count, np.nan), where=filled)
    return Slices(_optional(means, filled), _optional(lowest, filled), _optional(highest, filled))


def settled(timeline: pl.DataFrame) -> pl.DataFrame:
    """Keep of rows of the same moment the last: the others never held, not even for a second."""
    if "time_s" not in timeline.columns:
        return timeline
    time_s = timeline["time_s"]
    if time_s.is_sorted():  # as every replay records it, and much faster than a search for equal times
        return timeline.filter(time_s.ne_missing(time_s.shift(-1)))
    return timeline.unique(subset="time_s", keep="last", maintain_order=True)


def slice_times_s(span_s: tuple[float, float], count: int = SLICES) -> tuple[float, ...]:
    """Return the middle of each slice, in seconds since the first arrival."""
    width_s = (span_s[1] - span_s[0]) / count
    return tuple(width_s * (index + 0.5) for index in range(count))


def cdf(values: FloatArray, count: int = CDF_POINTS) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return a cumulative distribution as values in ascending order and the share of values up to each."""
    values = np.sort(values[np.isfinite(values)])
    if values.size == 0:
        return (), ()
    if values.size <= count:  # each value is a step of its own
        share = np.repeat(np.arange(values.size + 1) / values.size, 2)[1:-1]
        at = np.repeat(values, 2)
    else:
        share = np.linspace(0.0, 1.0, count)
        at = np.quantile(values, share, method="inverted_cdf")
    # Of a run of equal values only its ends matter: they draw one upright line.
    keep = np.ones(at.size, dtype=bool)
    keep[1:-1] = (at[1:-1] != at[:-2]) | (at[1:-1] != at[2:])
    return tuple(at[keep].tolist()), tuple(share[keep].tolist())


def share_up_to(x: Sequence[float], share: Sequence[float], value: float) -> float:
    """Read a distribution: the share of values that are no greater than `value`."""
    return max((up_to for at, up_to in zip(x, share, strict=True) if at <= value), default=0.0)


def finished(result: Result, name: str) -> FloatArray:
    """Return a column of the jobs that ran to their end."""
    return numbers(result.jobs.filter(pl.col("status") == "done"), name)


def _optional(values: FloatArray, filled: NDArray[np.bool_]) -> tuple[float | None, ...]:
    """Turn an array into numbers, with None where it is not filled."""
    return tuple(value if there else None for value, there in zip(values.tolist(), filled.tolist(), strict=True))
