"""Jobs that share links only while they communicate: iterations are simulated phase by phase.

Every job has a circle on each link it crosses (network/interleave/demand.py). Jobs that contend for some link, and
those that these contend with, are a *group*. Whenever a group changes, it is simulated until its state recurs
(network/phases/phased_run.py); until the next change each job runs at the mean of its iterations there.

A job's iterations count from its start, or if a plan has shifted it, from its shift. Shifted jobs have agents,
which keep them to a period (network/phases/pacing_period.py). Sec. 5.7 of CASSINI (NSDI'24) asks that of
compatible jobs only: if the agents cannot keep the periods, or one is more than 5 % longer than an iteration
alone, they do nothing, and jobs only start with their shifts.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.protocol import Slowdowns
from cranny.model.circle import Arc, Circle
from cranny.model.cluster import Cluster
from cranny.network.interleave.demand import circles
from cranny.network.phases.contention import ContendingJob
from cranny.network.phases.iteration_log import IterationLog
from cranny.network.phases.outcome import JobOutcome
from cranny.network.phases.pacing_period import with_agents
from cranny.network.phases.phased_run import long_run
from cranny.network.phases.segments import PhasedJob

STARTS = 72  # times within an iteration at which jobs without a shift may start: 5 degrees, so that groups recur
CACHED = 4_000_000  # times of iterations, in all groups that were simulated
_ROUNDING = 1e-9


class _LinkJob(NamedTuple):
    """A running job that uses links."""

    circles: Mapping[int, Circle]  # by link
    since_s: float  # when an iteration started, or will: its start, or its shift
    shifted: bool
    computing_s: float  # of an iteration on one machine

    @property
    def iteration_s(self) -> float:
        return next(iter(self.circles.values())).iteration_s


# A group: each job's circles on local links, its start and whether it is shifted; and capacities.
_Part = tuple[tuple[tuple[int, Circle], ...], float, bool]
_Group = tuple[tuple[_Part, ...], tuple[float, ...]]


class Phases:
    """A network whose links are shared by the jobs that communicate."""

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
        self._jitter, self._rng = jitter, rng
        self._jobs: dict[str, _LinkJob] = {}
        self._on: dict[int, dict[str, float]] = {}  # link -> the most that each job asks of it
        self._reported: dict[str, float] = {}  # slowdowns
        self._cache: dict[_Group, tuple[JobOutcome, ...]] = {}
        self._cached_times = 0  # times of iterations in it
        self.outcomes: dict[str, JobOutcome] = {}  # of the jobs that use links, as they are now

    def start(self, running: Running) -> Slowdowns:
        """Add a job to the links that it uses."""
        job, placement = running.job, running.placement
        found = circles(self._cluster, job, placement.machines, placement.server, aggregate=placement.aggregate)
        found = {link: circle for link, circle in found.items() if circle.arcs}
        if not found:
            self.iteration_log.change(job.id, _alone(job.profile.iteration_s), job.profile.iteration_s)
            return ((job.id, 1.0),)
        # A shift of 0 stands for none here, although the first job of every graph is shifted by 0. It is not lost:
        # a plan's shifts come after its starts at the same moment, and `shift` takes a 0 for a shift.
        shifted = running.shift_s > 0
        since_s = running.shift_s if shifted else running.started_s
        self._jobs[job.id] = _LinkJob(found, since_s, shifted, job.profile.iteration_s)
        for link, circle in found.items():
            self._on.setdefault(link, {})[job.id] = circle.peak_gbps
        return self._changed([job.id])

    def end(self, job_id: str) -> Slowdowns:
        """Remove a job from its links."""
        own = self._jobs.pop(job_id, None)
        self.iteration_log.end(job_id)
        if own is None:  # it used none
            return ()
        others: dict[str, None] = {}
        for link in own.circles:
            if self._contended(link):
                others.update(dict.fromkeys(self._on[link]))
                self.iteration_log.contentions.end(link)
            del self._on[link][job_id]
        others.pop(job_id, None)
        del self._reported[job_id], self.outcomes[job_id]
        return self._changed(others)

    def shift(self, running: Running) -> Slowdowns:
        """Let the iterations of a job start with a shift, and an agent keep them so."""
        job_id = running.job.id
        own = self._jobs.get(job_id)
        if own is None or (own.shifted and own.since_s == running.shift_s):
            return ()
        self._jobs[job_id] = own._replace(since_s=running.shift_s, shifted=True)
        return self._changed([job_id])

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

    def _contended(self, link: int) -> bool:
        """Say whether the jobs on a link might demand more than it has."""
        return sum(self._on[link].values()) > self._cluster.uplink_gbps[link] * (1.0 + _ROUNDING)

    def _changed(self, job_ids: Iterable[str]) -> Slowdowns:
        """Simulate the groups of some jobs; return the slowdowns that changed."""
        seen: set[str] = set()
        slowdowns = []
        for first in job_ids:
            if first in seen:
                continue
            group, links = self._group(first)
            seen.update(group)
            for job_id, outcome in self._outcomes(group, links):
                self.outcomes[job_id] = outcome
                self.iteration_log.change(job_id, outcome, self._jobs[job_id].iteration_s)
                slowdown = outcome.mean_s / self._jobs[job_id].computing_s
                if self._reported.get(job_id) != slowdown:
                    self._reported[job_id] = slowdown
                    slowdowns.append((job_id, slowdown))
            for link in links:
                jobs = [(job_id, self._jobs[job_id]) for job_id in self._on[link]]
                unmet_gbps = sum([self.outcomes[job_id].above_gbps for job_id, _ in jobs])
                contending = [ContendingJob(job_id, each.circles[link], each.since_s) for job_id, each in jobs]
                self.iteration_log.contentions.begin(link, tuple(contending), unmet_gbps)
        return slowdowns

    def _group(self, first: str) -> tuple[list[str], set[int]]:
        """Return the jobs that may slow a job, even through others, and the links that they contend for."""
        group, links = {first: None}, set()
        waiting = [first]
        while waiting:
            for link in self._jobs[waiting.pop()].circles:
                if link not in links and self._contended(link):
                    links.add(link)
                    new = [job_id for job_id in self._on[link] if job_id not in group]
                    group.update(dict.fromkeys(new))
                    waiting += new
        return list(group), links

    def _outcomes(self, group: list[str], links: set[int]) -> Iterable[tuple[str, JobOutcome]]:
        """Return the outcomes of a group's jobs, from the cache if such a group was simulated before."""
        if len(group) == 1:
            return [(group[0], _alone(self._jobs[group[0]].iteration_s))]
        order, key = self._reduced(group, links)
        outcomes = self._cache.get(key)
        if outcomes is None:
            parts, link_gbps = key
            phased_jobs = [PhasedJob(dict(on), shift_s) for on, shift_s, _ in parts]
            shifted = [is_shifted for _, _, is_shifted in parts]
            settled = partial(long_run, link_gbps=link_gbps, jitter=self._jitter, rng=self._rng)
            outcomes = with_agents(phased_jobs, shifted, self._jitter, settled).outcomes
            self._cached_times += sum(len(outcome.times_s) for outcome in outcomes)
            if self._cached_times > CACHED:
                self._cache.clear()
                self._cached_times = 0
            self._cache[key] = outcomes
        return zip(order, outcomes, strict=True)

    def _reduced(self, group: list[str], links: set[int]) -> tuple[list[str], _Group]:
        """Return the jobs of a group in an order that depends on nothing but what they are, and what that is."""
        number: dict[int, int] = {}
        used = {
            job_id: [(link, circle) for link, circle in self._jobs[job_id].circles.items() if link in links]
            for job_id in group
        }

        def kind(job_id: str) -> tuple[float, list[tuple[Arc, ...]], float]:
            own = self._jobs[job_id]
            return own.iteration_s, [circle.arcs for _, circle in used[job_id]], own.since_s

        order = sorted(group, key=kind)
        shifts_s = [self._jobs[job_id].since_s for job_id in order if self._jobs[job_id].shifted]
        origin_s = min(shifts_s, default=self._jobs[order[0]].since_s)
        parts = []
        for job_id in order:
            own = self._jobs[job_id]
            on = tuple([(number.setdefault(link, len(number)), circle) for link, circle in used[job_id]])
            start_s = own.since_s - origin_s
            if not own.shifted:
                start_s = round(start_s / own.iteration_s * STARTS) % STARTS * own.iteration_s / STARTS
            parts.append((on, start_s, own.shifted))
        return order, (tuple(parts), tuple([self._cluster.uplink_gbps[link] for link in number]))


def _alone(iteration_s: float) -> JobOutcome:
    """Return the outcome of a job alone."""
    return JobOutcome(np.array([iteration_s]), np.ones(1, np.int64), iteration_s, 0.0, 0)
