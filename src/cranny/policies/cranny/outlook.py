"""What jobs are expected to cost from now on, if no others came: their own GPU-seconds, and those of machines.

Each job runs until its work is done, on links that it shares with the others until these end, and a machine is in
use until the last of its jobs ends. The cost, in GPU-seconds, is

    sum over jobs of GPUs x seconds to its end  +  sum over machines of GPUs x seconds that it is in use

where the seconds of a job may count more than they are. A job that first restarts or waits goes on so much later;
on links it counts from now on.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.flows import NO_SWITCH, Flows
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.network.steady.rates import Rates, stream


class ExpectedRun(NamedTuple):
    """A job on its machines, what is left of its length on one machine, and the seconds before it goes on."""

    running: Running
    left_s: float
    delay_s: float = 0.0

    @property
    def work_s(self) -> float:
        """What is left of it at the speed of its workers, without communication."""
        return self.left_s * self.running.stretch

    @property
    def least_s(self) -> float:
        """Seconds to its end if it had its links to itself."""
        running = self.running
        return self.delay_s + self.work_s * isolated(running.job, running.communication)

    @property
    def uses_links(self) -> bool:
        """Whether its machines communicate."""
        return bool(self.running.communication.link_gbps)


class OutlookChange(NamedTuple):
    """What other machines for some jobs would change: the ends of jobs, and the use of machines."""

    runs: Mapping[str, ExpectedRun]
    end_s: Mapping[str, float]  # of jobs that would end at another time
    until_s: Mapping[int, float]  # of machines that would be in use for another time; 0 if not at all


class Outlook:
    """The expected ends of jobs, in seconds from now, and how long machines are in use."""

    def __init__(
        self, cluster: Cluster, runs: Mapping[str, ExpectedRun], counted_s: Callable[[Job, float], float]
    ) -> None:
        self._counted_s = counted_s  # the seconds to the end of a job, as they count
        self._size = [machine.gpus for machine in cluster.machines]
        self._cluster = cluster
        self._rates = Rates.of(cluster)  # empty but while ends are computed
        self._linked: dict[str, _LinkedRun] = {}
        # Jobs on links are in one component if they share them, or others in between do; until something changes.
        self._component_of: dict[int, int] | None = None  # of each resource
        self._alone_by_components: dict[frozenset[int], _Alone] = {}
        self.link_trials = 0  # how often the ends of jobs that share links were computed
        self.runs: dict[str, ExpectedRun] = {}
        self.end_s: dict[str, float] = {}
        self.until_s: dict[int, float] = {}
        self._on: dict[int, set[str]] = {}  # jobs of each machine
        self.apply(self.change(runs))

    def on(self, machine: int) -> list[str]:
        """Return the jobs of a machine, the last to end first."""
        jobs = self._on.get(machine, ())
        return sorted(jobs, key=lambda job_id: (-self.end_s[job_id], self.runs[job_id].running.job.gpus, job_id))

    def machines_in_use(self) -> list[int]:
        """Return the machines that jobs run on."""
        return sorted(machine for machine, jobs in self._on.items() if jobs)

    def change(self, runs: Mapping[str, ExpectedRun]) -> OutlookChange:
        """Return what would change if some jobs ran elsewhere, or were added."""
        before = [self.runs[job_id] for job_id in runs if job_id in self.runs]
        end_s: dict[str, float] = {}
        if any(each.uses_links for each in (*before, *runs.values())):
            end_s = self._ends_on_links(runs)
        for job_id, each in runs.items():
            end_s.setdefault(job_id, each.delay_s + each.work_s)
        end_s = {job_id: at_s for job_id, at_s in end_s.items() if at_s != self.end_s.get(job_id)}
        return OutlookChange(runs, end_s, self._until(runs, end_s))

    def _until(self, runs: Mapping[str, ExpectedRun], end_s: Mapping[str, float]) -> dict[int, float]:
        """Return how long machines would be in use, of those for which that changes."""
        now_s = {**self.end_s, **end_s}
        arrivals: dict[int, list[str]] = {}
        for job_id, each in runs.items():
            for machine in each.running.held:
                arrivals.setdefault(machine, []).append(job_id)
        machines = set(arrivals)
        for job_id in {*end_s, *runs} & self.runs.keys():
            machines.update(self.runs[job_id].running.held)
        found = {}
        for machine in sorted(machines):
            jobs = [*(job_id for job_id in self._on.get(machine, ()) if job_id not in runs)]
            until_s = max((now_s[job_id] for job_id in jobs + arrivals.get(machine, [])), default=0.0)
            if until_s != self.until_s.get(machine, 0.0):
                found[machine] = until_s
        return found

    def apply(self, change: OutlookChange) -> None:
        """Take a change over."""
        for job_id, each in change.runs.items():
            if job_id in self.runs:
                for machine in self.runs[job_id].running.held:
                    self._on[machine].discard(job_id)
            self._linked.pop(job_id, None)
            self.runs[job_id] = each
            for machine in each.running.held:
                self._on.setdefault(machine, set()).add(job_id)
            if each.uses_links:
                self._linked[job_id] = _LinkedRun.of(each, self._cluster)
        self._component_of = None
        self._alone_by_components.clear()
        self.end_s.update(change.end_s)
        self.until_s.update(change.until_s)

    def saved_by_jobs(self, change: OutlookChange, job_ids: Iterable[str]) -> float:
        """Return how many GPU-seconds some jobs would need less; one that is added needs more."""
        return math.fsum(
            self._job_saves(
                change.runs.get(job_id) or self.runs[job_id], self.end_s.get(job_id, 0.0), change.end_s[job_id]
            )
            for job_id in job_ids
            if job_id in change.end_s
        )

    def _job_saves(self, run: ExpectedRun, before_s: float, after_s: float) -> float:
        """Return how many GPU-seconds it saves, as they count, that a job ends at another time."""
        job = run.running.job
        return job.gpus * (self._counted_s(job, before_s) - self._counted_s(job, after_s))

    def saved_by_machines(self, change: OutlookChange) -> float:
        """Return how many GPU-seconds machines would be in use less."""
        return math.fsum(
            self._size[machine] * (self.until_s.get(machine, 0.0) - until_s)
            for machine, until_s in change.until_s.items()
        )

    def saved(self, change: OutlookChange) -> float:
        """Return how many GPU-seconds a change saves in all; a job that it adds costs some."""
        return self.saved_by_jobs(change, change.end_s) + self.saved_by_machines(change)

    def most_saved(self, runs: Mapping[str, ExpectedRun]) -> float:
        """Return a bound of what could be saved if some jobs ran elsewhere, which takes no time on links.

        As if they and all that use links with them had the links to themselves, on machines in use anyway.
        """
        alone = self._alone(self._concerned(runs, self._as_linked(runs)))
        saved = alone.saved_by_jobs + alone.saved_by_machines
        for job_id, each in runs.items():
            before = self.runs[job_id]
            least_s = alone.least_s.get(job_id, self.end_s[job_id])
            saved += self._job_saves(before, least_s, each.least_s)
        for machine in {machine for job_id in runs for machine in self.runs[job_id].running.held}:
            stay = [each for each in self._on[machine] if each not in runs]
            saved += self._machine_saves(machine, stay, alone.least_s) - alone.saved_by_machine.get(machine, 0.0)
        return saved

    def _alone(self, components: frozenset[int]) -> "_Alone":
        """Return what would be saved if all jobs of some components had their links to themselves."""
        if components not in self._alone_by_components:
            jobs = self._jobs_of(components)
            least_s = {job_id: self.runs[job_id].least_s for job_id in jobs}
            by_jobs = [self._job_saves(self.runs[each], self.end_s[each], at_s) for each, at_s in least_s.items()]
            machines = sorted({machine for job_id in jobs for machine in self.runs[job_id].running.held})
            by_machine = {each: self._machine_saves(each, self._on[each], least_s) for each in machines}
            found = _Alone(least_s, by_machine, math.fsum(by_jobs), math.fsum(by_machine.values()))
            self._alone_by_components[components] = found
        return self._alone_by_components[components]

    def _machine_saves(self, machine: int, stay: Iterable[str], least_s: Mapping[str, float]) -> float:
        """Return how many GPU-seconds a machine is in use less if some jobs stay, of which some end earlier."""
        until_s = max((least_s.get(each, self.end_s[each]) for each in stay), default=0.0)
        return self._size[machine] * max(0.0, self.until_s.get(machine, 0.0) - until_s)

    def _ends_on_links(self, runs: Mapping[str, ExpectedRun]) -> dict[str, float]:
        """Return when jobs end that use links, of those that others at these places concern, through any links.

        They end one after the other, and after each the rest go faster.
        """
        self.link_trials += 1
        tried = self._as_linked(runs)
        there = self._jobs_of(self._concerned(runs, tried))
        jobs = {job_id: self._linked[job_id] for job_id in there if job_id not in runs} | tried
        if not jobs:
            return {}
        ids, linked = list(jobs), list(jobs.values())
        numbers = np.array(
            self._rates.add_all([each.flows for each in linked], [each.most_gbps for each in linked])
        )
        pull = np.array([each.pull_gbps for each in linked])
        left_s = np.array([each.run.work_s for each in linked])
        ends_s, now_s = {}, 0.0
        for _ in ids:
            slowdown = 1.0 + pull / np.where(pull > 0.0, self._rates.rates_gbps(numbers), 1.0)
            ahead_s = left_s * slowdown
            first = int(ahead_s.argmin())
            now_s += float(ahead_s[first])
            left_s -= ahead_s[first] / slowdown
            left_s[first], pull[first] = math.inf, 0.0
            ends_s[ids[first]] = now_s + linked[first].run.delay_s
            self._rates.remove(int(numbers[first]))
        return ends_s

    def _as_linked(self, runs: Mapping[str, ExpectedRun]) -> dict[str, "_LinkedRun"]:
        return {job_id: _LinkedRun.of(each, self._cluster) for job_id, each in runs.items() if each.uses_links}

    def _concerned(self, runs: Mapping[str, ExpectedRun], linked: Mapping[str, "_LinkedRun"]) -> frozenset[int]:
        """Return the components of jobs on links that some jobs concern, before or after these are there."""
        there = [self._linked[job_id] for job_id in runs if job_id in self._linked]
        if self._component_of is None:
            self._component_of = _components(self._linked.values())
        component_of = self._component_of
        return frozenset(
            component_of[resource]
            for each in (*there, *linked.values())
            for resource in each.resources
            if resource in component_of
        )

    def _jobs_of(self, components: frozenset[int]) -> list[str]:
        """Return the jobs on links in some components."""
        component_of = self._component_of
        if component_of is None or not components:
            return []
        return [
            job_id
            for job_id, each in self._linked.items()
            if component_of[next(iter(each.resources))] in components
        ]


class _Alone(NamedTuple):
    """What would be saved if some jobs had their links to themselves."""

    least_s: Mapping[str, float]  # to the end of each
    saved_by_machine: Mapping[int, float]
    saved_by_jobs: float
    saved_by_machines: float


class _LinkedRun(NamedTuple):
    """A job with what it puts on links."""

    run: ExpectedRun
    flows: Flows
    most_gbps: float  # alone on its links
    pull_gbps: float  # at this rate an iteration takes twice as long as without communication
    resources: frozenset[int]

    @classmethod
    def of(cls, run: ExpectedRun, cluster: Cluster) -> "_LinkedRun":
        """Return what a job puts on links where it runs."""
        running = run.running
        flows, gigabits = stream(cluster, running.job, running.placement)
        resources = frozenset(chain(flows.resource.tolist(), flows.root.tolist(), flows.leaf.tolist()))
        alone = running.communication.comm_s
        pull_gbps = gigabits / running.job.profile.iteration_s
        return cls(run, flows, gigabits / alone, pull_gbps, resources - {NO_SWITCH})


def _components(linked: Iterable[_LinkedRun]) -> dict[int, int]:
    """Return the components, as numbers, of the resources that jobs put something on."""
    parent: dict[int, int] = {}

    def root(resource: int) -> int:
        while (above := parent.setdefault(resource, resource)) != resource:
            parent[resource] = resource = parent[above]
        return resource

    for each in linked:
        first, *others = map(root, each.resources)
        for other in others:
            parent[root(other)] = root(first)
    return {resource: root(resource) for resource in parent}
