"""Jobs that can be resized, on GPUs of one type: the first of the queue have all workers that are worth having.

`has-resets` divides GPUs among all jobs, so that most of them train with fewer workers than they ask for, and
iterations take longer than those of any policy that does not resize jobs. Here jobs get what they want in order of
the queue, running ones by what they have left; a job for which too few GPUs are left waits. Two rules keep GPUs
from idling, now and in the end:

    critical  a job that takes at least as long as all jobs together would on the whole cluster comes first:
              whenever it waits, the others end before it, and then it holds its GPUs alone
    fill      GPUs that are too few for a waiting job are given to it with some of those that others have beyond
              their least, as long as it gets no more from others than idle ones

A running job is stopped or resized only if that is worth two of its restarts. No job is passed for ever: once its
key in the queue has passed, critical jobs no longer come before it, and no other job starts after it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from cranny.model.job import Job
from cranny.policies._shared.heterogeneous.instance import min_gpus
from cranny.policies.cranny.queue_key import queue_key

RESTARTS = 2.0  # that a stop or another size must pay: its own, and as much again for what else it delays


class Resizable(NamedTuple):
    """A job that runs or waits."""

    job: Job
    left_s: float  # on one machine, with as many workers as it asks for
    wanted: int  # workers, at most as many as it asks for
    most: int  # that make it faster if no other job needs them
    held: int = 0  # workers that it has
    settled: bool = True  # past its start and its restart: a decision that undoes itself might never end


class _Queued(NamedTuple):
    """A job in its place in the queue."""

    each: Resizable
    due: bool  # it may no longer be passed


def sizes_in_order(jobs: Sequence[Resizable], gpus: int, patience: float, now_s: float) -> dict[str, int]:
    """Return how many of some GPUs each job has from now on, 0 for those that wait."""
    queue = _in_order(jobs, gpus, patience, now_s)
    kept: dict[str, int] = {}  # what running jobs have, where a change would not pay
    while True:
        rest = [queued for queued in queue if queued.each.job.id not in kept]
        sizes = _filled(rest, gpus - sum(kept.values()), gpus)
        starting = (each.left_s for each, _ in rest if sizes[each.job.id] and not each.held)
        first_s = min(starting, default=math.inf)
        undone = {
            each.job.id: each.held
            for each, _ in rest
            if each.held not in (0, sizes[each.job.id]) and not _pays(each, sizes[each.job.id], first_s)
        }
        if not undone:
            return sizes | kept
        kept |= undone


def _in_order(jobs: Sequence[Resizable], gpus: int, patience: float, now_s: float) -> list[_Queued]:
    """Sort jobs by priority, those first on which the end of all depends, and then as in the queue."""
    together_s = sum(each.left_s * each.job.gpus for each in jobs) / max(gpus, 1)

    def place(each: Resizable) -> tuple[float, bool, float, str]:
        key = queue_key(each.job, each.left_s, patience)
        return -each.job.priority, each.left_s < together_s and key > now_s, key, each.job.id

    return [_Queued(each, place(each)[2] <= now_s) for each in sorted(jobs, key=place)]


def _filled(queue: Sequence[_Queued], gpus: int, up: int) -> dict[str, int]:
    """Give jobs in order what they want of some GPUs; what then idles goes to one that waits, or else that runs.

    A job that may no longer be passed lets no other start after it, unless it needs more GPUs than are up.
    """
    sizes: dict[str, int] = {}
    idle, passable = gpus, True
    for each, due in queue:
        workers, least = min(each.wanted, idle), min_gpus(each.job)
        sizes[each.job.id] = workers if workers >= least and (passable or each.held) else 0
        idle -= sizes[each.job.id]
        passable = passable and not (due and least <= up and not sizes[each.job.id])
    if passable and _lend(queue, sizes, idle):
        return sizes
    for each, _ in queue:
        more = min(idle, each.most - sizes[each.job.id]) if sizes[each.job.id] else 0
        sizes[each.job.id] += more
        idle -= more
    return sizes


def _lend(queue: Sequence[_Queued], sizes: dict[str, int], idle: int) -> bool:
    """Let the first job start that can with idle GPUs and at most as many of others; say whether there is one."""
    lent = {each.job.id: max(0, sizes[each.job.id] - min_gpus(each.job)) for each, _ in queue}
    most = min(idle, sum(lent.values()))
    waiting = (each.job for each, _ in queue if not sizes[each.job.id])
    first = next((job for job in waiting if min_gpus(job) - idle <= most), None)
    if first is None or not idle:
        return False
    lacks = min_gpus(first) - idle
    for job_id, more in reversed(lent.items()):  # the last of the queue first
        taken = min(lacks, more)
        sizes[job_id] -= taken
        lacks -= taken
    sizes[first.id] = min_gpus(first)
    return True


def _pays(running: Resizable, size: int, first_s: float) -> bool:
    """Say whether a running job gains by another size, or else the first job that starts in its place."""
    restarts_s = RESTARTS * running.job.restart_s
    if not restarts_s:
        return True
    left_s = running.left_s * running.job.gpus / running.held
    if size > running.held:
        first_s = running.left_s * running.job.gpus / size
    return running.settled and left_s > first_s + restarts_s
