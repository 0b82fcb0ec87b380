"""Policies that divide a heterogeneous cluster anew at each change; they differ only in the method.

HAS/JPS (TPDS 2024), Section V-C: the policy is recomputed at a *reset*, when a job arrives or ends, a machine
fails, is drained or repaired, or an estimate changes. Then:

1. Running jobs that can be resized keep at least their minimum number of workers; running jobs that cannot be
   resized stay as they are. Waiting jobs are admitted in order of submission while all have their minimum; from
   the first that does not, they wait, however small they are.
2. The method divides all workers among them. Moves that do not pay are taken back (`fewer_moves`): what all jobs
   together gain by a move must exceed the restart of the moved job plus `margin` of its remaining time.
3. If no move at all is better still, running jobs stay and new ones divide what is free. If that is too little for
   the new ones, a single running job is displaced, if that costs less than dividing everything anew.

Departure: the paper assumes K >= S, moves jobs at no cost, and has no minimum or maximum number of workers. Its
methods know no priorities or deadlines; has-exact and has-resets, which are ours, count with both.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.queue import BySubmission
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import MAX_GPUS, Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Plan, Start, Stop
from cranny.model.validate import between, not_negative, positive
from cranny.policies._shared.heterogeneous.estimates import JobEstimates
from cranny.policies._shared.heterogeneous.fewer_moves import SAME, MethodTerms, MoveCosts, fewer_moves
from cranny.policies._shared.heterogeneous.instance import Instance, Solve, infeasible, max_gpus, min_gpus, placed
from cranny.policies._shared.heterogeneous.min_max_workers import within
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem, Shares
from cranny.policies._shared.resize import feasible_order

MARGIN = 0.05  # measured, see docs/understand/has-jps.md

# What a decision depends on: running jobs, waiting jobs, machines that are down, GPUs of jobs that the view hides,
# changes of estimates.
ResetKey = tuple[frozenset[str], frozenset[str], frozenset[int], int, int]


def _hidden_gpus(view: Snapshot) -> int:
    """Count the GPUs that jobs hold which a view does not show; a view that is no what-if shows all jobs."""
    if view.point is not None:
        return 0
    up = view.up_machines
    held = sum([machine.gpus for number, machine in enumerate(view.cluster.machines) if up >> number & 1])
    return held - int(view.free.sum()) - sum([each.gpus_on(up) for each in view.running.values()])


def _sum(seconds: Floats) -> float:
    return float(seconds.sum())


class ResetState(NamedTuple):
    """The jobs of a reset, and the GPUs that can be divided among them."""

    costs: MoveCosts  # of running jobs that can be resized, and of waiting ones after them
    running: tuple[Running, ...]
    waiting: tuple[Waiting, ...]
    free: Ints  # (machines,) GPUs that no job holds

    @property
    def new(self) -> list[int]:
        """The jobs of the instance that take part and do not run yet."""
        return [job for job in self.costs.chosen if job >= len(self.running)]


class SharingPolicy(BySubmission, ABC):
    """Divide the cluster among all jobs by the method of a subclass."""

    method = ""  # its name in messages
    counts_restarts = True  # whether the cost of a move counts in decisions

    def __init__(
        self,
        *,
        elastic: float | None = None,
        restart_s: float | None = None,
        margin: float = MARGIN,
        between_gbps: float | None = None,
        probe_error: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Set up.

        `elastic` lets jobs without a minimum and maximum have from one worker to this multiple of what they ask
        for; `restart_s` is the cost of a move for jobs that name none. `between_gbps` is the rate between machines
        that the method assumes. `probe_error` is the largest relative error of first estimates.
        """
        own = self.method
        self._elastic = None if elastic is None else between(elastic, f"{own}: elastic", 1, MAX_GPUS)
        self._restart_s = None if restart_s is None else not_negative(restart_s, f"{own}: restart_s")
        self._margin = not_negative(margin, f"{own}: margin")
        self._between_gbps = None if between_gbps is None else positive(between_gbps, f"{own}: between_gbps")
        self.rng = rng if rng is not None else np.random.default_rng(0)
        self.estimates = JobEstimates(between(probe_error, f"{own}: probe_error", 0, 1, below=True), self.rng)
        self._settled: ResetKey | None = None  # as it was after the last decision

    @abstractmethod
    def solve(self, problem: Problem) -> Shares:
        """Divide workers by the method."""

    def methods(self, jobs: Sequence[Job]) -> Sequence[Solve]:  # noqa: ARG002 - for methods that depend on jobs
        """Return the method, and others: the cheapest of their solutions is taken."""
        return (self.solve,)

    def report(self, job_id: str, gpu_type: str, speed: float) -> None:
        """Update the estimate by a worker's measured speed, relative to the type of the job's duration."""
        self.estimates.report(job_id, gpu_type, speed)

    def plan(self, view: Snapshot) -> Plan:
        """Divide the cluster anew if something has changed."""
        self.estimates.follow(view)
        running, waiting = frozenset(view.running), frozenset(each.job.id for each in view.waiting)
        down = frozenset(at for at in range(len(view.cluster.machines)) if not view.is_up(at))
        hidden = _hidden_gpus(view)
        if (running, waiting, down, hidden, self.estimates.changes) == self._settled:
            return Plan(view.version)
        actions = self._decide(view)
        stopped = {each.job_id for each in actions if isinstance(each, Stop)}
        started = {each.job.id for each in actions if isinstance(each, Start)}
        then = (running - stopped) | started
        self._settled = (then, (running | waiting) - then, down, hidden, self.estimates.changes)
        return Plan(view.version, actions)

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job on free GPUs."""
        job = self.as_elastic(job)
        if infeasible(job, view.cluster) is not None:
            return None
        instance = Instance.of((job,), view.cluster, self.estimates, self._between_gbps, view.now_s)
        if not instance.fits_minimum([0], view.free):
            return None
        return self._placed(view, job, within(instance, self.solve, [0], view.free)[0])

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return that GPUs are short, or that other jobs came first."""
        job = self.as_elastic(job)
        impossible = infeasible(job, view.cluster)
        if impossible is not None:
            return impossible
        first = next((each.job for each in view.waiting if infeasible(each.job, view.cluster) is None), job)
        if first.id != job.id:
            return f"behind job {first.id!r}, which was submitted first"
        return f"needs {min_gpus(job)} GPUs that can run it, beside the minimum of running jobs"

    def as_elastic(self, job: Job) -> Job:
        """Return a job with the minimum, maximum and restart that the options give to jobs that name none."""
        fixed = job.tp * job.pp > 1 or job.least_gpus is not None or job.most_gpus is not None
        if self._elastic is not None and not fixed:
            job = replace(job, least_gpus=1, most_gpus=min(int(job.gpus * self._elastic), MAX_GPUS))
        if self._restart_s is not None and not job.restart_s:
            job = replace(job, restart_s=self._restart_s)
        return job

    def _decide(self, view: Snapshot) -> tuple[Action, ...]:
        """Return the actions of a reset."""
        reset = self._reset_state(view)
        if reset is None or not reset.costs.chosen:
            return ()
        jobs, held = reset.costs.instance.jobs, self._divided(reset)
        moves = {
            each.job.id: self._placed(view, each.submitted, held[job])
            for job, each in enumerate(reset.running)
            if (held[job] != reset.costs.has[job]).any()
        }
        waiting = {job: reset.waiting[job - len(reset.running)] for job in reset.new}
        starts = [
            Start(jobs[job], self._placed(view, jobs[job], held[job]), each.attained_gpu_s)
            for job, each in waiting.items()
        ]
        return feasible_order(view, moves, starts)

    def _reset_state(self, view: Snapshot) -> ResetState | None:
        """Return what can be divided; None if there is nothing, or no job to divide it among.

        All running jobs take part, and waiting ones while all have their minimum.
        """
        free = view.free
        running = view.running.values()
        elastic = tuple(each for each in running if min_gpus(each.submitted) < max_gpus(each.submitted))
        has = np.zeros((len(elastic), len(free)), dtype=np.int64)
        for number, each in enumerate(elastic):
            for machine, gpus in each.placement.counts.items():
                has[number, machine] = gpus
        up = np.array([view.is_up(machine) for machine in range(len(free))])
        divisible = free + up * has.sum(axis=0)
        waiting: list[Waiting] = []
        for entry in view.waiting:
            job = self.as_elastic(entry.job)
            if len(waiting) >= divisible.sum():
                break
            if infeasible(job, view.cluster) is None:
                waiting.append(entry._replace(job=job))
        jobs = [*(each.submitted for each in elastic), *(each.job for each in waiting)]
        if not jobs:
            return None
        instance = Instance.of(jobs, view.cluster, self.estimates, self._between_gbps, view.now_s)
        if not instance.fits_minimum(range(len(elastic)), divisible):
            # Too many machines are drained for the running jobs to move: they stay, and only new ones are placed.
            if not waiting:
                return None
            new = jobs[len(elastic) :]
            instance = Instance.of(new, view.cluster, self.estimates, self._between_gbps, view.now_s)
            elastic, has, divisible = (), has[:0], free
        restart_s, margin_s = np.zeros((2, len(elastic)))  # both 0 if a job has only just started
        for number, each in enumerate(elastic):
            if each.started_s < view.now_s:
                restart_s[number] = each.submitted.restart_s if self.counts_restarts else 0.0
                margin_s[number] = self._margin * instance.time_s(number, has[number])
        chosen = list(range(len(elastic)))
        for number in range(len(elastic), len(instance.jobs)):
            if not instance.fits_minimum([*chosen, number], divisible):
                break
            chosen.append(number)
        terms = self.terms(instance, chosen, divisible, restart_s)
        costs = MoveCosts(instance, chosen, has, restart_s, margin_s, divisible, terms)
        return ResetState(costs, elastic, tuple(waiting), free)

    def terms(self, instance: Instance, chosen: Sequence[int], divisible: Ints, restart_s: Floats) -> MethodTerms:  # noqa: ARG002 - for methods that have terms of their own
        """Return what the method makes of remaining times; by default their sum, without limits or deadlines."""
        without = np.full(len(instance.jobs), np.inf)
        return MethodTerms(_sum, without, without, np.ones(len(instance.jobs)), without)

    def _divided(self, reset: ResetState) -> Ints:
        """Return the workers of each job, (jobs, machines): the cheapest of several solutions."""
        costs, instance = reset.costs, reset.costs.instance
        anew = costs.cheapest(
            [
                fewer_moves(costs, within(instance, solve, costs.chosen, costs.divisible))
                for solve in self.methods(instance.jobs)
            ]
        )
        if not instance.fits_minimum(reset.new, reset.free):
            return costs.cheapest([*self._displacing_one(reset), anew])
        stay = within(instance, self.solve, reset.new, reset.free)
        stay[: len(reset.running)] = costs.has
        return anew if costs.cost_s(anew) < costs.cost_s(stay) * (1 - SAME) else stay

    def _displacing_one(self, reset: ResetState) -> list[Ints]:
        """Return solutions in which one running job divides its workers, and free GPUs, with the new jobs.

        There are none where moves cost nothing: then the method decides.
        """
        costs, found = reset.costs, list[Ints]()
        for job, has in enumerate(costs.has) if costs.restart_s.any() else ():
            divisible = np.minimum(reset.free + has, costs.divisible)
            if costs.instance.fits_minimum([job, *reset.new], divisible):
                held = within(costs.instance, self.solve, [job, *reset.new], divisible)
                others = [other for other in range(len(reset.running)) if other != job]
                held[others] = costs.has[others]
                found.append(held)
        return found

    def _placed(self, view: Snapshot, job: Job, workers: Ints) -> Placement:
        by_type: Counter[str] = Counter()
        for machine in np.flatnonzero(workers).tolist():
            by_type[view.cluster.machines[machine].gpu_type] += int(workers[machine])
        mix = ", ".join(f"{count} {name}".strip() for name, count in by_type.items())
        return placed(view, job, workers, f"share by {self.method}: {mix} of {job.gpus} asked for")
