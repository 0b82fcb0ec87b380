"""How long the iterations of jobs took, over time and in sum: CASSINI's measures (NSDI'24, Sec. 5)."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cranny.model.arrays import Floats
from cranny.network.phases.contention import ContentionLog
from cranny.network.phases.outcome import MINUTE_S, JobOutcome

MOST = 1_000_000  # values that are kept as they are; above that, those within a thousandth are one
_WIDTH = math.log1p(1e-3)
PARTS = 4096  # arrays before they are made one


class IterationInterval(NamedTuple):
    """An interval of time in which a job's outcome stayed the same."""

    job_id: str
    start_s: float
    end_s: float
    outcome: JobOutcome
    alone_s: float  # of an iteration there alone

    @property
    def iterations(self) -> float:
        """How many iterations the job did in it, also parts of one."""
        return (self.end_s - self.start_s) / self.outcome.mean_s


class WeightedValues:
    """Values with weights, for quantiles."""

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


class IterationStats:
    """The iterations of jobs in some intervals of time."""

    def __init__(self, intervals: Iterable[IterationInterval] = ()) -> None:
        self.count = 0.0  # of iterations, parts of one included
        self._seconds = self._alone = self._above_gbit = self._adjustments = 0.0
        self._times, self._over = WeightedValues(), WeightedValues()
        for each in intervals:
            self.add(each)

    def add(self, interval: IterationInterval) -> None:
        """Add an interval."""
        outcome, seconds, count = interval.outcome, interval.end_s - interval.start_s, interval.iterations
        self.count += count
        self._seconds += seconds
        self._alone += seconds / interval.alone_s
        self._above_gbit += outcome.above_gbit_per_iteration * count
        self._adjustments += outcome.adjustments * (count / outcome.iterations)
        weights = outcome.counts.astype(np.float64) * (count / outcome.iterations)
        self._times.add(outcome.times_s, weights)
        self._over.add(outcome.times_s / interval.alone_s, weights)

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
        """Gigabits demanded above capacity in an iteration: the proxy for packets with ECN marks."""
        return self._above_gbit / self.count

    @property
    def adjustments_per_min(self) -> float:
        """How often an agent brought its job back to its period, for each minute of a job."""
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


class IterationLog:
    """The outcomes of all jobs over time: a network reports what changed, and its caller when.

    Every interval that ends is added to `iterations`; all of them are there to be read later only with `keep`.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self.intervals: list[IterationInterval] = []
        self.iterations = IterationStats()
        self.contentions = ContentionLog()
        self._keep = keep
        self._open: dict[str, tuple[float, JobOutcome, float]] = {}
        self._changes: dict[str, tuple[JobOutcome, float] | None] = {}

    def change(self, job_id: str, outcome: JobOutcome, alone_s: float) -> None:
        """Let a job have another outcome from the next note on."""
        self._changes[job_id] = outcome, alone_s

    def end(self, job_id: str) -> None:
        """End a job at the next note."""
        self._changes[job_id] = None

    def note(self, now_s: float) -> None:
        """Record what has changed, as of now."""
        for job_id, change in self._changes.items():
            before = self._open.pop(job_id, None)
            if before is not None and now_s > before[0]:
                since_s, outcome, alone_s = before
                ended = IterationInterval(job_id, since_s, now_s, outcome, alone_s)
                self.iterations.add(ended)
                if self._keep:
                    self.intervals.append(ended)
            if change is not None:
                self._open[job_id] = now_s, *change
        self._changes.clear()
        self.contentions.note(now_s)
