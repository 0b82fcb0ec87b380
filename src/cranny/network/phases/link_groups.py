"""Groups of jobs that contend for links, and how their iterations go.

Jobs that contend for some link, and those that these contend with, are a *group*. A group is simulated until its
state recurs (phased_run.py), with agents for the jobs that are shifted (pacing_period.py); groups that come again
are remembered. Jobs of a group whose iterations differ by more than 2,000 times count as alone: all phases of the
shortest come round so often in one iteration of the longest that no shift would matter.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cranny.model.circle import Arc, Circle
from cranny.network.phases.outcome import JobOutcome, PhasedRun
from cranny.network.phases.pacing_period import with_agents
from cranny.network.phases.phased_run import long_run
from cranny.network.phases.segments import PhasedJob

STARTS = 72  # times within an iteration at which jobs without a shift may start: 5 degrees, so that groups recur
FAR = 2_000  # times by which iterations of a group may differ; a group of others would take long to simulate
CACHED = 4_000_000  # times of iterations, in all groups that were simulated
_ROUNDING = 1e-9


class LinkJob(NamedTuple):
    """A running job that uses links."""

    circles: Mapping[int, Circle]  # by link
    since_s: float  # when an iteration started, or will: its start, or its shift
    shifted: bool
    computing_s: float  # of an iteration on one machine

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration alone."""
        return next(iter(self.circles.values())).iteration_s

    def start_s(self, origin_s: float) -> float:
        """Return when its iterations start, seen from some time: that of its shift, or one of a few."""
        start_s = self.since_s - origin_s
        if self.shifted:
            return start_s
        return round(start_s / self.iteration_s * STARTS) % STARTS * self.iteration_s / STARTS


class KeptSlots(NamedTuple):
    """When the iterations of a job start that has an agent: at `shift_s + k * period_s`."""

    period_s: float
    shift_s: float


class GroupOutcome(NamedTuple):
    """How the iterations of a group's jobs go, and what their agents keep; None where a job runs freely."""

    outcomes: tuple[JobOutcome, ...]
    slots: tuple[KeptSlots | None, ...]


# A group: each job's circles on local links, its start and whether it is shifted; and capacities.
_Part = tuple[tuple[tuple[int, Circle], ...], float, bool]
_Group = tuple[tuple[_Part, ...], tuple[float, ...]]


class GroupRuns:
    """Simulates groups, and remembers them; `draw_seed` gives each group the seed of its jitter."""

    def __init__(self, *, jitter: float = 0.0, draw_seed: Callable[[], int] | None = None) -> None:
        self._jitter, self._draw_seed = jitter, draw_seed
        self._cache: dict[_Group, GroupOutcome] = {}
        self._cached_times = 0  # times of iterations in it

    def outcome(self, group: _Group) -> GroupOutcome:
        """Return how a group's jobs go."""
        found = self._cache.get(group)
        if found is None:
            phased_jobs = [PhasedJob(dict(on), shift_s) for on, shift_s, _ in group[0]]
            times_s = [each.iteration_s for each in phased_jobs]
            if max(times_s) > FAR * min(times_s):
                found = GroupOutcome(tuple(map(alone, times_s)), (None,) * len(times_s))
            else:
                found = self._simulated(group, phased_jobs)
            self._cached_times += sum(len(outcome.times_s) for outcome in found.outcomes)
            if self._cached_times > CACHED:
                self._cache.clear()
                self._cached_times = 0
            self._cache[group] = found
        return found

    def _simulated(self, group: _Group, phased_jobs: Sequence[PhasedJob]) -> GroupOutcome:
        """Simulate the jobs of a group."""
        parts, link_gbps = group
        shifted = [is_shifted for _, _, is_shifted in parts]
        # The same draws for every try, so that luck does not choose among them.
        seed = None if self._draw_seed is None else self._draw_seed()

        def settled(jobs: Sequence[PhasedJob]) -> PhasedRun:
            rng = None if seed is None else np.random.default_rng(seed)
            return long_run(jobs, link_gbps=link_gbps, jitter=self._jitter, rng=rng)

        paced = with_agents(phased_jobs, shifted, link_gbps, self._jitter, settled)
        slots = [KeptSlots(each.period_s, each.shift_s) if each.period_s else None for each in paced.jobs]
        return GroupOutcome(paced.run.outcomes, tuple(slots))


class LinkJobs:
    """Running jobs that use links, and the groups that they form."""

    def __init__(self, link_gbps: Sequence[float], runs: GroupRuns) -> None:
        self.jobs: dict[str, LinkJob] = {}
        self.on: dict[int, dict[str, float]] = {}  # link -> the most that each job asks of it
        self._link_gbps, self._runs = link_gbps, runs

    def add(self, job_id: str, job: LinkJob) -> None:
        """Add a job to the links that it uses."""
        self.jobs[job_id] = job
        for link, circle in job.circles.items():
            self.on.setdefault(link, {})[job_id] = circle.peak_gbps

    def remove(self, job_id: str) -> None:
        """Remove a job from its links."""
        for link in self.jobs.pop(job_id).circles:
            del self.on[link][job_id]

    def contended(self, link: int) -> bool:
        """Say whether the jobs on a link might demand more than it has."""
        return sum(self.on[link].values()) > self._link_gbps[link] * (1.0 + _ROUNDING)

    def groups(self, job_ids: Iterable[str]) -> Iterator[tuple[list[str], set[int]]]:
        """Yield the groups of some jobs: the jobs of each, and the links that they contend for."""
        seen: set[str] = set()
        for first in job_ids:
            if first not in seen:
                group, links = self._group(first)
                seen.update(group)
                yield group, links

    def _group(self, first: str) -> tuple[list[str], set[int]]:
        """Return the jobs that may slow a job, even through others, and the links that they contend for."""
        group, links = {first: None}, set()
        waiting = [first]
        while waiting:
            for link in self.jobs[waiting.pop()].circles:
                if link not in links and self.contended(link):
                    links.add(link)
                    new = [job_id for job_id in self.on[link] if job_id not in group]
                    group.update(dict.fromkeys(new))
                    waiting += new
        return list(group), links

    def mean_times_s(self) -> dict[str, float]:
        """Return how long iterations of every job take on average."""
        groups = self.groups(self.jobs)
        return {
            job_id: outcome.mean_s for group, links in groups for job_id, outcome in self.outcomes(group, links)
        }

    def outcomes(self, group: list[str], links: set[int]) -> Iterable[tuple[str, JobOutcome]]:
        """Return the outcomes of a group's jobs."""
        if len(group) == 1:
            return [(group[0], alone(self.jobs[group[0]].iteration_s))]
        order, key = self._reduced(group, links)
        return zip(order, self._runs.outcome(key).outcomes, strict=True)

    def slots(self, most: int) -> dict[str, KeptSlots]:
        """Return what the agents of jobs keep; not of jobs that run freely.

        So are jobs of groups with more than so many, which would take long to simulate.
        """
        found: dict[str, KeptSlots] = {}
        for group, links in self.groups(self.jobs):
            if 1 < len(group) <= most and any(self.jobs[job_id].shifted for job_id in group):
                order, key = self._reduced(group, links)
                both = zip(order, self._runs.outcome(key).slots, strict=True)
                found |= {job_id: slots for job_id, slots in both if slots is not None}
        return found

    def starts_s(self, job_id: str) -> dict[str, float]:
        """Return when each job starts where the group of a job is simulated."""
        order, (parts, _) = self._reduced(*self._group(job_id))
        return {job_id: start_s for job_id, (_, start_s, _) in zip(order, parts, strict=True)}

    def _reduced(self, group: list[str], links: set[int]) -> tuple[list[str], _Group]:
        """Return the jobs of a group in an order that depends on nothing but what they are, and what that is."""
        used = {
            job_id: [(link, circle) for link, circle in self.jobs[job_id].circles.items() if link in links]
            for job_id in group
        }

        def kind(job_id: str, start_s: float) -> tuple[float, list[tuple[Arc, ...]], float]:
            return self.jobs[job_id].iteration_s, [circle.arcs for _, circle in used[job_id]], start_s

        shifts_s = [self.jobs[job_id].since_s for job_id in group if self.jobs[job_id].shifted]
        first = min(group, key=lambda job_id: kind(job_id, self.jobs[job_id].since_s))
        origin_s = min(shifts_s, default=self.jobs[first].since_s)
        starts_s = {job_id: self.jobs[job_id].start_s(origin_s) for job_id in group}
        order = sorted(group, key=lambda job_id: kind(job_id, starts_s[job_id]))
        number: dict[int, int] = {}
        parts = []
        for job_id in order:
            on = tuple([(number.setdefault(link, len(number)), circle) for link, circle in used[job_id]])
            parts.append((on, starts_s[job_id], self.jobs[job_id].shifted))
        return order, (tuple(parts), tuple([self._link_gbps[link] for link in number]))


def alone(iteration_s: float) -> JobOutcome:
    """Return the outcome of a job alone."""
    return JobOutcome(np.array([iteration_s]), np.ones(1, np.int64), iteration_s, 0.0, 0)
