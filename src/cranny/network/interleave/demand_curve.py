"""What jobs ask of a link over time, exactly: no angles, only the moments at which the sum changes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cranny.model.circle import Circle
from cranny.network.interleave.unified_circle import Floats, Unified

# Moments closer than this share of the perimeter are one; rounding pulls them apart.
_CLOSE = 1e-9


class Curve(NamedTuple):
    """A demand that goes round a perimeter: from each moment to the next it stays the same."""

    at_s: Floats  # (pieces,) rising, the first is 0
    gbps: Floats  # (pieces,)
    perimeter_s: float

    @property
    def lengths_s(self) -> Floats:
        """How long each piece lasts, (pieces,)."""
        return np.diff(self.at_s, append=self.perimeter_s)

    def excess(self, capacity_gbps: float) -> float:
        """Return the mean Gbps above a capacity (Eq. 1)."""
        above = np.maximum(self.gbps - capacity_gbps, 0.0)
        return float(above @ self.lengths_s) / self.perimeter_s

    def score(self, capacity_gbps: float) -> float:
        """Return 1 less the mean demand above a capacity, in capacities (Eq. 2)."""
        return 1.0 - self.excess(capacity_gbps) / capacity_gbps


def curve(circles: Sequence[Circle], shifts_s: Sequence[float], unified: Unified) -> Curve:
    """Return the sum of the jobs' demands on their unified circle, each job delayed by its shift."""
    whole = unified.perimeter_s
    at_s: list[Floats] = [np.zeros(1)]
    change: list[Floats] = [np.zeros(1)]
    for circle, shift_s, turns in zip(circles, shifts_s, unified.turns, strict=True):
        once = circle.rotated(shift_s).stretched(whole / turns)
        rounds = np.arange(turns, dtype=np.float64) * once.iteration_s
        for start, end, gbps in once.arcs:
            at_s += [rounds + start, rounds + end]
            change += [np.full(turns, gbps), np.full(turns, -gbps)]
    return _merged(np.concatenate(at_s), np.concatenate(change), whole)


def _merged(at_s: Floats, change: Floats, whole: float) -> Curve:
    """Add up changes in order of time; those at one moment are one change."""
    order = np.argsort(at_s, kind="stable")
    at_s, total = at_s[order], np.cumsum(change[order])
    last = np.append(np.diff(at_s) > _CLOSE * whole, np.array([True]))  # of those at one moment
    at_s, total = at_s[last], total[last]
    inside = at_s < whole * (1.0 - _CLOSE)
    at_s, total = at_s[inside], total[inside]
    changed = np.append(np.array([True]), np.abs(np.diff(total)) > _CLOSE)
    at_s = at_s[changed]
    at_s[0] = 0.0
    return Curve(at_s, np.maximum(total[changed], 0.0), whole)
