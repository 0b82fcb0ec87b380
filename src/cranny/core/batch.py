"""Which waiting jobs to place now: those that are worth most together among the sets that fit (NetPack, step 1).

Every job is worth 1 at first and 1 more each time that it is passed over. All jobs that wait have been passed over
since they came, so what a job is worth follows from when it was first seen.

Departure: jobs that can use only some types of GPU, of which the paper has none, are first chosen among for these
GPUs alone. What cannot start there would otherwise take the room of others, and the older the more surely.
"""

from collections import Counter
from collections.abc import Sequence

from cranny.core.knapsack import most_valuable
from cranny.core.snapshot import ALL, Snapshot, Waiting

# Jobs that are weighed against each other at most; memory grows with it times the free GPUs.
MOST_JOBS = 1_000


class Batches:
    """Chooses batch after batch of waiting jobs, and remembers who was passed over."""

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
            for machines, some in by_machines.items():
                chosen += self._worth_most(some, view.machines.only(machines).gpus)
            position = {waiting.job.id: at for at, waiting in enumerate(view.waiting)}
            chosen.sort(key=lambda waiting: position[waiting.job.id])
        chosen = self._worth_most(chosen, view.machines.gpus)
        return sorted(chosen, key=lambda waiting: (-self.worth(waiting.job.id), waiting.job.gpus))

    def _worth_most(self, some: Sequence[Waiting], room: int) -> list[Waiting]:
        """Return those of some jobs that are worth most together and have room."""
        sizes = [waiting.job.gpus for waiting in some]
        return [some[at] for at in most_valuable(sizes, [self.worth(waiting.job.id) for waiting in some], room)]


def _candidates(view: Snapshot) -> dict[int, list[Waiting]]:
    """Return jobs that may be chosen, by the machines that they can use, as a set.

    Of each size they are no more than there is room for, those that came first.
    """
    room: dict[int, int] = {}
    count: Counter[tuple[int, int]] = Counter()
    candidates: dict[int, list[Waiting]] = {}
    left = MOST_JOBS
    for waiting in view.waiting:
        size, machines = waiting.job.gpus, view.suited(waiting.job)
        if machines not in room:
            room[machines] = view.offer(waiting.job).gpus
        if (count[machines, size] + 1) * size <= room[machines]:
            count[machines, size] += 1
            candidates.setdefault(machines, []).append(waiting)
            left -= 1
            if not left:
                break
    return candidates
