"""Shares that keep to the numbers of workers with which jobs can run.

The paper's jobs can have any number of workers from one up; real ones have a least and a most. So who gets too
many gives some back, who gets too few gets the fewest that he can run with, and the others share what is left
anew, until everybody is within his limits. Jobs that cannot be resized choose first.
"""

from collections.abc import Sequence

import numpy as np

from cranny.policies._shared.heterogeneous.instance import Scene, Solve
from cranny.policies._shared.heterogeneous.problem import Ints


def within(scene: Scene, solve: Solve, chosen: Sequence[int], free: Ints) -> Ints:
    """Share free GPUs, (machines,), among some of the jobs, for whom there is room; (jobs, machines)."""
    held = np.zeros((len(scene.jobs), len(free)), dtype=np.int64)
    left, todo = free.copy(), list(chosen)

    def settle(job: int, workers: Ints) -> None:
        """Let a job have these workers for good."""
        nonlocal left
        held[job] = workers
        left -= workers
        todo.remove(job)

    for job in [each for each in chosen if scene.least[each] == scene.most[each]]:
        settle(job, fewest(scene, job, left, [other for other in todo if other != job]))
    while todo:
        found = solve(scene.sharing(todo, left)).workers.sum(axis=2)
        shares = dict(zip(todo, found, strict=True))
        before = len(todo)
        for job, workers in shares.items():
            kept = _trimmed(scene, job, workers)
            others = [other for other in todo if other != job]
            # Others may have got too few, and need what this one would keep: then they come first.
            if workers.sum() > scene.most[job] and scene.room_for(others, left - kept):
                settle(job, kept)
        if len(todo) < before:
            continue
        short = next((job for job, workers in shares.items() if workers.sum() < scene.least[job]), None)
        if short is None:
            held[todo] = found
            break
        settle(short, fewest(scene, short, left, [other for other in todo if other != short]))
    return held


def fewest(scene: Scene, job: int, free: Ints, others: Sequence[int]) -> Ints:
    """Return as few workers as a job can run with, (machines,), the best for it that leave room for others.

    All of one type, or the fastest of each while they last.
    """
    need, rates = int(scene.least[job]), scene.problem.rates[job]
    best, least_s = None, np.inf
    by_speed = [int(kind) for kind in np.argsort(-rates, kind="stable") if rates[kind] > 0]
    for kinds in (*([kind] for kind in by_speed), by_speed):
        workers = np.zeros_like(free)
        for kind in kinds:
            count = need - int(workers.sum())
            while count and not _leaves_room(scene, free - workers, kind, count, others):
                count -= 1
            workers += packed(np.where(scene.kind == kind, free, 0), count)
        if workers.sum() == need:
            time_s = scene.time_s(job, workers)
            if time_s < least_s:
                best, least_s = workers, time_s
    if best is None:
        raise ValueError(f"there is no room for job {scene.jobs[job].id!r}")
    return best


def _leaves_room(scene: Scene, free: Ints, kind: int, count: int, others: Sequence[int]) -> bool:
    """Say whether so many workers of a type are there, and others still find theirs."""
    of_kind = np.where(scene.kind == kind, free, 0)
    return count <= of_kind.sum() and scene.room_for(others, free - packed(of_kind, count))


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


def _trimmed(scene: Scene, job: int, workers: Ints) -> Ints:
    """Give back what a job has too many: the slowest first, and of these the loneliest."""
    kept = workers.copy()
    surplus = max(0, int(kept.sum() - scene.most[job]))
    rates = scene.problem.rates[job][scene.kind]
    while surplus:
        holds = np.flatnonzero(kept)
        machine = int(holds[np.lexsort((kept[holds], rates[holds]))[0]])
        back = min(surplus, int(kept[machine]))
        kept[machine] -= back
        surplus -= back
    return kept
