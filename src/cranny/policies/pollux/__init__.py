"""Pollux: workers on machines such that all jobs together make the most progress.

A. Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021. The text
of that paper was not at hand; this follows what its authors' open system does (petuum/adaptdl, `policy/pollux.py`,
and the form of it that one of them simulates with; facts, no code), the formulas of the paper as we know them, and
what CASSINI (NSDI 2024, Sec. 5.1) says of it.

Symbols:

    T_grad       the time to compute an iteration, `profile.iteration_s`
    T_sync       the time to communicate: none on one machine, and that of the job alone on several
    gamma        how far the two overlap: an iteration takes (T_grad^gamma + T_sync^gamma)^(1/gamma)
    phi          `noise`: the gradient noise scale, in batches of the job as submitted
    EFFICIENCY   (phi + 1) / (phi + m): the progress of a sample in a batch m times as large; m = max(1, k / gpus)
    GOODPUT      EFFICIENCY over the time of an iteration
    A            the workers of each job on each machine; `genetic_search` looks for the best
    SPEEDUP(A)   GOODPUT over that of one worker
    FITNESS(A)   the sum of speedups; that of a job which is started, moved or resized counts 1 - 0.1 of it

That is `objective="system"`, what its authors' system maximises. `objective="paper"` is what their paper has:

    SPEEDUP(A)   GOODPUT over that with a fair share of the GPUs
    REALLOC      (age - restarts x delta) / (age + delta), delta = `restart_s`: what is left of the speedup of a
                 running job that is moved or resized
    FITNESS(A)   the power mean of speedups with p = -1

Every `interval_s` GPUs are divided anew among all jobs, running or waiting, by a search that starts from what runs
and from the population of the last one. In between, a job that comes gets its least number of workers if one
machine has room for all of them. Jobs are in order of their least number of workers, then of submission. One that
is not elastic has all of its workers or none, and is never stopped: it is pinned.

Departure: a cluster on which nothing runs is divided at once. While nothing happens and ten divisions changed
nothing, each next one waits twice as long.

Departure: T_sync is not fitted to measured times, as alpha + beta (k - 2) for one machine and for several: it is
known here, and none within a machine. Nor is gamma fitted: it is 1, gradients come after computing.

Departure: Pollux tunes batch sizes and learns phi from gradients. Our jobs keep their batch, and phi is a
parameter, of 10 batches. It matters only for jobs that may have more workers than they asked for.

Departure: a job that has a least number of workers hardly ever reaches it by mutation. The authors' system gives
it the first machines, of which all such jobs want the same; here it gets machines in an order that is drawn.

Departure: jobs may want certain types of GPU, and get no others.

Speedups scaled so that a machine's share of the GPUs counts as 1, as in that system, are in the same proportion:
a worker is a GPU. All members of the population with the same numbers of workers and the same fitness are
candidates, and so are exchanges of machines that are alike.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Self

import numpy as np

from cranny.core.snapshot import Snapshot
from cranny.core.traffic import communication
from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.plan import Plan
from cranny.model.validate import not_negative, positive, whole
from cranny.policies._shared.candidates import BaseCluster, JobMachines, as_trained, variations
from cranny.policies._shared.resize import ResizingPolicy, elastic, plans, without_jobs

RESTART = 0.1  # the part of its speedup that a job loses which is started, moved or resized
PATIENCE = 10  # divisions in a row that change nothing while nothing happens, before they become rarer
MOST_KNOWN = 100_000  # goodputs that are remembered
Objective = Literal["system", "paper"]


class Pollux(ResizingPolicy):
    """Divide GPUs among jobs so that the sum of their goodputs, each against that of one worker, is largest."""

    other_reason = "other jobs gain more from the GPUs"

    def __init__(
        self,
        *,
        interval_s: float = 60.0,
        objective: Objective = "system",
        population: int = 100,
        generations: int = 100,
        restart_s: float = 30.0,
        noise: float = 10.0,
        gamma: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        if objective not in ("system", "paper"):
            raise InputError(f"pollux: objective must be 'system' or 'paper', not {objective!r}")
        self.interval_s = positive(interval_s, "pollux: interval_s")
        self.objective = objective
        self.population = whole(population, "pollux: population")
        self.generations = whole(generations, "pollux: generations")
        self.restart_s = not_negative(restart_s, "pollux: restart_s")
        self.noise = not_negative(noise, "pollux: noise")
        self.gamma = positive(gamma, "pollux: gamma")
        self._choose = choose
        self._seed = int((np.random.default_rng(0) if rng is None else rng).integers(2**63))
        self._divided_s = -math.inf
        self._version, self._in_vain = -1, 0  # of the last division, and how many before it changed nothing
        self._last: tuple[list[str], Ints] | None = None  # jobs, and the last population, (states, jobs, machines)
        self._goodputs: dict[tuple[str, int, bool], float] = {}
        self._restarts: dict[str, int] = {}  # of the running jobs

    def next_s(self, view: Snapshot) -> float:
        """Return when GPUs are to be divided anew, if some job waits or can be resized."""
        if not view.waiting and not any(elastic(each.submitted) for each in view.running.values()):
            return math.inf
        wait_s = self.interval_s * 2.0 ** max(0, self._in_vain - PATIENCE)
        return max(self._divided_s + wait_s, math.nextafter(view.now_s, math.inf))

    def candidates(self, view: Snapshot, count: int) -> list[Plan]:
        """Divide GPUs anew if it is time, or start jobs that came since; plans differ in the machines."""
        if view.running and view.now_s < self._divided_s + self.interval_s:
            return self._start_some(view, count)
        found = self._divide(view, count)
        self._in_vain = 0 if found[0].actions or view.version != self._version else self._in_vain + 1
        self._divided_s, self._version = view.now_s, view.version
        return found

    def _start_some(self, view: Snapshot, count: int) -> list[Plan]:
        """Give waiting jobs their least number of workers, if one machine has as many free GPUs."""
        free, found = view.free.tolist(), dict[str, tuple[int, ...]]()
        for each in view.waiting:
            least, suited = each.job.least_gpus or each.job.gpus, view.eligible(each.job)
            for machine, gpus in enumerate(free):
                if gpus >= least and suited >> machine & 1:
                    free[machine] -= least
                    found[each.job.id] = (machine,) * least
                    break
        return self._plans([found], view, view, {}, count)

    def _divide(self, view: Snapshot, count: int) -> list[Plan]:
        """Search for the best allocation, and return plans that bring it about."""
        found = Division.of(view)
        if not found.jobs:
            return [Plan(view.version)]
        states, values = self._search(found, view)
        best, base = states[0], found.base
        had, has = base.sum(axis=1), best.sum(axis=1)
        changed = (best != base).any(axis=1)
        names = [job.id for job in found.jobs]
        stopped = {names[job]: self.other_reason for job in np.flatnonzero(changed & (has == 0))}
        moved = [names[job] for job in np.flatnonzero(changed & (had > 0) & (has > 0))]
        self._restarts = {job_id: times for job_id, times in self._restarts.items() if job_id in view.running}
        self._restarts |= {job_id: self._restarts.get(job_id, 0) + 1 for job_id in moved}
        same = (values == values[0]) & (states.sum(axis=2) == has).all(axis=1)
        placed = np.flatnonzero(changed & (has > 0)).tolist()
        choices = [
            {names[job]: tuple(np.repeat(found.machines, state[job]).tolist()) for job in placed}
            for state in states[same & ((states != base).any(axis=2) == changed).all(axis=1)]
        ]
        return self._plans(choices, view, without_jobs(view, [*moved, *stopped]), stopped, count)

    def _plans(
        self,
        choices: Sequence[JobMachines],
        view: Snapshot,
        base: Snapshot,
        stopped: Mapping[str, str],
        count: int,
    ) -> list[Plan]:
        """Return plans of the first choice, of variations of it, and of the other choices."""
        first, *others = choices
        notes = {
            job_id: f"{len(machines)} workers, of {view.cluster.gpus} GPUs" for job_id, machines in first.items()
        }
        # Whether a job is on one machine or on several is all that Pollux knows of its locality.
        found = variations(first, BaseCluster.of(base), count, lambda _, ranks: len(set(ranks)) > 1, others=others)
        return plans(found, view, base, stopped, notes)

    def _search(self, found: "Division", view: Snapshot) -> tuple[Ints, Floats]:
        """Return states and their values, the best first; of equal ones that is first in which less changes."""
        # Imported here because Numba takes a second.
        from cranny.policies.pollux.genetic_search import AllocationProblem, repair, search

        # Draws follow from the time alone, so that another choice of machines does not change all that comes.
        rng = np.random.default_rng([self._seed, int(view.now_s / self.interval_s)])
        jobs, base = found.jobs, found.base
        least = np.array([job.least_gpus or job.gpus for job in jobs])
        most = np.array([job.most_gpus or job.gpus for job in jobs])
        problem = AllocationProblem(
            base, found.limit, found.capacity, found.occupied, least, most,
            self._speedups(jobs, view), self._kept(jobs, view), self.objective == "paper",
        )  # fmt: skip
        seeds = [base]
        for state in self._last_states(found):
            repair(problem, state, rng)
            seeds.append(state)
        states, values = search(problem, np.array(seeds), self.population, self.generations, rng)
        every = np.zeros((*states.shape[:2], len(view.cluster.machines)), dtype=np.int64)
        every[:, :, found.machines] = states
        self._last = [job.id for job in jobs], every
        return states, values

    def _last_states(self, found: "Division") -> Ints:
        """Return the last population, of the jobs that are there now; new ones have no workers."""
        if self._last is None:
            return np.zeros((0, *found.base.shape), dtype=np.int64)
        names, states = self._last
        rows = {name: number for number, name in enumerate(names)}
        made = np.zeros((len(states), *found.base.shape), dtype=np.int64)
        for number, job in enumerate(found.jobs):
            if job.id in rows:
                made[:, number] = states[:, rows[job.id]][:, found.machines]
        return made

    def _speedups(self, jobs: Sequence[Job], view: Snapshot) -> Floats:
        """Return the speedups of jobs with each number of workers, on one machine and on several."""
        if len(self._goodputs) > MOST_KNOWN:
            self._goodputs.clear()
        cluster, everyone = view.cluster, len(view.running) + len(view.waiting)
        found = np.zeros((len(jobs), 2, 1 + max(job.most_gpus or job.gpus for job in jobs)))
        for number, job in enumerate(jobs):
            least, most = job.least_gpus or job.gpus, job.most_gpus or job.gpus
            alone = 1.0 / (job.gpus * job.profile.iteration_s)  # one worker with the whole batch
            if self.objective == "paper":
                share = min(max(math.ceil(cluster.gpus / everyone), least), most)
                alone = self.goodput(
                    job, share, cluster, several=share > max(each.gpus for each in cluster.machines)
                )
            for workers in range(least, most + 1):
                for several in (False, True):
                    goodput = self.goodput(job, workers, cluster, several=several)
                    found[number, int(several), workers] = goodput / alone
        return found

    def _kept(self, jobs: Sequence[Job], view: Snapshot) -> Floats:
        """Return the part of their speedup that is left to jobs whose allocation changes."""
        if self.objective == "system":
            return np.full(len(jobs), 1.0 - RESTART)
        found = np.ones(len(jobs))
        for number, job in enumerate(jobs):
            if job.id in view.running and self.restart_s:
                age_s = view.now_s - job.submit_s
                lost_s = self._restarts.get(job.id, 0) * self.restart_s
                found[number] = max(age_s - lost_s, 0.0) / (age_s + self.restart_s)
        return found

    def goodput(self, job: Job, workers: int, cluster: Cluster, *, several: bool) -> float:
        """Return the progress of a job with some workers, in batches as submitted a second."""
        key = job.id, workers, several
        known = self._goodputs.get(key)
        if known is None:
            trained = as_trained(job, workers)
            grad_s, sync_s = trained.profile.iteration_s, 0.0
            if several and workers > 1 and len(cluster.machines) > 1:
                sync_s = communication(cluster, trained, spread(workers, cluster)).comm_s
            larger = max(1.0, workers / job.gpus)
            known = efficiency(self.noise, larger) / overlapped(grad_s, sync_s, self.gamma)
            self._goodputs[key] = known
        return known


class Division(NamedTuple):
    """Jobs whose workers can be chosen, in their order, and the machines with GPUs for them."""

    jobs: Sequence[Job]
    machines: Ints  # (machines,) their numbers
    base: Ints  # (jobs, machines) workers as they are now
    limit: Ints  # (jobs, machines) the most workers of a job that a machine could have
    capacity: Ints  # (machines,) GPUs that are free, or that these jobs hold
    occupied: Flags  # (machines,) where a distributed job is that stays

    @classmethod
    def of(cls, view: Snapshot) -> Self:
        """Describe a view: elastic jobs that run, and waiting ones that could; other jobs are pinned."""
        size, running = len(view.cluster.machines), view.running
        counts = {job_id: np.bincount(each.placement.machines, minlength=size) for job_id, each in running.items()}
        free = {
            job_id: workers
            for job_id, workers in counts.items()
            if elastic(running[job_id].submitted) and view.up[workers > 0].all()
        }
        capacity = view.free + sum(free.values(), np.zeros(size, dtype=np.int64))
        occupied = np.zeros(size, dtype=np.bool_)
        for job_id, workers in counts.items():
            if job_id not in free and np.count_nonzero(workers) > 1:
                occupied |= workers > 0
        able = (job for job, _ in view.waiting if view.usable(job, capacity).sum() >= (job.least_gpus or job.gpus))
        jobs = [*(running[job_id].submitted for job_id in free), *able]
        jobs.sort(key=lambda job: (job.least_gpus or job.gpus, job.submit_s))
        base = np.array([free.get(job.id, np.zeros(size, dtype=np.int64)) for job in jobs]).reshape(-1, size)
        limit = np.array([view.usable(job, capacity) for job in jobs]).reshape(-1, size)
        machines = np.flatnonzero(capacity)
        # `take` keeps rows together; [:, machines] would not, and compiled code is made for one of the two.
        base, limit = base.take(machines, axis=1), limit.take(machines, axis=1)
        return cls(jobs, machines, base, limit, capacity[machines], occupied[machines])


def efficiency(noise: float, larger: float) -> float:
    """Return the progress of a sample in a batch so many times as large as submitted."""
    return (noise + 1.0) / (noise + larger)


def overlapped(grad_s: float, sync_s: float, gamma: float) -> float:
    """Return how long an iteration takes: both times together (gamma 1), or nearly the longer one (10)."""
    longer = max(grad_s, sync_s)
    return float(longer * ((grad_s / longer) ** gamma + (sync_s / longer) ** gamma) ** (1.0 / gamma))


def spread(workers: int, cluster: Cluster) -> tuple[int, ...]:
    """Return the fewest machines, but two of them at least, for so many workers on the empty cluster."""
    found = choose(workers, [min(machine.gpus, workers - 1) for machine in cluster.machines], cluster)
    return (0,) * workers if found is None else found


def choose(gpus: int, free: Sequence[int], cluster: Cluster) -> tuple[int, ...] | None:  # noqa: ARG001 - a `ChooseMachines`
    """Return the tightest machine that holds so many workers, else those with the most free GPUs."""
    if sum(free) < gpus:
        return None
    holding = [machine for machine in range(len(free)) if free[machine] >= gpus]
    if holding:
        return (min(holding, key=lambda machine: free[machine]),) * gpus
    found: list[int] = []
    for machine in sorted(range(len(free)), key=lambda machine: -free[machine]):
        found += [machine] * min(free[machine], gpus - len(found))
    return tuple(found)
