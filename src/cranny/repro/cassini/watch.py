"""Replays in which the times of all iterations are written down."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cranny.api import choose
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.sim.diary import Diary, Stretch
from cranny.sim.phases import Phases
from cranny.sim.record import Record
from cranny.sim.replay import Replay, no_collector

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Iterations:
    """The iterations of jobs in a replay, by the stretches of time in which these had the same course."""

    stretches: tuple[Stretch, ...]
    record: Record

    def of(self, job_ids: Iterable[str]) -> "Iterations":
        """Return those of some jobs only."""
        wanted = set(job_ids)
        return Iterations(tuple(each for each in self.stretches if each.job_id in wanted), self.record)

    @property
    def count(self) -> float:
        """How many there are, parts of one included."""
        return sum(each.iterations for each in self.stretches)

    @property
    def mean_s(self) -> float:
        """Seconds of an iteration, on average over all of them."""
        return sum(each.end_s - each.start_s for each in self.stretches) / self.count

    @property
    def over_alone(self) -> float:
        """Times of iterations over those of the same jobs there alone, on average: what sharing costs."""
        return sum((each.end_s - each.start_s) / each.alone_s for each in self.stretches) / self.count

    @property
    def above_gbit(self) -> float:
        """Gigabits offered above capacity in an iteration: the proxy for packets with ECN marks."""
        total = sum(each.course.above_gbit_per_iteration * each.iterations for each in self.stretches)
        return total / self.count

    def quantiles_s(self, shares: Sequence[float]) -> list[float]:
        """Return the times that so large shares of the iterations did not exceed."""
        return self._quantiles(shares, [each.course.times_s for each in self.stretches])

    def quantiles_over_alone(self, shares: Sequence[float]) -> list[float]:
        """Return the same for times over those alone."""
        return self._quantiles(shares, [each.course.times_s / each.alone_s for each in self.stretches])

    def _quantiles(self, shares: Sequence[float], parts: Sequence[Floats]) -> list[float]:
        """Return quantiles of values, each as heavy as the iterations that it stands for."""
        weights = np.concatenate(
            [each.course.counts * (each.iterations / each.course.iterations) for each in self.stretches]
        )
        values = np.concatenate(parts)
        order = np.argsort(values, kind="stable")
        below = np.cumsum(weights[order])
        at = np.searchsorted(below, np.array(shares) * below[-1] * (1.0 - 1e-12))
        found: list[float] = values[order[at]].tolist()
        return found


def watch(
    cluster: Cluster,
    jobs: Iterable[Job],
    policy: str,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    jitter: float = 0.0,
    period_s: float = 0.0,
) -> Iterations:
    """Train jobs under a policy, with links shared in phases, and return their iterations."""
    _, chosen, _ = choose(policy, None, options, seed, isolated)
    diary = Diary()
    rng = np.random.default_rng([seed, 2]) if jitter else None
    replay = Replay(
        cluster, chosen, network=Phases(cluster, jitter=jitter, rng=rng, diary=diary), period_s=period_s
    )
    with no_collector():
        record = replay.run(sorted(jobs, key=lambda job: job.submit_s))
    return Iterations(tuple(diary.stretches), record)
