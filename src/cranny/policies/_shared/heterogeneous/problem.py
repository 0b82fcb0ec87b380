"""What there is to share: jobs, workers of several GPU types, and how fast each job is on each type.

Symbols of HAS/JPS (TPDS 2024): S jobs, K workers, |Pi| samples of a job, T its epochs, D its model's bytes,
rho the samples that a worker of some type gets through in a second. Workers of one type on one machine are alike,
so they are counts: `counts[machine, gpu_type]`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from cranny.model.errors import InputError
from cranny.model.validate import counted, not_negative, positive, whole

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_SAMPLES = 10**15
HINT = "None says that it cannot run there"


@dataclass(frozen=True, slots=True)
class Training:
    """What is left to do of one job."""

    name: str
    samples: int  # |Pi|, gone through once in each epoch
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
    """Jobs that share a cluster now; checked when made."""

    jobs: tuple[Training, ...]
    gpu_types: tuple[str, ...]
    workers: Sequence[Sequence[int]]  # workers[machine][gpu_type]
    throughput: Sequence[Sequence[float | None]]  # samples/s, [job][gpu_type]; None: the job cannot run there
    inside_gbps: float = inf  # r between two workers of a machine
    between_gbps: float = inf  # r between machines
    counts: Ints = field(init=False)  # (machines, types)
    rates: Floats = field(init=False)  # (jobs, types), 0 where a job cannot run
    first: Ints = field(init=False)  # (jobs,) types that give every job one worker: a proof that all can run

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", _frozen(_counts(self.workers, self.gpu_types)))
        object.__setattr__(self, "rates", _frozen(_rates(self.jobs, self.gpu_types, self.throughput)))
        for name in ("inside_gbps", "between_gbps"):
            gbps = getattr(self, name)
            if gbps != inf:
                positive(gbps, name)
        names = [job.name for job in self.jobs]
        if not names:
            raise InputError("there is no job to share workers among")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"job {twice!r} is there twice")
        if self.size < len(names):
            jobs, workers = counted(len(names), "job"), counted(self.size, "worker")
            unserved = ", ".join(repr(name) for name in names[self.size :][:5])
            raise InputError(f"{jobs} cannot share {workers}: nothing is left for {unserved}")
        object.__setattr__(self, "first", _frozen(self._one_each()))

    @property
    def totals(self) -> Ints:
        """Return the workers of each type, (types,)."""
        found: Ints = self.counts.sum(axis=0)
        return found

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
            if isnan(rate):  # nobody gave or measured it
                raise InputError(f"job {job.name!r} has no throughput on {name}; {HINT}")
            if not isfinite(rate) or rate <= 0:
                raise InputError(f"job {job.name!r}: throughput on {name} must be above 0, not {rate:g}; {HINT}")
            rates[number, kind] = rate
        if not rates[number].any():
            raise InputError(f"no GPU type ({', '.join(gpu_types)}) can run job {job.name!r}")
    return rates
