"""Looking ahead: what is expected to become of the first waiting jobs in the order of the queue, and in others.

Keys of the queue compare jobs one by one, and not how they fit together: a job that is left alone in the end, with
most GPUs idle, had better start before some that are shorter. So where the first jobs of the queue compete for
GPUs, orders in which one or two of them come earlier are played out as the queue goes on: in order, with later
jobs started early where that does not delay the first that waits. They are tried in the order in which

    completion times / those in the order of the queue + slowdowns / those in the order of the queue

is least, with seconds in the tail counted as often as elsewhere (`tail`). As long as it is not known where the
tail begins, the longest completion time is added, of waiting and running jobs, by that in the order of the queue.

Jobs are taken to need nothing but GPUs, and no more of them to come. Those whose keys have passed keep their
places, so that none is passed for ever; and so do those of another priority, or behind the first eight.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.arrays import Floats, Ints
from cranny.model.job import Job
from cranny.policies.cranny.expected_starts import ExpectedStarts
from cranny.policies.cranny.free_gpus import FreeGpus
from cranny.policies.cranny.preemption import SHORTEST_S, Expected
from cranny.policies.cranny.queue_key import queue_key
from cranny.policies.cranny.tail import WEIGHT, Tail

if TYPE_CHECKING:
    from cranny.policies.cranny import Cranny

MOST = 8  # jobs of which orders are tried


class Lookahead:
    """Finds the order of the first waiting jobs that is expected to cost least."""

    def __init__(
        self,
        policy: "Cranny",
        running: Mapping[str, Expected],
        gpus: FreeGpus,
        expected: ExpectedStarts,
        tail: Tail,
    ) -> None:
        from cranny.policies.cranny import lookahead_kernel as kernel  # compiles: imported where it is used

        self._kernel = kernel
        self._policy = policy
        self._running = running
        self._gpus = gpus
        self._expected = expected
        self._tail = tail

    def in_best_order(
        self, queue: Sequence[Waiting], view: Snapshot, could_start: Callable[[Job], bool]
    ) -> Sequence[Waiting]:
        """Return the jobs of a queue with the first of them in the best order; some of these could start now."""
        due = sum(1 for _ in takewhile(lambda each: self._is_due(each, view.now_s), queue))
        movable = queue[due : due + MOST]
        jobs = list(takewhile(lambda each: each.job.priority == movable[0].job.priority, movable))
        trying = [each.job for each in jobs if could_start(each.job)]
        if len(trying) < 2 or len({view.eligible(each.job) for each in jobs}) > 1:
            return queue
        if sum(job.gpus for job in trying) <= view.available(trying[0]).gpus:
            return queue  # all of them start in any order
        moved = [jobs[place] for place in self._best(jobs, view)]
        return [*queue[:due], *moved, *queue[due + len(jobs) :]]

    def _is_due(self, waiting: Waiting, now_s: float) -> bool:
        """Say whether a job may no longer be passed."""
        return queue_key(waiting.job, self._policy.left_s(waiting), self._policy.patience) <= now_s

    def _best(self, jobs: Sequence[Waiting], view: Snapshot) -> list[int]:
        """Return the best order of some jobs, by their places."""
        count = len(jobs)
        queue = self._kernel.FirstJobs(
            np.array([each.job.gpus for each in jobs], np.int64),
            np.array([self._expected.runs_s(each) for each in jobs]),
            np.array([max(self._policy.length_s(each.job), SHORTEST_S) for each in jobs]),
            np.array([view.now_s - each.job.submit_s for each in jobs]),
            np.array([self._tail.begins_s(each.job.gpus) for each in jobs]),
        )
        free, times_s, gpus = _releases(self._gpus.releases_for(jobs[0].job, view), int(queue.gpus.sum()))
        more = np.zeros(count, np.int64)
        known = self._kernel.ReleaseArrays(np.append(times_s, more), np.append(gpus, more))
        releases = self._kernel.ReleaseArrays(known.time_s.copy(), known.gpus.copy())
        room = self._kernel.Playing(more, more.copy(), np.zeros(count), releases)
        longest_s = -1.0
        if not self._tail.learned:
            longest_s = max((each.jct_s for each in self._running.values()), default=0.0)
        self._kernel.best_order(queue, known, len(times_s), free, view.now_s, WEIGHT, longest_s, room)
        best: list[int] = room.best.tolist()
        return best


def _releases(release_s: Floats, most: int) -> tuple[int, Floats, Ints]:
    """Return how many GPUs are free, and when how many others will be, of the first `most`: no more are of use."""
    first_s = release_s.ravel()
    if most < first_s.size:
        first_s = np.partition(first_s, most)[:most]
    times_s, gpus = np.unique(first_s[first_s < math.inf], return_counts=True)
    free = int(gpus[0]) if len(gpus) and times_s[0] == -math.inf else 0
    return free, times_s[free > 0 :], gpus[free > 0 :]
