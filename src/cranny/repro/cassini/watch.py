"""Replays in which the times of all iterations are written down."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.network.phases.iteration_log import IterationInterval, IterationLog, IterationStats
from cranny.network.phases.phases_network import Phases
from cranny.run import choose
from cranny.sim.record import Record
from cranny.sim.replay import Replay, no_collector


class Watched(IterationStats):
    """The iterations of a replay, with the intervals of time that they are made of."""

    def __init__(self, intervals: Sequence[IterationInterval], record: Record) -> None:
        super().__init__(intervals)
        self.intervals, self.record = intervals, record

    def of(self, job_ids: Iterable[str]) -> IterationStats:
        """Return those of some jobs only."""
        wanted = set(job_ids)
        return IterationStats(each for each in self.intervals if each.job_id in wanted)


def watch(
    cluster: Cluster,
    jobs: Iterable[Job],
    policy: str,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    jitter: float = 0.0,
    period_s: float = 0.0,
) -> Watched:
    """Train jobs under a policy, with links shared in phases, and return their iterations."""
    _, chosen, _ = choose(policy, None, options, seed, isolated)
    iteration_log = IterationLog()
    rng = np.random.default_rng([seed, 2]) if jitter else None
    replay = Replay(
        cluster,
        chosen,
        network=Phases(cluster, jitter=jitter, rng=rng, iteration_log=iteration_log),
        period_s=period_s,
    )
    with no_collector():
        record = replay.run(sorted(jobs, key=lambda job: job.submit_s))
    return Watched(iteration_log.intervals, record)
