"""Links that jobs share: how fast each running job is, and what one job more does to all of them."""

from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.protocol import SharedSlowdowns, Slowdowns
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.network.steady.shared_links import SharedLinks
from cranny.policies.cranny.tail import Tail

NAMED = 3  # jobs that lose most by another one


class Effect(NamedTuple):
    """What a job would do on certain machines."""

    slowdown: float  # its own: how many times longer it runs than on one machine
    others_gpu_s: float = 0.0  # that running jobs would need more, as long as it runs beside them
    slowed: tuple[tuple[str, float], ...] = ()  # those that lose most, and how many times longer they run


class LinkEffects:
    """Running jobs on their links, kept up to date as they start and end."""

    def __init__(self, cluster: Cluster, tail: Tail) -> None:
        self._links = SharedLinks(cluster)
        self._tail = tail
        # By the jobs' numbers among the links: slowdown, GPUs, expected end, submission.
        self._jobs = np.zeros((4, 0))

    def start(self, running: Running, end_s: float) -> None:
        """Add a job that is expected to end at a certain time."""
        if running.communication.link_gbps:
            self._note(self._links.start(running))
            number = self._links.number(running.job.id)
            if number is not None:
                self._jobs[1:, number] = running.job.gpus, end_s, running.submitted.submit_s

    def end(self, job_id: str) -> None:
        """Remove a job, if it is here."""
        if self._links.number(job_id) is not None:
            self._note(self._links.end(job_id))

    def _note(self, changed: Slowdowns) -> None:
        """Keep the slowdowns of jobs that have changed."""
        if isinstance(changed, SharedSlowdowns) and len(changed.numbers):
            short = int(changed.numbers.max()) + 1 - self._jobs.shape[1]
            if short > 0:
                self._jobs = np.concatenate([self._jobs, np.zeros((4, short + self._jobs.shape[1]))], axis=1)
            self._jobs[0, changed.numbers] = changed.slowdown

    def effect(self, running: Running, seconds: float) -> Effect:
        """Return what a job would do that starts now and runs for so long on one machine; nothing changes."""
        if not self._links.in_use:  # nothing to share, and nothing to compile for a first job
            return alone(running)
        if not running.communication.link_gbps:
            return Effect(1.0)
        own, changed = self._links.attempt(running)
        numbers, slowdown = changed.numbers, changed.slowdown
        if not len(numbers):
            return Effect(own)
        before, gpus, end_s, submit_s = self._jobs[:, numbers]
        together_s = np.minimum(np.maximum(end_s - running.started_s, 0.0), seconds * own)
        longer = slowdown / before
        lost = gpus * self._tail.all_counted_s(gpus, end_s - submit_s, together_s * (longer - 1.0))
        most = np.argsort(-lost, kind="stable")[:NAMED]
        return Effect(
            own, float(lost.sum()), tuple([(changed.ids[int(numbers[i])], float(longer[i])) for i in most])
        )


def alone(running: Running) -> Effect:
    """Return what a job would do if no links were shared."""
    return Effect(isolated(running.job, running.communication))
