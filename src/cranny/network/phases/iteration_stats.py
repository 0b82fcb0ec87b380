"""How long the iterations of jobs took, added up over stretches of time: CASSINI's measures (NSDI'24, Sec. 5)."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.flows import Floats
from cranny.network.phases.outcome import MINUTE_S, Course

MOST = 1_000_000  # values that are kept as they are; above that, those within a thousandth are one
_WIDTH = math.log1p(1e-3)
PARTS = 4096  # arrays before they are made one


class Stretch(NamedTuple):
    """A stretch of time in which a job had the same course."""

    job_id: str
    start_s: float
    end_s: float
    course: Course
    alone_s: float  # of an iteration there with nobody in the way

    @property
    def iterations(self) -> float:
        """How many iterations the job did in it, also parts of one."""
        return (self.end_s - self.start_s) / self.course.mean_s


class Spread:
    """Values with weights."""

    def __init__(self) -> None:
        self._parts: list[tuple[Floats, Floats]] = []

    def add(self, values: Floats, weights: Floats) -> None:
        """Add some values above 0; where there are very many, those that are close are taken together."""
        self._parts.append((values, weights))
        if len(self._parts) == PARTS:
            self._parts = [self._gathered()]

    def _gathered(self) -> tuple[Floats, Floats]:
        values, weights = map(np.concatenate, zip(*self._parts, strict=True))
        if len(values) <= MOST:
            return values, weights
        _, place = np.unique(np.floor(np.log(values) / _WIDTH), return_inverse=True)
        total = np.bincount(place, weights).astype(np.float64)
        return np.bincount(place, weights * values) / total, total

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return the values that so large shares of the weight do not exceed."""
        values, weights = self._gathered()
        order = np.argsort(values, kind="stable")
        below = np.cumsum(weights[order])
        at = np.searchsorted(below, np.array(shares) * below[-1] * (1.0 - 1e-12))
        found: list[float] = values[order[at]].tolist()
        return found


class Iterations:
    """The iterations of jobs in some stretches of time."""

    def __init__(self, stretches: Iterable[Stretch] = ()) -> None:
        self.count = 0.0  # of iterations, parts of one included
        self._seconds = self._alone = self._above_gbit = self._adjustments = 0.0
        self._times, self._over = Spread(), Spread()
        for each in stretches:
            self.add(each)

    def add(self, stretch: Stretch) -> None:
        """Add a stretch."""
        course, seconds, count = stretch.course, stretch.end_s - stretch.start_s, stretch.iterations
        self.count += count
        self._seconds += seconds
        self._alone += seconds / stretch.alone_s
        self._above_gbit += course.above_gbit_per_iteration * count
        self._adjustments += course.adjustments * (count / course.iterations)
        weights = course.counts.astype(np.float64) * (count / course.iterations)
        self._times.add(course.times_s, weights)
        self._over.add(course.times_s / stretch.alone_s, weights)

    @property
    def mean_s(self) -> float:
        """Seconds of an iteration, on average over all of them."""
        return self._seconds / self.count

    @property
    def over_alone(self) -> float:
        """Times of iterations over those of the same jobs there alone, on average: what sharing costs."""
        return self._alone / self.count

    @property
    def above_gbit(self) -> float:
        """Gigabits offered above capacity in an iteration: the proxy for packets with ECN marks."""
        return self._above_gbit / self.count

    @property
    def adjustments_per_min(self) -> float:
        """How often an agent brought its job back to the beat, for each minute of a job."""
        return self._adjustments * MINUTE_S / self._seconds

    def quantiles_s(self, shares: Sequence[float]) -> list[float]:
        """Return the times that so large shares of the iterations did not exceed."""
        return self._times.quantiles(shares)

    def quantiles_over_alone(self, shares: Sequence[float]) -> list[float]:
        """Return the same for times over those alone."""
        return self._over.quantiles(shares)

    def summary(self) -> dict[str, float]:
        """Return what a summary says of them; nothing of none."""
        if not self.count:
            return {}
        return {
            "mean_iteration_s": self.mean_s,
            "p99_iteration_s": self.quantiles_s([0.99])[0],
            "mean_above_gbit": self.above_gbit,
            "adjustments_per_min": self.adjustments_per_min,
        }
