"""Replays in which the times of all iterations are written down."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.network.phases.iteration_log import Diary
from cranny.network.phases.iteration_stats import Iterations, Stretch
from cranny.network.phases.phases_network import Phases
from cranny.run import choose
from cranny.sim.record import Record
from cranny.sim.replay import Replay, no_collector


class Watched(Iterations):
    """The iterations of a replay, with the stretches of time that they are made of."""

    def __init__(self, stretches: Sequence[Stretch], record: Record) -> None:
        super().__init__(stretches)
        self.stretches, self.record = stretches, record

    def of(self, job_ids: Iterable[str]) -> Iterations:
        """Return those of some jobs only."""
        wanted = set(job_ids)
        return Iterations(each for each in self.stretches if each.job_id in wanted)


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
    diary = Diary()
    rng = np.random.default_rng([seed, 2]) if jitter else None
    replay = Replay(
        cluster, chosen, network=Phases(cluster, jitter=jitter, rng=rng, diary=diary), period_s=period_s
    )
    with no_collector():
        record = replay.run(sorted(jobs, key=lambda job: job.submit_s))
    return Watched(diary.stretches, record)
