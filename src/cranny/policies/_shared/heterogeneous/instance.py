"""One decision as an instance: the jobs that take part, the machines, and the `Problem` they make.

A machine has GPUs of one type, so a job's workers are a number for each machine. An epoch of a `Problem` is one
iteration here, of as many batches as the job asked for workers. Durations include exchanges within a machine, so
only exchanges between machines cost more: as in Eq. 6 of HAS/JPS (TPDS 2024), by the slowest uplink of a machine.
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
        cls, jobs: Sequence[Job], cluster: Cluster, estimates: JobEstimates, between_gbps: float | None
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
        for job in jobs:
            batch, iteration_s = job.profile.batch or 1, job.profile.iteration_s
            iterations = estimates.left_s(job) / iteration_s
            left.append(Training(job.id, job.gpus * batch, iterations, job.profile.grad_bytes))
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
