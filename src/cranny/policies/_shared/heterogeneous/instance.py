"""One decision as an instance: the jobs that take part, the machines, and the `Problem` they make.

A machine has GPUs of one type, so a job's workers are a number for each machine. An epoch of a `Problem` is one
iteration here, of as many batches as the job asked for workers. Durations include exchanges within a machine, so
only exchanges between machines cost more: as in Eq. 6 of HAS/JPS (TPDS 2024), by the slowest uplink of a machine.

The paper's jobs all count the same, and have no deadlines. Here a step of priority doubles the weight of a job: of
workers that are alike, P1 gives jobs shares as the square roots of their weights, so two steps double a share.
Below the highest priority `MOST_STEPS` count at most, since no job may be starved by its weight, and priorities of
a log may be any numbers. A deadline that has passed no longer counts: such a job is late anyway.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.candidates import as_trained
from cranny.policies._shared.heterogeneous.estimates import JobEstimates, speed_on
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem, Shares, Training, exchange_s
from cranny.policies._shared.promises import GpuPool

Solve = Callable[[Problem], Shares]
MOST_STEPS = 10  # of priority: a job counts 1,024 times as much as another at most


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Jobs, each of which some type of GPU can run, and machines."""

    jobs: tuple[Job, ...]
    kind: Ints  # (machines,) index of each machine's type
    least: Ints  # (jobs,) workers
    most: Ints  # (jobs,)
    exchange_s: Floats  # (jobs,) of all exchanges between machines, with very many workers
    problem: Problem  # with as many workers of each type as there are jobs; only its jobs and rates count

    @classmethod
    def of(
        cls,
        jobs: Sequence[Job],
        cluster: Cluster,
        estimates: JobEstimates,
        between_gbps: float | None,
        now_s: float,
    ) -> "Instance":
        """Describe jobs as they are now; they are divided by type of GPU, so that partitions cannot be kept."""
        if any(job.partition in cluster.partitions for job in jobs):
            raise InputError("a policy that divides GPUs by type cannot keep jobs in partitions: choose another")
        types = list(cluster.machines_with)
        number = {gpu_type: at for at, gpu_type in enumerate(types)}
        if between_gbps is None:
            between_gbps = min(cluster.uplink_gbps[: len(cluster.machines)])
        left: list[Training] = []
        rates: list[list[float | None]] = []  # samples/s of one worker of each type
        for job, weight in zip(jobs, weights(jobs), strict=True):
            batch, iteration_s = job.profile.batch or 1, job.profile.iteration_s
            iterations = estimates.left_s(job) / iteration_s
            due_s = None if job.deadline_s is None or job.deadline_s <= now_s else job.deadline_s - now_s
            left.append(
                Training(job.id, job.gpus * batch, iterations, job.profile.grad_bytes, weight, deadline_s=due_s)
            )
            speeds = estimates.speeds(job, types)
            rates.append([None if speed is None else speed * (batch / iteration_s) for speed in speeds])
        problem = Problem(tuple(left), tuple(types), [[len(jobs)] * len(types)], rates, inf, between_gbps)
        return cls(
            tuple(jobs),
            np.array([number[machine.gpu_type] for machine in cluster.machines]),
            np.array([min_gpus(job) for job in jobs], dtype=np.int64),
            np.array([max_gpus(job) for job in jobs], dtype=np.int64),
            exchange_s(problem, apart=True),
            problem,
        )

    def subproblem(self, chosen: Sequence[int], free: Ints) -> Problem:
        """Return the problem of dividing free GPUs, (machines,), among some of the jobs.

        GPUs that none of them can use are not counted: methods that use all workers would find no solution.
        """
        useful = (self.problem.rates[list(chosen)].max(axis=0) > 0)[self.kind]
        workers = np.zeros((len(free), len(self.problem.gpu_types)), dtype=np.int64)
        workers[np.arange(len(free)), self.kind] = np.where(useful, free, 0)
        jobs = tuple(self.problem.jobs[job] for job in chosen)
        throughput = [self.problem.throughput[job] for job in chosen]
        return replace(self.problem, jobs=jobs, workers=workers.tolist(), throughput=throughput)

    def seconds(self, held: Ints, jobs: Sequence[int] | None = None) -> Floats:
        """Return the remaining time of jobs, by default all, with workers (jobs, machines); Eq. 7.

        It is infinite for a job without workers.
        """
        chosen = slice(None) if jobs is None else list(jobs)
        work = np.array([job.work for job in self.problem.jobs])[chosen]
        count, rate = held.sum(axis=1), (self.problem.rates[chosen][:, self.kind] * held).sum(axis=1)
        apart = (held > 0).sum(axis=1) > 1
        exchange_s = (1 - 1 / np.maximum(count, 1)) * np.where(apart, self.exchange_s[chosen], 0.0)
        return np.asarray(np.where(rate > 0, work / np.where(rate > 0, rate, 1.0), inf) + exchange_s)

    @property
    def weight(self) -> Floats:
        """How much a second of each job counts, (jobs,); 1 for those of the highest priority."""
        return np.array([job.weight for job in self.problem.jobs])

    @property
    def deadline_s(self) -> Floats:
        """The deadline of each job from now, (jobs,); infinite for a job without one."""
        return np.array([inf if job.deadline_s is None else job.deadline_s for job in self.problem.jobs])

    @property
    def slowest_s(self) -> Floats:
        """The longest that the rest of each job can take, (jobs,)."""
        work = np.array([job.work for job in self.problem.jobs])
        rates = self.problem.rates
        return np.asarray(work / np.where(rates > 0, rates, inf).min(axis=1) + self.exchange_s)

    def time_s(self, job: int, workers: Ints) -> float:
        """Return the remaining time of one job with these workers, (machines,)."""
        return float(self.seconds(workers[None], [job])[0])

    def by_type(self, held: Ints) -> Ints:
        """Return the workers of each type from those on each machine, (jobs, types)."""
        return np.asarray(held @ (self.kind[:, None] == np.arange(len(self.problem.gpu_types))))

    def fits_minimum(self, chosen: Iterable[int], free: Ints) -> bool:
        """Say whether each of some jobs can have its minimum number of workers, of types that it can use."""
        pool = GpuPool([int(free[self.kind == kind].sum()) for kind in range(len(self.problem.gpu_types))])
        for job in chosen:
            types = sum(1 << kind for kind in np.flatnonzero(self.problem.rates[job]).tolist())
            pool.take(types, int(self.least[job]))
        return not pool.short()


def weights(jobs: Iterable[Job]) -> list[float]:
    """Return how much a second of each job counts, by its priority; 1 for those of the highest."""
    priorities = [job.priority for job in jobs]
    highest = max(priorities, default=0.0)
    return [2.0 ** max(priority - highest, -MOST_STEPS) for priority in priorities]


def min_gpus(job: Job) -> int:
    """Return the minimum number of workers of a job."""
    return job.least_gpus or job.gpus


def max_gpus(job: Job) -> int:
    """Return the maximum number of workers of a job."""
    return job.most_gpus or job.gpus


def infeasible(job: Job, cluster: Cluster) -> str | None:
    """Return why a cluster can never run a job; None if it can."""
    able = [machine.gpus for machine in cluster.machines if speed_on(job, machine.gpu_type) is not None]
    there = sum(able)  # those of machines that are down included
    if not there:
        types = ", ".join(filter(None, cluster.machines_with)) or "unnamed"
        return f"no GPU type of the cluster ({types}) can run job {job.id!r}"
    if there < min_gpus(job):
        return f"job {job.id!r} needs {min_gpus(job)} GPUs that can run it, the cluster has {there}"
    return None


def placed(view: Snapshot, job: Job, workers: Ints, note: str) -> Placement:
    """Return a placement with a number of workers on each machine, (machines,)."""
    machines = tuple(np.repeat(np.arange(len(workers)), workers).tolist())
    return view.placement(as_trained(job, len(machines)), machines, note=note)
