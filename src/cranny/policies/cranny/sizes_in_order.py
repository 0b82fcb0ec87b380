"""Jobs that can be resized, on GPUs of one type: the first of the queue have all workers that are worth having.

`has-resets` divides GPUs among all jobs, so that most of them train with fewer workers than they ask for, and
iterations take longer than those of any policy that does not resize jobs. Here jobs get what they want in order of
the queue, running ones by what they have left; a job for which too few GPUs are left waits, and running ones have
them meanwhile, as far as they are worth having. So that GPUs do not idle in the end,

    critical  a job beside which all others could end before it does comes first: if it started later, it would be
              left alone in the end, with most GPUs idle

A running job is stopped or resized only if that is worth two of its restarts. No job is passed for ever: once its
key in the queue has passed, critical jobs no longer come before it, and no other job starts after it.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cranny.model.job import Job
from cranny.policies._shared.heterogeneous.instance import min_gpus
from cranny.policies.cranny.queue_key import queue_key
from cranny.policies.cranny.restarts import RESTARTS

STAYS = 0.8  # of the work of others is enough for a job to stay critical: else it might be stopped again and again


class DividedJob(NamedTuple):
    """A job that GPUs are given to, and what it could do with them."""

    job: Job
    left_s: float  # on one machine, with as many workers as it asks for
    wanted: int  # workers, at most as many as it asks for
    most: int  # that make it faster if no other job needs them
    held: int = 0  # workers that it has; none if it waits
    settled: bool = True  # past its start and its restart

    @property
    def least(self) -> int:
        """The fewest workers that it can have."""
        return min_gpus(self.job)

    def seconds(self, workers: int) -> float:
        """Return how long it takes with so many workers, communication aside."""
        return self.left_s * self.job.gpus / workers

    def makes_way(self, other_s: float) -> bool:
        """Say whether it should give up GPUs to a job that takes so long."""
        restarts_s = RESTARTS * self.job.restart_s
        return self.settled and (not restarts_s or self.seconds(self.held) > other_s + restarts_s)


class _Queued(NamedTuple):
    """A job in its place in the queue."""

    each: DividedJob
    due: bool  # it may no longer be passed


def critical_jobs(jobs: Sequence[DividedJob], gpus: int, before: Collection[str] = ()) -> set[str]:
    """Return the jobs on which the end of all depends, given those on which it did before.

    The others could do all of their work beside such a job before it ends.
    """
    work = sum(each.left_s * each.job.gpus for each in jobs)  # GPU-seconds
    found = set()
    for each in jobs:
        others = work - each.left_s * each.job.gpus
        if others * (STAYS if each.job.id in before else 1.0) <= each.left_s * (gpus - each.job.gpus):
            found.add(each.job.id)
    return found


def sizes_in_order(
    jobs: Sequence[DividedJob], gpus: int, critical: Collection[str], patience: float, now_s: float
) -> dict[str, int]:
    """Return how many of some GPUs each job has from now on, 0 for those that wait."""
    queue = _in_order(jobs, critical, patience, now_s)
    kept: dict[str, int] = {}  # what running jobs have, where a change would not pay
    while True:
        rest = [queued for queued in queue if queued.each.job.id not in kept]
        sizes = _given(rest, gpus - sum(kept.values()), gpus)
        undone = _undone([queued.each for queued in rest], sizes, gpus - sum(kept.values()))
        if not undone:
            return sizes | kept
        kept |= undone


def _in_order(
    jobs: Iterable[DividedJob], critical: Collection[str], patience: float, now_s: float
) -> list[_Queued]:
    """Sort jobs by priority, critical ones and those that may no longer be passed first, and as in the queue."""
    places = []
    for each in jobs:
        key = queue_key(each.job, each.left_s, patience)
        passed = each.job.id not in critical and key > now_s
        places.append((-each.job.priority, passed, key, each.job.id, each))
    return [_Queued(each, key <= now_s) for *_, key, _, each in sorted(places, key=lambda place: place[:4])]


def _given(queue: Sequence[_Queued], gpus: int, up: int) -> dict[str, int]:
    """Give jobs in order what they want of some GPUs, and those that then have some what they leave.

    A job that may no longer be passed lets no other start after it, unless it needs more GPUs than are up.
    """
    sizes: dict[str, int] = {}
    idle, passable = gpus, True
    for each, due in queue:
        workers = min(each.wanted, idle)
        sizes[each.job.id] = workers if workers >= each.least and (passable or each.held) else 0
        idle -= sizes[each.job.id]
        passable = passable and not (due and each.least <= up and not sizes[each.job.id])
    for each, _ in queue:
        more = min(idle, each.most - sizes[each.job.id]) if sizes[each.job.id] else 0
        sizes[each.job.id] += max(0, more)
        idle -= max(0, more)
    return sizes


def _undone(queue: Sequence[DividedJob], sizes: Mapping[str, int], gpus: int) -> dict[str, int]:
    """Return what running jobs have whose change would not pay.

    Idle GPUs serve jobs that start for which they are enough, and what is left of them the last ones. The others
    are served by running jobs, the last of the queue first, each of which is compared with what its GPUs serve.
    """
    idle = gpus - sum(each.held for each in queue)
    starts = [
        _StartingJob(each.left_s, sizes[each.job.id]) for each in queue if sizes[each.job.id] and not each.held
    ]
    for start in starts:
        if start.lacks <= idle:
            idle -= start.lacks
            start.lacks = 0
    _serve(reversed(starts), idle)
    undone: dict[str, int] = {}
    for each in reversed(queue):
        size = sizes[each.job.id]
        if size < each.held:
            pays = each.makes_way(_serve(starts, each.held - size))
        else:
            pays = not each.held or size == each.held or each.makes_way(each.seconds(size))
        if not pays:
            undone[each.job.id] = each.held
    return undone


@dataclass(slots=True)
class _StartingJob:
    """A job that starts, and how many GPUs it still lacks."""

    left_s: float
    lacks: int


def _serve(starts: Iterable[_StartingJob], gpus: int) -> float:
    """Give GPUs to the first jobs that lack some; return how long these take, on average over GPUs."""
    gpu_s, served = 0.0, 0
    for start in starts:
        taken = min(start.lacks, gpus - served)
        start.lacks -= taken
        served += taken
        gpu_s += taken * start.left_s
        if served == gpus:
            break
    return gpu_s / served if served else math.inf
