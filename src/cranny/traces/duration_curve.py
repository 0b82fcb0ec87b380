"""Duration curves: quantiles to draw from, and how one overall curve is divided among job sizes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Scores of the tilt below: standard normal, plus a shift of a few units for large jobs.
_SCORES = np.arange(-6.0, 14.0, 0.02)  # (scores,)
_NORMAL = np.array([0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in _SCORES])  # (scores,)
_ROUNDS = 400


@dataclass(frozen=True, eq=False)
class QuantileCurve:
    """A distribution given by points: the share `levels[i]` of all values is at most `values[i]`.

    Between two points the logarithm of the value grows linearly, since durations span seven decades.
    """

    levels: Floats  # (points,), from 0 to 1, never falling
    values: Floats  # (points,), positive, never falling

    @staticmethod
    def of(levels: Sequence[float], values: Sequence[float]) -> "QuantileCurve":
        """Make a curve from plain numbers."""
        return QuantileCurve(np.array(levels, dtype=np.float64), np.array(values, dtype=np.float64))

    def at(self, level: Floats) -> Floats:
        """Return the value below which each share of all values lies."""
        drawn: Floats = np.exp(np.interp(level, self.levels, np.log(self.values)))
        return drawn

    def mean(self) -> float:
        """Return the mean of what `at` draws from uniform levels."""
        low, high = self.values[:-1], self.values[1:]
        ratio = np.log(high / low)
        flat = ratio < 1e-9
        of_segment = np.where(flat, low, (high - low) / np.where(flat, 1.0, ratio))
        return float(np.diff(self.levels) @ of_segment)


def split_by_group(overall: QuantileCurve, weights: Floats, ratios: Floats) -> tuple[QuantileCurve, ...]:
    """Split `overall` into one curve a group, so that the groups' means stand in the given ratios.

    weights: (groups,) share of the jobs in each group; ratios: (groups,) wanted means up to one factor.
    Mixed by their weights the curves give `overall` again, exactly.

    Published curves say how long jobs run and how GPU time falls on sizes, but not how long jobs of one size
    run. We use a normal score: a job of group k scores m_k + z, z standard normal; a job's duration is the
    quantile of `overall` at the rank of its score among all jobs. The shift m_k follows from the wanted mean.
    """
    wanted = ratios * overall.mean() / float(weights @ ratios)
    shift = np.zeros(len(weights))
    for _ in range(_ROUNDS):
        below = _below(shift)
        duration = overall.at(np.clip(weights @ below, 0.0, 1.0))
        middle = np.sqrt(duration[:-1] * duration[1:])
        mean = np.diff(below, axis=1) @ middle
        if np.all(np.abs(mean / wanted - 1.0) < 1e-3):
            break
        shift += 0.3 * np.log(wanted / mean)
        # Only differences of shifts matter; the most common group stays where the table of scores is densest.
        shift = np.clip(shift - shift[np.argmax(weights)], -6.0, 8.0)
    below = _below(shift)
    duration = overall.at(np.clip(weights @ below, 0.0, 1.0))
    return tuple(_trimmed(levels, duration) for levels in below)


def _below(shift: Floats) -> Floats:
    """Return the share of each group that scores below each table entry, (groups, scores)."""
    return np.stack([np.interp(_SCORES - m, _SCORES, _NORMAL, left=0.0, right=1.0) for m in shift])


def _trimmed(levels: Floats, values: Floats) -> QuantileCurve:
    """Cut the parts of a curve that no draw can reach, and close it at 0 and 1."""
    first = int(np.searchsorted(levels, 1e-9, side="right"))
    last = int(np.searchsorted(levels, 1.0 - 1e-9, side="left"))
    kept = levels[first : last + 1].copy()
    kept[0], kept[-1] = 0.0, 1.0
    return QuantileCurve(kept, values[first : last + 1])
