"""Jobs that can all be resized, on GPUs of several types: one after the other, each with all workers it can have.

`has-resets` gives every job workers from the start, and then pays a restart for each share that grows. A first
start costs nothing: so the first job of the queue gets all GPUs that it can use, and the next one what it leaves.
Where restarts are short, GPUs that suit the next one better are left to it from the start: both then need fewer
GPU-seconds. A running job is stopped for the first of the queue only if it comes later with what it has left, and
if that is more than the other needs by far. So no job is passed for ever, as in the queue.
"""

import numpy as np

from cranny.core.snapshot import Snapshot
from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.plan import Action, Move, Plan, Start, Stop
from cranny.policies._shared.heterogeneous.estimates import JobEstimates
from cranny.policies._shared.heterogeneous.instance import max_gpus, min_gpus, placed
from cranny.policies.cranny.queue_key import queue_key
from cranny.policies.cranny.restarts import RESTARTS, goes_on

ROUNDING = 1e-9  # below which two jobs count as equally suited


class ShortestFirst:
    """Starts the first job of the queue with as many workers as it can have."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._estimates = JobEstimates()
        self._cluster: Cluster | None = None
        self._kind: Ints = np.zeros(0, dtype=np.int64)  # (machines,) the index of each machine's type

    def plan(self, view: Snapshot, *, sharing: bool) -> Plan:
        """Start the first job on free GPUs, or stop a job for it; once none waits, let one grow.

        With `sharing` the first leaves GPUs to the second that suit that one better.
        """
        self._estimates.follow(view)
        action = self._first(view, sharing=sharing) if view.waiting else self._grown(view)
        return Plan(view.version, () if action is None else (action,))

    def _first(self, view: Snapshot, *, sharing: bool) -> Action | None:
        """Start the first job of the queue, or stop the one that has most left so that it can start."""
        waiting, *others = view.waiting[:2]
        job = waiting.job
        workers = self._workers(job, view.free, view)
        if sharing and others:
            suited = self._workers(job, np.where(self._suits(job, others[0].job, view), view.free, 0), view)
            if min_gpus(job) <= suited.sum() < workers.sum():
                placement = placed(view, job, suited, f"other GPUs suit job {others[0].job.id!r} better")
                return Start(job, placement, waiting.attained_gpu_s)
        if workers.sum() >= min_gpus(job):
            placement = placed(view, job, workers, "the first of the queue has all that it can use")
            return Start(job, placement, waiting.attained_gpu_s)
        whole = np.array([machine.gpus for machine in view.cluster.machines])
        needs_s = self._seconds(job, self._workers(job, whole, view), view)
        key = self._key(job)
        longest, most_s = None, 0.0
        for each in view.running.values():
            left_s = self._seconds(each.submitted, self._held(each.placement.counts, view), view)
            pays = left_s > max(most_s, needs_s + RESTARTS * each.submitted.restart_s)
            later = self._key(each.submitted) > key
            if pays and later and goes_on(each, view):
                longest, most_s = each.submitted.id, left_s
        return None if longest is None else Stop(longest, f"makes way for job {job.id!r}")

    def _suits(self, first: Job, second: Job, view: Snapshot) -> Flags:
        """Return the machines, (machines,), on which the first gains most by comparison.

        Both are compared by their speed there, as a share of the speed that they would have on all GPUs.
        """
        whole = np.array([machine.gpus for machine in view.cluster.machines])
        own, other = self._speeds(first, view), self._speeds(second, view)
        found: Flags = own * (other * whole).sum() >= other * (own * whole).sum() * (1.0 - ROUNDING)
        return found

    def _grown(self, view: Snapshot) -> Action | None:
        """Move a job to more GPUs if it gains more than its restart."""
        for each in view.running.values():
            job, held = each.submitted, self._held(each.placement.counts, view)
            more = self._workers(job, view.free + held, view)
            gain_s = self._seconds(job, held, view) - self._seconds(job, more, view)
            if gain_s > RESTARTS * job.restart_s and gain_s > 0.0 and more.sum() > held.sum():
                return Move(job.id, placed(view, job, more, "GPUs that no other job waits for"))
        return None

    def _key(self, job: Job) -> float:
        return queue_key(job, self._estimates.left_s(job), self._patience)

    def _workers(self, job: Job, free: Ints, view: Snapshot) -> Ints:
        """Return as many of the free GPUs as a job can have, (machines,), the fastest first."""
        speed = self._speeds(job, view)
        fastest = np.argsort(-speed, kind="stable")
        usable = np.where(speed > 0.0, free, 0)[fastest]
        workers = np.zeros_like(free)
        workers[fastest] = np.clip(max_gpus(job) - (np.cumsum(usable) - usable), 0, usable)
        return workers

    def _seconds(self, job: Job, workers: Ints, view: Snapshot) -> float:
        """Return how long a job still runs with so many workers on each machine."""
        speed = float(
            (self._speeds(job, view) * workers).sum()
        )  # in one order: that of BLAS depends on the machine
        return self._estimates.left_s(job) * job.gpus / max(speed, 1e-12)

    def _speeds(self, job: Job, view: Snapshot) -> Floats:
        """Return the speed of one GPU of each machine, 0 where the job cannot run."""
        types = list(view.cluster.machines_with)
        if self._cluster is not view.cluster:
            self._cluster = view.cluster
            self._kind = np.array([types.index(machine.gpu_type) for machine in view.cluster.machines])
        return np.array([speed or 0.0 for speed in self._estimates.speeds(job, types)])[self._kind]

    @staticmethod
    def _held(counts: dict[int, int], view: Snapshot) -> Ints:
        held = np.zeros(len(view.cluster.machines), dtype=np.int64)
        held[list(counts)] = list(counts.values())
        return held
