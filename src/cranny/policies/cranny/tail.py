"""The tail of completion times: what a second counts there, and which waiting jobs are about to be in it.

The 99th percentile of the completion times is made by few jobs, the longest. They lose by what is otherwise right:
short jobs pass them, they are stopped for others, and others share their links. So a second that is lost to
communication or to a stop counts `WEIGHT` times where a completion time is in the tail; and a job that would end
there if it waited any longer goes before those that would not.

The tail begins at 0.7 of the 99th percentile of run times, as expected when jobs started; or where queues are so
long that one job in twenty takes longer anyway, where these begin. A job that holds more than a quarter of the
cluster is never counted in: what it gains many others lose.

The three numbers were found on NetPack's and ITP's tuned traces.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter

import numpy as np

from cranny.core.snapshot import Waiting
from cranny.model.arrays import Floats, Ints
from cranny.model.job import Job

WEIGHT = 4.0  # as often a second of the tail counts
SHARE_OF_RUN = 0.7  # of the 99th percentile of run times, where the tail begins
MOST_GPUS = 0.25  # of the cluster, of a job that is counted in
EVERY = 32  # starts, after which it is computed anew where the tail begins
HALVED = 4096  # starts, after which all earlier ones count half as much
PARTS = 32  # of each factor of two, in a histogram
DOUBLINGS = 40  # from one second on: some 35,000 years


class TimesSeen:
    """Histograms of several times of jobs, (times of a job, parts), of which older ones count less.

    Their parts are of equal width for each factor of two. Counts are exact until what was halved some 50 times is
    rounded off, so that it does not matter how many jobs are counted at once.
    """

    def __init__(self, times: int) -> None:
        self._weight: Floats = np.zeros((times, DOUBLINGS * PARTS))
        self._first: Ints = np.arange(times) * DOUBLINGS * PARTS  # part of each
        self._since = 0  # jobs counted since weights were halved

    def see(self, seconds: Floats) -> None:
        """Count the times of some jobs, (jobs, times of a job)."""
        while len(seconds):
            some, seconds = np.split(seconds, [HALVED - self._since])
            mantissa, exponent = np.frexp(np.maximum(some, 1.0))
            part = np.minimum((exponent + (2.0 * mantissa - 2.0)) * PARTS, DOUBLINGS * PARTS - 1).astype(np.int64)
            self._weight.ravel()[:] += np.bincount((part + self._first).ravel(), minlength=self._weight.size)
            self._since += len(some)
            if self._since == HALVED:
                self._weight /= 2.0
                self._since = 0

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return a quantile of each time: the middle of the part in which it lies."""
        found = []
        for share, below in zip(shares, np.cumsum(self._weight, axis=1), strict=True):
            doubling, part = divmod(int(below.searchsorted(share * below[-1], side="right")), PARTS)
            found.append(math.ldexp(1.0 + (part + 0.5) / PARTS, doubling))
        return found


class CompletionTimes:
    """What was learned of run times and completion times: where their tail begins."""

    def __init__(self, tail_s: float = math.inf) -> None:
        self._tail_s = tail_s  # until enough was seen
        self._seen = TimesSeen(2)
        self._new: list[float] = []  # run times and completion times in turn, not counted yet

    def started(self, waited_s: float, run_s: float) -> None:
        """Learn from a job that starts after a wait and is expected to run for so long."""
        self._new += (run_s, waited_s + run_s)
        if len(self._new) == 2 * HALVED:
            self._count()

    @property
    def tail_s(self) -> float:
        """The completion time from which on one is in the tail; inf before enough was seen."""
        if len(self._new) >= 2 * EVERY:
            self._count()
        return self._tail_s

    def _count(self) -> None:
        """Count the times of a multiple of so many jobs, so that it knows the same whenever it is asked."""
        past = len(self._new) // (2 * EVERY) * 2 * EVERY
        self._seen.see(np.reshape(self._new[:past], (-1, 2)))
        del self._new[:past]
        run_s, jct_s = self._seen.quantiles((0.99, 0.95))
        self._tail_s = max(SHARE_OF_RUN * run_s, jct_s)


class Tail:
    """The tail in one cluster, and the waiting jobs that would end there if they started later than some time."""

    def __init__(self, times: CompletionTimes, gpus: int) -> None:
        self._times = times
        self._tailless = not gpus
        self._most_gpus = int(MOST_GPUS * gpus)
        self._waiting: set[str] = set()  # jobs that came to the queue, by their ids
        # Those that came since `overdue` was asked, with what is left of them and their keys, by their ids.
        self._new: dict[str, tuple[Job, float, float]] = {}
        # When those should start that would end in the tail otherwise, in order, with numbers and ids; by the ids.
        self._order: list[tuple[float, int, str]] = []
        self._start_by: dict[str, tuple[float, int, str]] = {}
        self._number = 0  # of the last of them

    @property
    def learned(self) -> bool:
        """Whether it is known where the tail begins, or nothing counts more there."""
        return self._tailless or self._times.tail_s < math.inf

    def begins_s(self, gpus: int) -> float:
        """Return the completion time from which a job of so many GPUs is in the tail."""
        return self._times.tail_s if gpus <= self._most_gpus else math.inf

    def counted_s(self, gpus: int, jct_s: float, more_s: float, longest_s: float = math.inf) -> float:
        """Return as how many seconds it counts if a job completes so much later than after `jct_s`.

        `longest_s` stands for where the tail begins as long as that is not known.
        """
        begins_s = self.begins_s(gpus) if self.learned else longest_s
        within_s = max(0.0, jct_s + more_s - begins_s) - max(0.0, jct_s - begins_s)
        return more_s + (WEIGHT - 1.0) * within_s

    def all_counted_s(self, gpus: Floats, jct_s: Floats, more_s: Floats) -> Floats:
        """Return the same for many jobs."""
        begins_s = np.where(gpus <= self._most_gpus, self._times.tail_s, math.inf)
        within_s = np.maximum(0.0, jct_s + more_s - begins_s) - np.maximum(0.0, jct_s - begins_s)
        return np.asarray(more_s + (WEIGHT - 1.0) * within_s)

    # -- waiting jobs --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of jobs known to wait."""
        return len(self._waiting)

    def came(self, job: Job) -> None:
        """Note a job that was submitted; jobs of others never are."""
        self._waiting.add(job.id)

    def enqueue(self, job: Job, left_s: float, key: float) -> None:
        """Note a job that comes to the queue and would run so long on one machine."""
        self.dequeue(job.id)
        self._waiting.add(job.id)
        self._new[job.id] = job, left_s, key

    def started(self, job: Job, waited_s: float, run_s: float) -> None:
        """Learn from the first start of a job, unless it is one of others."""
        if job.id in self._waiting:
            self._times.started(waited_s, run_s)

    def dequeue(self, job_id: str) -> None:
        """Forget a job that no longer waits."""
        self._waiting.discard(job_id)
        if self._new:
            self._new.pop(job_id, None)
        if self._start_by:
            found = self._start_by.pop(job_id, None)
            if found is not None:
                del self._order[bisect_left(self._order, found)]

    def keep(self, job_ids: AbstractSet[str]) -> None:
        """Forget all but some jobs."""
        for job_id in self._waiting - job_ids:
            self.dequeue(job_id)

    def overdue(self, now_s: float, slowdown: Callable[[Job], float]) -> list[tuple[float, str]]:
        """Return when jobs should have started before now so as not to end in the tail, in order, with their ids.

        `slowdown` says how much longer jobs run than on one machine.
        """
        for job, left_s, key in self._new.values():
            begins_s = self.begins_s(job.gpus)
            if begins_s < math.inf:
                start_by_s = job.submit_s + max(0.0, begins_s - left_s * slowdown(job))
                if start_by_s < key:  # otherwise its turn comes anyway
                    self._number += 1
                    self._start_by[job.id] = start_by_s, self._number, job.id
                    insort(self._order, self._start_by[job.id])
        self._new.clear()
        past = bisect_right(self._order, now_s, key=itemgetter(0))
        return [(start_by_s, job_id) for start_by_s, _, job_id in self._order[:past]]


def late_first(
    queue: Iterable[Waiting], late: Sequence[tuple[float, Waiting]], key: Callable[[Waiting], float]
) -> Iterator[Waiting]:
    """Yield the jobs of a queue, and some of them earlier: those that should have started by some times.

    These go before jobs of at most their priority whose keys are later than that. So no job is passed for ever:
    once its key has passed, only those go before it that should have started by then.
    """
    first = sorted(late, key=lambda each: -each[1].job.priority)  # of equal ones the first stays first
    for waiting in queue:
        while first and first[0][1].job.priority >= waiting.job.priority and first[0][0] < key(waiting):
            yield first.pop(0)[1]
        yield waiting
