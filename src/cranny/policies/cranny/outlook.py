"""What jobs are expected to cost from now on, if no others came: their own GPU-seconds, and those of machines.

Each job runs until its work is done, on links that it shares with the others until these end, and a machine is in
use until the last of its jobs ends. The cost, in GPU-seconds, is

    sum over jobs of GPUs x seconds to its end  +  sum over machines of GPUs x seconds that it is in use

A job that first restarts or waits goes on so much later; on links it counts from now on.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.flows import NO_SWITCH, Flows
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
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

    def __init__(self, cluster: Cluster, runs: Mapping[str, ExpectedRun]) -> None:
        self._size = [machine.gpus for machine in cluster.machines]
        self._cluster = cluster
        self._rates = Rates.of(cluster)  # empty but while ends are computed
        self._linked: dict[str, _LinkedRun] = {}
        self._users: dict[int, set[str]] = {}  # jobs on each resource
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
            if job_id in self._linked:
                for resource in self._linked.pop(job_id).resources:
                    self._users[resource].discard(job_id)
            self.runs[job_id] = each
            for machine in each.running.held:
                self._on.setdefault(machine, set()).add(job_id)
            if each.uses_links:
                self._linked[job_id] = linked = _LinkedRun.of(each, self._cluster)
                for resource in linked.resources:
                    self._users.setdefault(resource, set()).add(job_id)
        self.end_s.update(change.end_s)
        self.until_s.update(change.until_s)

    def saved_by_jobs(self, change: OutlookChange, job_ids: Iterable[str]) -> float:
        """Return how many GPU-seconds some jobs would need less; one that is added needs more."""
        return math.fsum(
            (change.runs[job_id] if job_id in change.runs else self.runs[job_id]).running.job.gpus
            * (self.end_s.get(job_id, 0.0) - change.end_s[job_id])
            for job_id in job_ids
            if job_id in change.end_s
        )

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
        least_s = {job_id: self.runs[job_id].least_s for job_id in self._concerned(runs)}
        end_s = {**least_s, **{job_id: each.least_s for job_id, each in runs.items()}}
        saved = math.fsum(
            self.runs[job_id].running.job.gpus * (self.end_s[job_id] - at_s) for job_id, at_s in end_s.items()
        )
        for machine in {machine for job_id in end_s for machine in self.runs[job_id].running.held}:
            stay = (each for each in self._on[machine] if each not in runs)
            until_s = max((least_s.get(each, self.end_s[each]) for each in stay), default=0.0)
            saved += self._size[machine] * max(0.0, self.until_s.get(machine, 0.0) - until_s)
        return saved

    def _ends_on_links(self, runs: Mapping[str, ExpectedRun]) -> dict[str, float]:
        """Return when jobs end that use links, of those that others at these places concern, through any links.

        They end one after the other, and after each the rest go faster.
        """
        self.link_trials += 1
        jobs = {job_id: self._linked[job_id] for job_id in self._concerned(runs)}
        jobs |= {job_id: _LinkedRun.of(each, self._cluster) for job_id, each in runs.items() if each.uses_links}
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

    def _concerned(self, runs: Mapping[str, ExpectedRun]) -> list[str]:
        """Return the jobs that share links with some, or with such jobs, before or after these are there."""
        found: dict[str, None] = {}
        open_resources: list[int] = []
        for job_id, each in runs.items():
            if each.uses_links:
                open_resources += _LinkedRun.of(each, self._cluster).resources
            if job_id in self._linked:
                open_resources += self._linked[job_id].resources
        seen = set(open_resources)
        while open_resources:
            for job_id in self._users.get(open_resources.pop(), ()):
                if job_id not in found and job_id not in runs:
                    found[job_id] = None
                    new = self._linked[job_id].resources - seen
                    seen |= new
                    open_resources += new
        return list(found)


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
