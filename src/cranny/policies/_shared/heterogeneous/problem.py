"""Jobs that divide a heterogeneous cluster among them, the workers that each gets, and how long it takes then.

Symbols of HAS/JPS (TPDS 2024): S jobs, K workers, |Pi| samples of a job, T its epochs, D its model's bytes,
rho the samples that a worker of some type processes in a second. Workers of one type on one machine are alike,
so they are counts: `counts[machine, gpu_type]`. Completion times and fairness are Eq. 2-7, 32 and 33.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.model.errors import InputError, PlacementError
from cranny.model.validate import counted, not_negative, positive, whole

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROUNDING = 1e-12  # relative; a job that is later than its deadline by no more than this is on time
MOST_SAMPLES = 10**15
HINT = "None means that it cannot run there"


@dataclass(frozen=True, slots=True)
class Training:
    """What is left to do of one job."""

    name: str
    samples: int  # |Pi|, processed once in each epoch
    epochs: float  # T; what is left of a job that runs already need not be whole
    model_bytes: float = 0.0  # D, what an exchange of gradients moves
    weight: float = 1.0  # how much this job's completion time counts
    deadline_s: float | None = None  # from now
    # Departure: Eq. 6 exchanges gradients once an epoch. Real training does so once an iteration.
    exchanges_per_epoch: float = 1.0

    def __post_init__(self) -> None:
        what = f"job {self.name!r}"
        whole(self.samples, f"{what}: samples", most=MOST_SAMPLES)
        for name in ("epochs", "weight", "exchanges_per_epoch"):
            positive(getattr(self, name), f"{what}: {name}")
        not_negative(self.model_bytes, f"{what}: model_bytes")
        if self.deadline_s is not None:
            positive(self.deadline_s, f"{what}: deadline_s")

    @property
    def work(self) -> float:
        """Return all samples of all epochs."""
        return self.samples * self.epochs


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Jobs among which the workers of a cluster are divided; checked when made."""

    jobs: tuple[Training, ...]
    gpu_types: tuple[str, ...]
    workers: Sequence[Sequence[int]]  # workers[machine][gpu_type]
    throughput: Sequence[Sequence[float | None]]  # samples/s, [job][gpu_type]; None: the job cannot run there
    inside_gbps: float = inf  # r between two workers of a machine
    between_gbps: float = inf  # r between machines
    counts: Ints = field(init=False)  # (machines, types)
    rates: Floats = field(init=False)  # (jobs, types), 0 where a job cannot run
    first: Ints = field(init=False)  # (jobs,) types that give every job one worker, which shows that all can run

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", _frozen(_counts(self.workers, self.gpu_types)))
        object.__setattr__(self, "rates", _frozen(_rates(self.jobs, self.gpu_types, self.throughput)))
        for name in ("inside_gbps", "between_gbps"):
            gbps = getattr(self, name)
            if gbps != inf:
                positive(gbps, name)
        names = [job.name for job in self.jobs]
        if not names:
            raise InputError("there is no job to divide workers among")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"job {twice!r} occurs twice")
        if self.size < len(names):
            jobs, workers = counted(len(names), "job"), counted(self.size, "worker")
            unserved = ", ".join(repr(name) for name in names[self.size :][:5])
            raise InputError(f"{jobs} cannot share {workers}: none is left for {unserved}")
        object.__setattr__(self, "first", _frozen(self._one_each()))

    @property
    def totals(self) -> Ints:
        """Return the workers of each type, (types,)."""
        return np.asarray(self.counts.sum(axis=0))

    @property
    def size(self) -> int:
        """Return K, the number of workers."""
        return int(self.counts.sum())

    def _one_each(self) -> Ints:
        """Give every job one worker of a type that it can use, or name a job for which none is left."""
        left = self.totals
        holds: list[list[int]] = [[] for _ in self.gpu_types]  # jobs that have their worker of a type
        first = np.full(len(self.jobs), -1)

        def find(job: int, seen: set[int]) -> bool:
            for kind in np.flatnonzero(self.rates[job] > 0).tolist():
                if kind in seen:
                    continue
                seen.add(kind)
                if len(holds[kind]) >= left[kind]:
                    mover = next((held for held in holds[kind] if find(held, seen)), None)
                    if mover is None:
                        continue
                    holds[kind].remove(mover)
                holds[kind].append(job)
                first[job] = kind
                return True
            return False

        for job, training in enumerate(self.jobs):
            usable = [name for name, rate in zip(self.gpu_types, self.rates[job], strict=True) if rate > 0]
            if not any(left[self.gpu_types.index(name)] for name in usable):
                has = ", ".join(name for name, count in zip(self.gpu_types, left, strict=True) if count)
                raise InputError(f"no GPU type of the cluster ({has}) can run job {training.name!r}")
            if not find(job, set()):
                raise InputError(f"job {training.name!r} gets no worker: it runs on {', '.join(usable)} only")
        return first


def _frozen(array: Any) -> Any:
    array.setflags(write=False)
    return array


def _counts(workers: Sequence[Sequence[int]], gpu_types: Sequence[str]) -> Ints:
    """Check and return the workers of each machine and type."""
    if len(set(gpu_types)) < len(gpu_types) or not gpu_types:
        raise InputError(f"GPU types must have different names, not {list(gpu_types)}")
    for machine, row in enumerate(workers):
        if len(row) != len(gpu_types):
            raise InputError(
                f"machine {machine}: workers of {len(row)} types, but there are {len(gpu_types)} types"
            )
        for name, count in zip(gpu_types, row, strict=True):
            whole(count, f"machine {machine}: {name}", least=0)
    return np.array([list(row) for row in workers], dtype=np.int64).reshape(len(workers), len(gpu_types))


def _rates(
    jobs: Sequence[Training], gpu_types: Sequence[str], throughput: Sequence[Sequence[float | None]]
) -> Floats:
    """Check and return the throughputs, with 0 where a job cannot run."""
    if len(throughput) < len(jobs):
        raise InputError(f"job {jobs[len(throughput)].name!r} has no throughputs")
    if len(throughput) > len(jobs):
        raise InputError(f"there are throughputs of {len(throughput)} jobs, but {len(jobs)} jobs")
    rates = np.zeros((len(jobs), len(gpu_types)))
    for number, (job, row) in enumerate(zip(jobs, throughput, strict=True)):
        for kind, name in enumerate(gpu_types):
            rate = row[kind] if kind < len(row) else float("nan")
            if rate is None:
                continue
            if isnan(rate):  # neither given nor measured
                raise InputError(f"job {job.name!r} has no throughput on {name}; {HINT}")
            if not isfinite(rate) or rate <= 0:
                raise InputError(f"job {job.name!r}: throughput on {name} must be above 0, not {rate:g}; {HINT}")
            rates[number, kind] = rate
        if not rates[number].any():
            raise InputError(f"no GPU type ({', '.join(gpu_types)}) can run job {job.name!r}")
    return rates


def exchange_s(problem: Problem, *, apart: bool) -> Floats:
    """Return the seconds for which each job would exchange gradients if it had very many workers, (jobs,).

    They are on one machine, or `apart`. Eq. 6 times T, without its factor (K_i - 1) / K_i.
    """
    gbps = min(problem.inside_gbps, problem.between_gbps) if apart else problem.inside_gbps
    bits = np.array(
        [2 * job.epochs * job.exchanges_per_epoch * job.model_bytes * BITS_PER_BYTE for job in problem.jobs]
    )
    return bits / (gbps * GIGA) if gbps != inf else np.zeros_like(bits)


def completion_times(problem: Problem, workers: Ints, *, equal: bool = False) -> Floats:
    """Return the seconds of all epochs of each job by itself, with workers (jobs, machines, types); (jobs,).

    Eq. 11, where samples are split in proportion to throughput, plus `network_s`. With an `equal` split the
    slowest worker decides, Eq. 3.
    """
    work, totals = np.array([job.work for job in problem.jobs]), workers.sum(axis=1)
    rate = (totals * problem.rates).sum(axis=1)
    if equal:
        rate = totals.sum(axis=1) * np.where(totals > 0, problem.rates, inf).min(axis=1)
    return np.asarray(work / rate + network_s(problem, workers))


def network_s(problem: Problem, workers: Ints) -> Floats:
    """Return the seconds for which jobs exchange gradients, with workers (jobs, machines, types); Eq. 5 and 6."""
    count = workers.sum(axis=(1, 2))
    apart = (workers.sum(axis=2) > 0).sum(axis=1) > 1
    exchange = np.where(apart, exchange_s(problem, apart=True), exchange_s(problem, apart=False))
    return np.asarray((count - 1) / count * exchange)


def equal_s(problem: Problem) -> Floats:
    """Return the times that equal shares of every worker would give, (jobs,); the Lambda^[e] of Eq. 32.

    Departure: as printed, Eq. 32 sums over all jobs, and gets faster with more of them. An S-th part of the
    cluster has an S-th part of its throughput, so the compute term is T * S * |Pi| / sum of rho. Such a share
    lies on all machines, so r is the rate between machines where there are several.
    """
    jobs, size = len(problem.jobs), problem.size
    whole = (problem.totals * problem.rates).sum(axis=1)
    apart = bool((problem.counts.sum(axis=1) > 0).sum() > 1)
    work = np.array([job.work for job in problem.jobs])
    return np.asarray(jobs * work / whole + (1 - jobs / size) * exchange_s(problem, apart=apart))


def fairness(times_s: Floats, equal_times_s: Floats) -> float:
    """Return Jain's index of the times against those of equal shares, from 1 / S to 1; Eq. 33."""
    ratio = times_s / equal_times_s
    return float(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum()))


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
        return np.asarray(self.workers.sum(axis=1))

    @property
    def jct_s(self) -> Floats:
        """Return the completion time of each job, (jobs,); Eq. 7."""
        return completion_times(self.problem, self.workers, equal=self.equal_split)

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
