"""Jobs that share links only while they communicate: iterations are simulated phase by phase.

Every job has a circle on each link it crosses (network/interleave/demand.py). Whenever the group of jobs that
contend for links changes, it is simulated (link_groups.py); until the next change each job runs at the mean of
its iterations there.

A job's iterations count from its start, or if a plan has shifted it, from its shift. Shifted jobs have agents,
which keep those that are compatible to a period, where that makes jobs faster (pacing_period.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cranny.core.accounting import Running
from cranny.core.protocol import Slowdowns
from cranny.model.cluster import Cluster
from cranny.network.interleave.demand import circles
from cranny.network.phases.contention import ContendingJob
from cranny.network.phases.iteration_log import IterationLog
from cranny.network.phases.link_groups import GroupRuns, LinkJob, LinkJobs, alone
from cranny.network.phases.outcome import JobOutcome


class Phases:
    """A network whose links are shared by the jobs that communicate."""

    in_phases = True

    def __init__(
        self,
        cluster: Cluster,
        *,
        jitter: float = 0.0,
        rng: np.random.Generator | None = None,
        iteration_log: IterationLog | None = None,
    ) -> None:
        self._cluster = cluster
        self.iteration_log = iteration_log or IterationLog(keep=False)  # of the outcomes of all jobs
        draw_seed = None if rng is None else lambda: int(rng.integers(2**63))
        self._links = LinkJobs(cluster.uplink_gbps, GroupRuns(jitter=jitter, draw_seed=draw_seed))
        self._reported: dict[str, float] = {}  # slowdowns
        self.outcomes: dict[str, JobOutcome] = {}  # of the jobs that use links, as they are now

    def start(self, running: Running) -> Slowdowns:
        """Add a job to the links that it uses."""
        job, placement = running.job, running.placement
        found = circles(self._cluster, job, placement.machines, placement.server, aggregate=placement.aggregate)
        found = {link: circle for link, circle in found.items() if circle.arcs}
        if not found:
            self.iteration_log.change(job.id, alone(job.profile.iteration_s), job.profile.iteration_s)
            return ((job.id, 1.0),)
        # A shift of 0 stands for none here, although the first job of every graph is shifted by 0. It is not lost:
        # a plan's shifts come after its starts at the same moment, and `shift` takes a 0 for a shift.
        shifted = running.shift_s > 0
        since_s = running.shift_s if shifted else running.started_s
        self._links.add(job.id, LinkJob(found, since_s, shifted, job.profile.iteration_s))
        return self._changed([job.id])

    def end(self, job_id: str) -> Slowdowns:
        """Remove a job from its links."""
        own = self._links.jobs.get(job_id)
        self.iteration_log.end(job_id)
        if own is None:  # it used none
            return ()
        others: dict[str, None] = {}
        for link in own.circles:
            if self._links.contended(link):
                others.update(dict.fromkeys(self._links.on[link]))
                self.iteration_log.contentions.end(link)
        self._links.remove(job_id)
        others.pop(job_id, None)
        del self._reported[job_id], self.outcomes[job_id]
        return self._changed(others)

    def shift(self, running: Sequence[Running]) -> Slowdowns:
        """Let the iterations of jobs start with their shifts, and agents keep them so."""
        changed = []
        for each in running:
            job_id, own = each.job.id, self._links.jobs.get(each.job.id)
            if own is not None and not (own.shifted and own.since_s == each.shift_s):
                self._links.jobs[job_id] = own._replace(since_s=each.shift_s, shifted=True)
                changed.append(job_id)
        return self._changed(changed)

    def note(self, now_s: float) -> None:
        """Write down what has changed, as of now."""
        self.iteration_log.note(now_s)

    def recorded(self) -> Mapping[str, Any]:
        """Return how iterations went and what contention cost."""
        return {
            "iterations": self.iteration_log.iterations.summary(),
            "contentions": self.iteration_log.contentions.costliest(self._cluster),
            "intervals": tuple(self.iteration_log.intervals),
        }

    def _changed(self, job_ids: Iterable[str]) -> Slowdowns:
        """Simulate the groups of some jobs; return the slowdowns that changed."""
        slowdowns = []
        running = self._links.jobs
        for group, links in self._links.groups(job_ids):
            for job_id, outcome in self._links.outcomes(group, links):
                self.outcomes[job_id] = outcome
                self.iteration_log.change(job_id, outcome, running[job_id].iteration_s)
                slowdown = outcome.mean_s / running[job_id].computing_s
                if self._reported.get(job_id) != slowdown:
                    self._reported[job_id] = slowdown
                    slowdowns.append((job_id, slowdown))
            for link in links:
                jobs = [(job_id, running[job_id]) for job_id in self._links.on[link]]
                unmet_gbps = sum([self.outcomes[job_id].above_gbps for job_id, _ in jobs])
                contending = [ContendingJob(job_id, each.circles[link], each.since_s) for job_id, each in jobs]
                self.iteration_log.contentions.begin(link, tuple(contending), unmet_gbps)
        return slowdowns
