"""The shortest job first with all the workers that it can have; others wait, and their first start costs nothing.

No policy of a paper, and not in the table of policies: a schedule that shows what could be had where jobs can be
resized. A running job is stopped for a waiting one that would end sooner, restarts included. It knows how long
jobs run.
"""

import numpy as np

from cranny.core.accounting import Running
from cranny.core.queue import BySubmission
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.plan import Plan, Start, Stop
from cranny.policies._shared.heterogeneous.estimates import speed_on
from cranny.policies._shared.heterogeneous.instance import max_gpus, min_gpus, placed
from cranny.policies._shared.heterogeneous.problem import Floats, Ints

RESTARTS = 2.0  # that a stop must pay: its own, and as much again for what else it delays


class ShortestFirst(BySubmission):
    """Shortest remaining time first, with as many workers as a job can have."""

    def __init__(self) -> None:
        self._left: dict[str, float] = {}  # of jobs that were stopped, in seconds of one GPU of speed 1

    def plan(self, view: Snapshot) -> Plan:
        """Start the shortest waiting job on free GPUs; if they are too few, stop a job that is longer by far."""
        if not view.waiting:
            return Plan(view.version)
        shortest = min(view.waiting, key=lambda each: self._alone_s(each.job, view))
        if view.free.sum() >= min_gpus(shortest.job):
            return Plan(view.version, (self._start(shortest, view),))
        enough_s = self._alone_s(shortest.job, view) + RESTARTS * shortest.job.restart_s
        longer = [
            each for each in view.running.values() if _runs(each, view) and self._left_s(each, view) > enough_s
        ]
        if not longer:
            return Plan(view.version)
        longest = max(longer, key=lambda each: self._left_s(each, view))
        self._left[longest.submitted.id] = self._left_work(longest, view)
        return Plan(view.version, (Stop(longest.submitted.id, "makes way for a shorter job"),))

    def why_wait(self, job: Job, view: Snapshot) -> str:  # noqa: ARG002 - the same for all
        """Say that others are shorter."""
        return "behind shorter jobs"

    def _start(self, waiting: Waiting, view: Snapshot) -> Start:
        placement = placed(view, waiting.job, _first(view.free, max_gpus(waiting.job)), "the shortest job")
        return Start(waiting.job, placement, waiting.attained_gpu_s)

    def _alone_s(self, job: Job, view: Snapshot) -> float:
        """Return how long a waiting job would run on the empty cluster."""
        workers = _first(np.array([machine.gpus for machine in view.cluster.machines]), max_gpus(job))
        return self._work(job) / float(_speeds(job, view) @ workers)

    def _work(self, job: Job) -> float:
        return self._left.get(job.id, job.gpus * (job.duration_s or 0.0))

    def _left_work(self, running: Running, view: Snapshot) -> float:
        job = running.submitted
        ran_s = view.now_s - running.started_s - (job.restart_s if running.attained_gpu_s else 0.0)
        return self._work(job) - max(0.0, ran_s) * _rate(running, view)

    def _left_s(self, running: Running, view: Snapshot) -> float:
        return self._left_work(running, view) / _rate(running, view)


def _runs(running: Running, view: Snapshot) -> bool:
    """Say whether a job is past its restart."""
    return view.now_s - running.started_s > (running.submitted.restart_s if running.attained_gpu_s else 0.0)


def _rate(running: Running, view: Snapshot) -> float:
    speeds = _speeds(running.submitted, view)
    return float(sum(speeds[machine] * count for machine, count in running.placement.counts.items()))


def _speeds(job: Job, view: Snapshot) -> Floats:
    """Return the speed of one GPU of each machine."""
    return np.array([speed_on(job, machine.gpu_type) or 0.0 for machine in view.cluster.machines])


def _first(free: Ints, most: int) -> Ints:
    """Return so many of the free GPUs, machine by machine."""
    before = np.cumsum(free) - free
    return np.asarray(np.clip(most - before, 0, free))
