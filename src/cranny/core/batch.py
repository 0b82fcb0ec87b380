"""Which waiting jobs to place now: those that are worth most together among the sets that fit (NetPack, step 1).

Every job is worth 1 at first and 1 more each time that it is passed over. All jobs that wait have been passed over
since they came, so what a job is worth follows from when it was first seen.
"""

from collections import Counter

from cranny.core.knapsack import most_valuable
from cranny.core.snapshot import Snapshot, Waiting

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
        room = view.machines.gpus
        candidates = _candidates(view, room)
        sizes = [waiting.job.gpus for waiting in candidates]
        chosen = most_valuable(sizes, [self.worth(waiting.job.id) for waiting in candidates], room)
        return sorted(
            (candidates[at] for at in chosen), key=lambda waiting: (-self.worth(waiting.job.id), waiting.job.gpus)
        )


def _candidates(view: Snapshot, room: int) -> list[Waiting]:
    """Return jobs that may be chosen: of each size no more than there is room for, those that came first."""
    count: Counter[int] = Counter()
    candidates = []
    for waiting in view.waiting:
        size = waiting.job.gpus
        if (count[size] + 1) * size <= room:
            count[size] += 1
            candidates.append(waiting)
            if len(candidates) == MOST_JOBS:
                break
    return candidates
