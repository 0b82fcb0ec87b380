"""Jobs that can all be resized, on GPUs of several types: one after the other, each with the workers worth having.

`has-resets` gives every job workers from the start, and then pays a restart for each share that grows. A first
start costs nothing: so the first job of the queue gets all GPUs that it can use, and the next one what it leaves.

Where restarts are short, it gets no more than pays, in GPU-seconds: the GPUs that it holds, at their prices
(`gpu_prices`), for as long as it takes with them, and for each second of that the GPUs that it asks for. So a job
leaves slow GPUs that would save it little idle, or to others, and takes no second machine if communication eats up
the gain. Of its GPUs those that suit the next job better are left to it from the start: both then need fewer
GPU-seconds.

A running job is stopped for the first of the queue only if it comes later with what it has left, and if that is
more than the other needs by far. So no job is passed for ever, as in the queue.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import ALL, Snapshot, Waiting
from cranny.core.traffic import communication
from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.plan import Action, Move, Plan, Start, Stop
from cranny.policies._shared.heterogeneous.estimates import JobEstimates
from cranny.policies._shared.heterogeneous.instance import max_gpus, min_gpus, placed
from cranny.policies.cranny.gpu_prices import GpuPrices
from cranny.policies.cranny.queue_key import queue_key
from cranny.policies.cranny.restarts import RESTARTS, goes_on

ROUNDING = 1e-9  # below which two jobs count as equally suited, and two costs or times as equal
EVERY = 8  # machines up to which each number is tried, and beyond it only twice as many each time


class ShortestFirst:
    """Starts the first job of the queue with the workers that are worth having."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._estimates = JobEstimates()
        self._prices = GpuPrices()
        self._seen: set[str] = set()  # jobs in the cluster that prices were learned from, by their ids
        self._cluster: Cluster | None = None
        self._gpus: dict[str, int] = {}  # of each type
        self._kind: Ints = np.zeros(0, dtype=np.int64)  # (machines,) the index of each machine's type
        self._size: Ints = np.zeros(0, dtype=np.int64)  # (machines,) all of its GPUs
        # (machines,) GPUs that are free or divided, 0 where machines take no jobs
        self._up: Ints = np.zeros(0, dtype=np.int64)
        # In one plan.
        self._price: Floats = np.zeros(0)  # (machines,) of one GPU
        self._speed: dict[str, Floats] = {}  # (machines,) of one GPU, 0 where a job cannot run; by the ids of jobs

    def plan(self, view: Snapshot, *, sharing: bool) -> Plan:
        """Start the first job on free GPUs, or stop a job for it; once none waits, let one grow.

        With `sharing` a job leaves GPUs that cost more than they gain it, and the first those that suit the second
        better.
        """
        self._follow(view)
        queue = list(islice((each for each in view.waiting if self._could_start(each.job, view)), 2))
        action = self._first(queue, view, sharing=sharing) if queue else self._grown(view, sharing=sharing)
        return Plan(view.version, () if action is None else (action,))

    def _follow(self, view: Snapshot) -> None:
        """Take over how far jobs are, and learn prices from new ones."""
        if self._cluster is not view.cluster:
            self._cluster = view.cluster
            machines = view.cluster.machines
            types = list(view.cluster.machines_with)
            self._kind = np.array([types.index(machine.gpu_type) for machine in machines])
            self._size = np.array([machine.gpus for machine in machines])
            self._gpus = dict.fromkeys(types, 0)
            for machine in machines:
                self._gpus[machine.gpu_type] += machine.gpus
        held = sum((self._held(each, view) for each in view.running.values()), np.zeros_like(self._size))
        there = view.free + held  # without what jobs have that are not divided among
        self._up = there if view.up_machines == ALL else np.where(view.membership(view.up_machines), there, 0)
        self._estimates.follow(view)
        self._speed.clear()
        jobs = [each.job for each in view.waiting]
        jobs += [each.submitted for each in view.running.values()]
        for job in jobs:
            if job.id not in self._seen:
                self._prices.see(self._speed_by_type(job), self._gpus)
        self._seen = {job.id for job in jobs}
        by_type = self._prices.each(self._gpus)
        self._price = np.array([by_type[kind] for kind in self._gpus])[self._kind]

    def _could_start(self, job: Job, view: Snapshot) -> bool:
        """Say whether a job could start if nothing ran, on the machines that take jobs."""
        return int(view.usable(job, self._up).sum()) >= min_gpus(job)

    def _first(self, queue: list[Waiting], view: Snapshot, *, sharing: bool) -> Action | None:
        """Start the first job of the queue, or stop the one that has most left so that it can start."""
        waiting, *others = queue
        job = waiting.job
        workers = self._workers(job, view.free, view, sharing=sharing)
        if workers.sum() >= min_gpus(job):
            note = f"the first of the queue has all that {'are worth what they cost' if sharing else 'it can use'}"
            if sharing and others:
                suits = self._suits(job, others[0].job)
                suited = self._workers(job, np.where(suits, workers, 0), view, sharing=True)
                if min_gpus(job) <= suited.sum() < workers.sum():
                    workers, note = suited, f"other GPUs suit job {others[0].job.id!r} better"
            return Start(job, placed(view, job, workers, note), waiting.attained_gpu_s)
        needs_s = self._seconds(job, self._workers(job, self._up, view, sharing=sharing), view)
        key = self._key(job)
        longest, most_s = None, 0.0
        for each in view.running.values():
            held = self._held(each, view)
            left_s = self._seconds(each.submitted, held, view)
            pays = left_s > max(most_s, needs_s + RESTARTS * each.submitted.restart_s)
            later = self._key(each.submitted) > key
            if pays and later and goes_on(each, view) and view.usable(job, held).any():
                longest, most_s = each.submitted.id, left_s
        return None if longest is None else Stop(longest, f"makes way for job {job.id!r}")

    def _suits(self, first: Job, second: Job) -> Flags:
        """Return the machines, (machines,), on which the first gains most by comparison.

        Both are compared by their speed there, as a share of the speed that they would have on all GPUs.
        """
        own, other = self._speeds(first), self._speeds(second)
        found: Flags = own * (other * self._size).sum() >= other * (own * self._size).sum() * (1.0 - ROUNDING)
        return found

    def _grown(self, view: Snapshot, *, sharing: bool) -> Action | None:
        """Move a job to other GPUs, or more, if it gains more than its restart."""
        for each in view.running.values():
            job, held = each.submitted, self._held(each, view)
            free = view.usable(job, view.free)
            if not free.any() or not all(map(view.is_up, each.held)):
                continue
            least_s = max(RESTARTS * job.restart_s, ROUNDING * self._estimates.left_s(job))
            held_s = self._seconds(job, held, view)
            if held_s - self._seconds_at_best(job, free + held) <= least_s:
                continue
            more = self._workers(job, free + held, view, sharing=sharing)
            if held_s - self._seconds(job, more, view) > least_s:
                return Move(job.id, placed(view, job, more, "GPUs that no other job waits for"))
        return None

    def _key(self, job: Job) -> float:
        return queue_key(job, self._estimates.left_s(job), self._patience)

    def _workers(self, job: Job, free: Ints, view: Snapshot, *, sharing: bool) -> Ints:
        """Return how many of the free GPUs of each machine a job has, (machines,).

        Those are the fastest, as many as it can have; with `sharing` those that cost least in all, of the numbers
        of machines that are tried.
        """
        speed, usable = self._speeds(job), view.usable(job, free)
        fastest = _in_order(-speed, usable, max_gpus(job))
        most = _filled(fastest, usable, max_gpus(job))
        if not sharing or most.sum() < min_gpus(job):
            return most
        per_speed = self._price / np.maximum(speed, 1e-12)
        found, least = most, np.inf
        for value, order in ((-speed, fastest), (per_speed, _in_order(per_speed, usable, max_gpus(job)))):
            for workers in _more_and_more(order, value, usable, min_gpus(job), max_gpus(job)):
                cost = (job.gpus + float((self._price * workers).sum())) * self._seconds(job, workers, view)
                if cost < least * (1.0 - ROUNDING):
                    found, least = workers, cost
        return found

    def _seconds(self, job: Job, workers: Ints, view: Snapshot) -> float:
        """Return how long a job still runs with so many workers on each machine, alone on its links."""
        speed = float((self._speeds(job) * workers).sum())  # in one order: that of BLAS depends on the machine
        if speed <= 0.0:
            return np.inf
        machines = tuple(np.repeat(np.arange(len(workers)), workers).tolist())
        trained = job.resized(len(machines), speed)
        iteration_s = trained.profile.iteration_s + communication(view.cluster, trained, machines).comm_s
        return self._estimates.left_s(job) * iteration_s / job.profile.iteration_s

    def _seconds_at_best(self, job: Job, usable: Ints) -> float:
        """Return what a job would still take at least with some GPUs: if it communicated in no time."""
        speed = self._speeds(job)
        workers = _filled(np.argsort(-speed, kind="stable"), usable, max_gpus(job))
        return self._estimates.left_s(job) * job.gpus / max(float((speed * workers).sum()), 1e-12)

    def _speed_by_type(self, job: Job) -> dict[str, float]:
        """Return the speed of one GPU of each type, 0 where the job cannot run."""
        speeds = self._estimates.speeds(job, list(self._gpus))
        return {kind: speed or 0.0 for kind, speed in zip(self._gpus, speeds, strict=True)}

    def _speeds(self, job: Job) -> Floats:
        """Return the speed of one GPU of each machine, 0 where the job cannot run."""
        found = self._speed.get(job.id)
        if found is None:
            found = self._speed[job.id] = np.array(list(self._speed_by_type(job).values()))[self._kind]
        return found

    @staticmethod
    def _held(running: Running, view: Snapshot) -> Ints:
        held = np.zeros(len(view.cluster.machines), dtype=np.int64)
        counts = running.placement.counts
        held[list(counts)] = list(counts.values())
        return held


def _in_order(value: Floats, usable: Ints, most: int) -> Ints:
    """Return machines by a value, equal ones by room: the tightest that holds `most` first, then the emptiest."""
    return np.lexsort((np.where(usable >= most, usable, -usable), usable < most, value))


def _filled(order: Ints, usable: Ints, most: int) -> Ints:
    """Return so many of the usable GPUs, (machines,), of machines in an order."""
    free = usable[order]
    workers = np.zeros_like(usable)
    workers[order] = np.clip(most - (np.cumsum(free) - free), 0, free)
    return workers


def _more_and_more(order: Ints, value: Floats, usable: Ints, least: int, most: int) -> Iterator[Ints]:
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
