"""Shares within the minimum and maximum number of workers of each job.

The paper's jobs can have any number of workers from one up; real ones have a minimum and a maximum. So jobs above
their maximum give the surplus back, jobs below their minimum get their minimum, and the rest is divided anew among
the others, until every job is within its limits. Jobs that cannot be resized choose first.
"""

from collections.abc import Sequence

import numpy as np

from cranny.policies._shared.heterogeneous.instance import Instance, Solve
from cranny.policies._shared.heterogeneous.problem import Ints


def within(instance: Instance, solve: Solve, chosen: Sequence[int], free: Ints) -> Ints:
    """Divide free GPUs, (machines,), among some of the jobs, all of which have their minimum; (jobs, machines)."""
    held = np.zeros((len(instance.jobs), len(free)), dtype=np.int64)
    left, todo = free.copy(), list(chosen)

    def fix(job: int, workers: Ints) -> None:
        """Give a job these workers for the rest of the search."""
        nonlocal left
        held[job] = workers
        left -= workers
        todo.remove(job)

    for job in [each for each in chosen if instance.least[each] == instance.most[each]]:
        fix(job, fewest(instance, job, left, [other for other in todo if other != job]))
    while todo:
        found = solve(instance.subproblem(todo, left)).workers.sum(axis=2)
        shares = dict(zip(todo, found, strict=True))
        before = len(todo)
        for job, workers in shares.items():
            kept = _trimmed(instance, job, workers)
            others = [other for other in todo if other != job]
            # Others may be below their minimum, and need what this one would keep: then they come first.
            if workers.sum() > instance.most[job] and instance.fits_minimum(others, left - kept):
                fix(job, kept)
        if len(todo) < before:
            continue
        short = next((job for job, workers in shares.items() if workers.sum() < instance.least[job]), None)
        if short is None:
            held[todo] = found
            break
        fix(short, fewest(instance, short, left, [other for other in todo if other != short]))
    return held


def fewest(instance: Instance, job: int, free: Ints, others: Sequence[int]) -> Ints:
    """Return a job's minimum of workers, (machines,), the best for it that leave others their minimum.

    All of one type, or the fastest of each while they last.
    """
    need, rates = int(instance.least[job]), instance.problem.rates[job]
    best, least_s = None, np.inf
    by_speed = [int(kind) for kind in np.argsort(-rates, kind="stable") if rates[kind] > 0]
    for kinds in (*([kind] for kind in by_speed), by_speed):
        workers = np.zeros_like(free)
        for kind in kinds:
            count = need - int(workers.sum())
            while count and not _leaves_minimum(instance, free - workers, kind, count, others):
                count -= 1
            workers += packed(np.where(instance.kind == kind, free, 0), count)
        if workers.sum() == need:
            time_s = instance.time_s(job, workers)
            if time_s < least_s:
                best, least_s = workers, time_s
    if best is None:
        raise ValueError(f"there are too few free GPUs for job {instance.jobs[job].id!r}")
    return best


def _leaves_minimum(instance: Instance, free: Ints, kind: int, count: int, others: Sequence[int]) -> bool:
    """Say whether so many workers of a type are free, and others can still have their minimum."""
    of_kind = np.where(instance.kind == kind, free, 0)
    return count <= of_kind.sum() and instance.fits_minimum(others, free - packed(of_kind, count))


def packed(free: Ints, count: int) -> Ints:
    """Take GPUs, (machines,): of the machine that they fill most tightly, or of those with most of them free."""
    workers = np.zeros_like(free)
    enough = np.flatnonzero(free >= count)
    if count and len(enough):
        workers[enough[free[enough].argmin()]] = count
        return workers
    for machine in np.argsort(-free, kind="stable").tolist():
        workers[machine] = min(int(free[machine]), count)
        count -= int(workers[machine])
        if not count:
            break
    return workers


def _trimmed(instance: Instance, job: int, workers: Ints) -> Ints:
    """Give back a job's surplus: the slowest first, and of these those on machines where it has the fewest."""
    kept = workers.copy()
    surplus = max(0, int(kept.sum() - instance.most[job]))
    rates = instance.problem.rates[job][instance.kind]
    while surplus:
        holds = np.flatnonzero(kept)
        machine = int(holds[np.lexsort((kept[holds], rates[holds]))[0]])
        back = min(surplus, int(kept[machine]))
        kept[machine] -= back
        surplus -= back
    return kept
