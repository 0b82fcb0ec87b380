"""Which waiting jobs to place now: those that are worth most together among the sets that fit (NetPack, step 1).

Every job is worth 1 at first and 1 more each time that it is skipped. All waiting jobs have been skipped since
they came, so what a job is worth follows from when it was first seen.

Departure: jobs that can use only some types of GPU, of which the paper has none, are first chosen among for these
GPUs alone. What cannot start there would otherwise take the GPUs of others, and the older the more surely.
"""

from collections.abc import Sequence

import numpy as np

from cranny.core.snapshot import ALL, Snapshot, Waiting

# Jobs that are weighed against each other at most; memory grows with it times the free GPUs.
MOST_JOBS = 1_000


def most_valuable(sizes: Sequence[int], values: Sequence[float], capacity: int) -> list[int]:
    """Solve a 0/1 knapsack: return the indices, rising, of the items that are worth most together and fit.

    Among equally good choices, earlier items are preferred. Takes time in proportion to items times capacity.
    """
    if sum(sizes) <= capacity:
        return list(range(len(sizes)))
    best = np.zeros(capacity + 1)  # worth of the items from here on, by the capacity left
    taken = np.zeros((len(sizes), capacity + 1), dtype=np.bool_)
    for item in range(len(sizes) - 1, -1, -1):
        size = sizes[item]
        if size > capacity:
            continue
        if size:
            with_it = best[: capacity + 1 - size] + values[item]
            better = with_it >= best[size:]
            taken[item, size:] = better
            best[size:] = np.where(better, with_it, best[size:])
        elif values[item] >= 0.0:
            taken[item] = True
            best += values[item]
    chosen = []
    left = capacity
    for item, size in enumerate(sizes):
        if taken[item, left]:
            chosen.append(item)
            left -= size
    return chosen


class KnapsackBatches:
    """Chooses batch after batch of waiting jobs, and remembers since when each has been skipped."""

    def __init__(self) -> None:
        self._decided_s: float | None = None
        self._decisions = 0
        self._since: dict[str, int] = {}  # decision at which a waiting job was first seen

    def worth(self, job_id: str) -> int:
        """Return what a job is worth by now."""
        return 1 + self._decisions - self._since.get(job_id, self._decisions)

    def choose(self, view: Snapshot) -> list[Waiting]:
        """Return the jobs to place now, the most valuable first, of equals the smallest."""
        if view.now_s != self._decided_s:  # asked again at the same time, it is still the same decision
            self._decided_s = view.now_s
            self._decisions += 1
        for waiting in view.waiting:
            self._since.setdefault(waiting.job.id, self._decisions)
        if len(self._since) > 2 * len(view.waiting) + MOST_JOBS:
            still = {waiting.job.id for waiting in view.waiting}
            self._since = {job_id: since for job_id, since in self._since.items() if job_id in still}
        by_machines = _candidates(view)
        chosen = by_machines.pop(ALL, [])
        if by_machines:
            for machines, jobs in by_machines.items():
                chosen += self._worth_most(jobs, view.machines.only(machines).gpus)
            position = {waiting.job.id: at for at, waiting in enumerate(view.waiting)}
            chosen.sort(key=lambda waiting: position[waiting.job.id])
        chosen = self._worth_most(chosen, view.machines.gpus)
        since = self._since  # who was seen first is worth most
        return sorted(chosen, key=lambda waiting: (since[waiting.job.id], waiting.job.gpus))

    def _worth_most(self, jobs: Sequence[Waiting], gpus: int) -> list[Waiting]:
        """Return those jobs that are worth most together and fit on so many GPUs."""
        sizes = [waiting.job.gpus for waiting in jobs]
        if sum(sizes) <= gpus:
            return list(jobs)
        return [jobs[at] for at in most_valuable(sizes, [self.worth(waiting.job.id) for waiting in jobs], gpus)]


def _candidates(view: Snapshot) -> dict[int, list[Waiting]]:
    """Return jobs that may be chosen, by the machines that they can use, as a set.

    Of each size they are no more than there are free GPUs for, those that came first.
    """
    free: dict[int, int] = {}
    held: dict[tuple[int, int], int] = {}  # by all candidates with the same machines and size
    candidates: dict[int, list[Waiting]] = {}
    left = MOST_JOBS
    for waiting in view.waiting:
        size, machines = waiting.job.gpus, view.eligible(waiting.job)
        if machines not in free:
            free[machines] = view.available(waiting.job).gpus
            candidates[machines] = []
        alike = machines, size
        needed = held.get(alike, 0) + size
        if needed <= free[machines]:
            held[alike] = needed
            candidates[machines].append(waiting)
            left -= 1
            if not left:
                break
    return candidates
