"""The outcome of jobs simulated phase by phase: iteration times, unmet demand, and what links carried."""

import math
from dataclasses import dataclass

import numpy as np

from cranny.model.arrays import Floats, Ints
from cranny.network.phases.phase_arrays import LOGGED, WAITING, PhaseArrays

MINUTE_S = 60.0


@dataclass(frozen=True, eq=False, slots=True)
class JobOutcome:
    """How long the iterations of one job took that ended. Means of nothing are NaN."""

    times_s: Floats  # (kinds,) of iterations
    counts: Ints  # (kinds,) how many took so long
    elapsed_s: float
    above_gbit: float  # demand above capacity: what the job did not get, summed over time
    adjustments: int

    @property
    def iterations(self) -> int:
        """How many iterations ended."""
        return int(self.counts.sum())

    @property
    def mean_s(self) -> float:
        """Seconds of an iteration, on average."""
        return float(self.times_s @ self.counts) / self.iterations if self.iterations else math.nan

    @property
    def above_gbit_per_iteration(self) -> float:
        """Gigabits demanded above capacity in an iteration: a proxy for packets with ECN marks."""
        return self.above_gbit / self.iterations if self.iterations else math.nan

    @property
    def above_gbps(self) -> float:
        """Gigabits demanded above capacity in a second."""
        return self.above_gbit / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def adjustments_per_min(self) -> float:
        """How often the agent brought the job back to its period."""
        return self.adjustments * MINUTE_S / self.elapsed_s if self.elapsed_s else math.nan

    def quantile_s(self, share: float) -> float:
        """Return the time that so large a share of the iterations did not exceed."""
        if not self.iterations:
            return math.nan
        order = np.argsort(self.times_s, kind="stable")
        below = np.cumsum(self.counts[order])
        return float(self.times_s[order[np.searchsorted(below, share * below[-1] * (1.0 - 1e-12))]])


@dataclass(frozen=True, eq=False, slots=True)
class LinkUse:
    """The demand of a link and what it carried: from each moment to the next both stay the same."""

    at_s: Floats  # (moments,)
    demand_gbps: Floats  # (moments,)
    carried_gbps: Floats  # (moments,)


@dataclass(frozen=True, eq=False, slots=True)
class PhasedRun:
    """The outcomes of all jobs, in the order in which they were given."""

    outcomes: tuple[JobOutcome, ...]
    cycle_s: float | None  # how long a cycle takes, if one was found
    until_s: float
    links: tuple[LinkUse, ...] = ()  # on request


def link_uses(arrays: PhaseArrays) -> tuple[LinkUse, ...]:
    """Return the demand of each link and what it carried, from the log."""
    changes: list[list[tuple[float, float, float]]] = [[(0.0, 0.0, 0.0)] for _ in arrays.links]
    last: dict[int, tuple[int, float]] = {}
    segments, uses = arrays.segments.tolist(), arrays.uses.tolist()
    for at_s, segment, speed in arrays.log[: arrays.at[LOGGED]].tolist():
        job = segments[segment][0] if segment >= 0 else -1 - segment
        for number, share, sign in ((*last.get(job, (WAITING, 0.0)), -1.0), (segment, speed, 1.0)):
            if number >= 0:
                for link, gbps, _ in uses[segments[number][-2] : segments[number][-1]]:
                    changes[link].append((at_s, sign * gbps, sign * gbps * share))
        last[job] = segment, speed
    return tuple(_summed(np.array(each)) for each in changes)


def _summed(changes: Floats) -> LinkUse:
    """Add up changes in order of time; those at one moment are one change."""
    at_s, total = changes[:, 0], np.cumsum(changes[:, 1:], axis=0)
    last = np.append(at_s[1:] > at_s[:-1], np.array([True]))
    return LinkUse(at_s[last], np.maximum(total[last, 0], 0.0), np.maximum(total[last, 1], 0.0))
