"""Sets of workers that a job can have on GPUs of several types, how long it takes with them, and what they cost.

On some workers a job costs, for as long as it takes with them, the GPUs that it holds, each at the price of its
type (`gpu_prices`), and the GPUs that it asks for, since it is not done. So slow GPUs that save a job little are
not worth having, nor is a second machine if communication eats up the gain.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import ALL, Snapshot
from cranny.core.traffic import communication
from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.job import Job
from cranny.policies._shared.heterogeneous.estimates import JobEstimates
from cranny.policies._shared.heterogeneous.instance import max_gpus, min_gpus
from cranny.policies._shared.resize import all_jobs
from cranny.policies.cranny.gpu_prices import GpuPrices, MachineTypes
from cranny.policies.cranny.restarts import ROUNDING

EVERY = 8  # machines up to which each number is tried, and beyond it only twice as many each time


class WorkerSet(NamedTuple):
    """Workers that a job could have."""

    workers: Ints  # (machines,)
    cost: float  # in GPU-seconds, for each second that the job has left


class JobsSeen:
    """What is learned of jobs that can be resized: how far they are, their speeds, and what GPUs are worth."""

    def __init__(self) -> None:
        self._estimates = JobEstimates()
        self._prices = GpuPrices()
        self._there: set[str] = set()  # jobs that prices were learned from, by their ids
        self._machines: MachineTypes | None = None

    def follow(self, view: Snapshot) -> "WorkerSets":
        """Take over how far jobs are, and learn prices from new ones; return the sets that are tried now."""
        self._estimates.follow(view)
        if self._machines is None or self._machines.cluster is not view.cluster:
            self._machines = MachineTypes.of(view.cluster)
        gpus = self._machines.gpus
        jobs = list(all_jobs(view))
        for job in jobs:
            if job.id not in self._there:
                self._prices.see(_speed_by_type(self._estimates, job, list(gpus)), gpus)
        self._there = {job.id for job in jobs}
        return WorkerSets(view, self._machines, self._estimates, self._prices.each(gpus))


class WorkerSets:
    """Finds sets of workers of the jobs in a view, each worth what it costs."""

    def __init__(
        self, view: Snapshot, machines: MachineTypes, estimates: JobEstimates, prices: Mapping[str, float]
    ) -> None:
        self._view = view
        self._estimates = estimates
        self._types = list(machines.gpus)
        self._kind, self.size = machines.kind, machines.size
        self._price: Floats = np.array([prices[kind] for kind in self._types])[self._kind]  # (machines,) of a GPU
        held = sum((self.held(each) for each in view.running.values()), np.zeros_like(self.size))
        there = view.free + held  # without what jobs have that are not divided among
        # (machines,) GPUs that are free or divided, 0 where machines take no jobs
        self.up: Ints = there if view.up_machines == ALL else np.where(view.membership(view.up_machines), there, 0)
        self._speed: dict[str, Floats] = {}  # (machines,) of one GPU, 0 where a job cannot run; by the ids of jobs
        self._stretch: dict[tuple[str, bytes], float] = {}  # by jobs, and their workers
        self._worth_having: dict[tuple[str, bytes], Ints] = {}  # by jobs, and free GPUs

    def left_s(self, job: Job) -> float:
        """Return how long a job still runs with the GPUs that it asks for, of the type that it was measured on."""
        return self._estimates.left_s(job)

    def held(self, running: Running) -> Ints:
        """Return the workers of a running job, (machines,)."""
        held = np.zeros(len(self.size), dtype=np.int64)
        counts = running.placement.counts
        held[list(counts)] = list(counts.values())
        return held

    def usable(self, job: Job, free: Ints) -> Ints:
        """Return the free GPUs that a job can use, (machines,)."""
        found: Ints = self._view.usable(job, free)
        return found

    def has_room(self, job: Job, free: Ints) -> bool:
        """Say whether a job can start on free GPUs."""
        return int(self.usable(job, free).sum()) >= min_gpus(job)

    def seconds(self, job: Job, workers: Ints) -> float:
        """Return how long a job still runs with so many workers on each machine, alone on its links."""
        return self.left_s(job) * self.stretch(job, workers)

    def stretch(self, job: Job, workers: Ints) -> float:
        """Return how long a job takes with some workers for each second that it has left."""
        key = job.id, workers.tobytes()
        found = self._stretch.get(key)
        if found is None:
            found = self._stretch[key] = self._stretch_on(job, workers)
        return found

    def _stretch_on(self, job: Job, workers: Ints) -> float:
        speed = float((self._speeds(job) * workers).sum())  # in one order: that of BLAS depends on the machine
        if speed <= 0.0:
            return np.inf
        machines = tuple(np.repeat(np.arange(len(workers)), workers).tolist())
        trained = job.resized(len(machines), speed)
        iteration_s = trained.profile.iteration_s + communication(self._view.cluster, trained, machines).comm_s
        return iteration_s / job.profile.iteration_s

    def stretch_at_best(self, job: Job, usable: Ints) -> float:
        """Return how long a job takes with some GPUs at least: if it communicated in no time."""
        speed = self._speeds(job)
        workers = _filled(np.argsort(-speed, kind="stable"), usable, max_gpus(job))
        return job.gpus / max(float((speed * workers).sum()), 1e-12)

    def all_usable(self, job: Job, free: Ints) -> Ints:
        """Return as many of the free GPUs as a job can have, the fastest first, (machines,)."""
        usable = self.usable(job, free)
        return _filled(_in_order(-self._speeds(job), usable, max_gpus(job)), usable, max_gpus(job))

    def worth_having(self, job: Job, free: Ints) -> Ints:
        """Return the workers that cost a job least in all, (machines,); too few, if it cannot start."""
        key = job.id, free.tobytes()
        found = self._worth_having.get(key)
        if found is None:
            least = np.inf
            for workers, cost in self.sets(job, free):
                if cost < least * (1.0 - ROUNDING):
                    found, least = workers, cost
            found = self._worth_having[key] = self.all_usable(job, free) if found is None else found
        return found

    def worth_having_beside(self, job: Job, following: Job | None, free: Ints) -> Ints:
        """Return the workers that cost a job least in all, without those that suit the next job better."""
        workers = self.worth_having(job, free)
        if following is None:
            return workers
        left = self.worth_having(job, np.where(self._suits(job, following), workers, 0))
        return left if min_gpus(job) <= left.sum() < workers.sum() else workers

    def sets(self, job: Job, free: Ints) -> Iterator[WorkerSet]:
        """Yield the sets of free GPUs that are tried: of more and more machines, fast or cheap ones first."""
        speed, usable = self._speeds(job), self.usable(job, free)
        if usable.sum() < min_gpus(job):
            return
        per_speed = self._price / np.maximum(speed, 1e-12)
        seen = set()
        for value in (-speed, per_speed):
            order = _in_order(value, usable, max_gpus(job))
            for workers in more_and_more(order, value, usable, min_gpus(job), max_gpus(job)):
                if workers.tobytes() in seen:
                    continue
                seen.add(workers.tobytes())
                held = job.gpus + float((self._price * workers).sum())
                yield WorkerSet(workers, held * self.stretch(job, workers))

    def fastest(self, job: Job, free: Ints, workers: Ints) -> int | None:
        """Return the machine whose free GPU makes a job fastest that has some workers; None if it can use none."""
        usable = self.usable(job, free)
        if not usable.any():
            return None
        speed = np.where(usable > 0, self._speeds(job), -1.0)
        return int(np.lexsort((-usable, workers == 0, -speed))[0])

    def _suits(self, first: Job, second: Job) -> Flags:
        """Return the machines, (machines,), on which the first gains most by comparison.

        Both are compared by their speed there, as a share of the speed that they would have on all GPUs.
        """
        own, other = self._speeds(first), self._speeds(second)
        found: Flags = own * (other * self.size).sum() >= other * (own * self.size).sum() * (1.0 - ROUNDING)
        return found

    def _speeds(self, job: Job) -> Floats:
        """Return the speed of one GPU of each machine, 0 where the job cannot run."""
        found = self._speed.get(job.id)
        if found is None:
            by_type = _speed_by_type(self._estimates, job, self._types)
            found = self._speed[job.id] = np.array(list(by_type.values()))[self._kind]
        return found


def _speed_by_type(estimates: JobEstimates, job: Job, types: Sequence[str]) -> Mapping[str, float]:
    """Return the speed of one GPU of each type, 0 where the job cannot run."""
    return {kind: speed or 0.0 for kind, speed in zip(types, estimates.speeds(job, types), strict=True)}


def _in_order(value: Floats, usable: Ints, most: int) -> Ints:
    """Return machines by a value, equal ones by room: the tightest that holds `most` first, then the emptiest."""
    return np.lexsort((np.where(usable >= most, usable, -usable), usable < most, value))


def _filled(order: Ints, usable: Ints, most: int) -> Ints:
    """Return so many of the usable GPUs, (machines,), of machines in an order."""
    free = usable[order]
    workers = np.zeros_like(usable)
    workers[order] = np.clip(most - (np.cumsum(free) - free), 0, free)
    return workers


def more_and_more(order: Ints, value: Floats, usable: Ints, least: int, most: int) -> Iterator[Ints]:
    """Yield GPUs of more and more machines in an order, (machines,), from `least` to `most` of them.

    Each number of machines is tried up to `EVERY`, all of those with equal values, and twice as many each time.
    """
    order = order[usable[order] > 0]
    changes = np.flatnonzero(np.diff(value[order])) + 1
    doubled = [EVERY << step for step in range(len(order).bit_length())]
    numbers = {*range(1, EVERY), *doubled, *changes.tolist(), len(order)}
    for machines in sorted(number for number in numbers if number <= len(order)):
        workers = _filled(order[:machines], usable, most)
        if workers.sum() >= least:
            yield workers
        if workers.sum() == most:
            return
