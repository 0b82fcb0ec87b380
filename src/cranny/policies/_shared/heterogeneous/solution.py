"""Which workers each job gets, on which machines, and what follows from that."""

from dataclasses import dataclass

import numpy as np

from cranny.model.errors import PlacementError
from cranny.policies._shared.heterogeneous.problem import (
    ROUNDING,
    Floats,
    Ints,
    Problem,
    compute_s,
    equal_s,
    fairness,
    network_s,
)


@dataclass(frozen=True, slots=True)
class WorkerBatch:
    """The samples of each epoch that one worker of a job processes."""

    machine: int
    gpu_type: str
    samples: int


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """The workers of each job; checked when made."""

    problem: Problem
    workers: Ints  # (jobs, machines, types)
    equal_split: bool = False  # every worker of a job gets as many samples, whatever its type
    # No shares have a lower (weighted) mean completion time; None where that is unknown or not the objective.
    bound_s: float | None = None
    proved: bool = False  # no shares are better, in what was minimised

    def __post_init__(self) -> None:
        self.workers.setflags(write=False)
        if (self.workers.sum(axis=0) > self.problem.counts).any() or (self.workers < 0).any():
            raise PlacementError("jobs hold more workers than the cluster has")
        held = self.totals
        for number, job in enumerate(self.problem.jobs):
            if not held[number].any():
                raise PlacementError(f"job {job.name!r} has no worker")
            if held[number][self.problem.rates[number] == 0].any():
                raise PlacementError(f"job {job.name!r} has a worker that cannot run it")

    @property
    def totals(self) -> Ints:
        """Return the workers of each job and type, (jobs, types)."""
        found: Ints = self.workers.sum(axis=1)
        return found

    @property
    def jct_s(self) -> Floats:
        """Return the completion time of each job, (jobs,); Eq. 7."""
        return compute_s(self.problem, self.totals, equal=self.equal_split) + network_s(self.problem, self.workers)

    @property
    def mean_jct_s(self) -> float:
        """Return the mean completion time, the paper's objective; Eq. 8."""
        return float(self.jct_s.mean())

    @property
    def weighted_jct_s(self) -> float:
        """Return the mean completion time with the jobs' weights."""
        return float(np.average(self.jct_s, weights=[job.weight for job in self.problem.jobs]))

    @property
    def fairness(self) -> float:
        """Return Jain's index against equal shares; Eq. 33."""
        return fairness(self.jct_s, equal_s(self.problem))

    @property
    def late(self) -> tuple[str, ...]:
        """Return the jobs that miss their deadlines."""
        times = zip(self.problem.jobs, (self.jct_s / (1 + ROUNDING)).tolist(), strict=True)
        return tuple(job.name for job, time_s in times if job.deadline_s is not None and time_s > job.deadline_s)

    @property
    def gap(self) -> float | None:
        """Return by which fraction the mean completion time may be above the lowest; None without a bound."""
        return None if self.bound_s is None else max(self.weighted_jct_s / self.bound_s - 1, 0.0)

    def batches(self, job: int) -> tuple[WorkerBatch, ...]:
        """Return the samples of each worker of a job, whole ones that sum exactly; Eq. 12."""
        machine, kind = np.nonzero(self.workers[job])
        count = self.workers[job, machine, kind]
        machine, kind = np.repeat(machine, count), np.repeat(kind, count)
        rates = np.ones(len(kind)) if self.equal_split else self.problem.rates[job, kind]
        parts = split_samples(self.problem.jobs[job].samples, rates)
        return tuple(
            WorkerBatch(at, self.problem.gpu_types[of], samples)
            for at, of, samples in zip(machine.tolist(), kind.tolist(), parts.tolist(), strict=True)
        )


def split_samples(samples: int, rates: Floats) -> Ints:
    """Give each worker samples in proportion to its rate, whole ones that sum exactly; (workers,).

    Eq. 12 gives fractions. Each worker gets the whole part, and the samples that remain go to those that lost
    most.
    """
    fair = samples * (rates / rates.sum())
    parts: Ints = np.floor(fair).astype(np.int64)
    left = samples - int(parts.sum())
    # Rounding may take away one sample too many, or leave one: the sign of `left` says which.
    order = np.argsort(parts - fair, kind="stable")
    if left < 0:
        parts[order[left:]] -= 1
    else:
        parts[order[:left]] += 1
    return parts


def place_workers(problem: Problem, totals: Ints, where: Ints | None = None) -> Ints:
    """Return the workers of each job on each machine, (jobs, machines, types), from those of each type.

    `where` names the machine of jobs that are on one, -1 for the others; without it, jobs that fit on one machine
    get one if possible, those first that gain most by it. Workers of a type are alike but for their machine.
    """
    from cranny.policies._shared.heterogeneous.completion_kernel import pack_jobs, problem_arrays

    used = np.flatnonzero(problem.counts.any(axis=1))
    if where is None:
        where = np.empty(len(totals), dtype=np.int64)
        pack_jobs(problem_arrays(problem), totals, np.empty((len(used), totals.shape[1]), dtype=np.int64), where)
    workers = np.zeros((len(totals), *problem.counts.shape), dtype=np.int64)
    for job in np.flatnonzero(where >= 0).tolist():
        workers[job, used[where[job]]] = totals[job]
    left = problem.counts - workers.sum(axis=0)
    for job in np.flatnonzero(where < 0).tolist():
        for kind in range(totals.shape[1]):
            before = np.concatenate([[0], np.cumsum(left[:, kind])])
            taken = np.diff(np.minimum(before, totals[job, kind]))
            workers[job, :, kind] = taken
            left[:, kind] -= taken
    return workers
