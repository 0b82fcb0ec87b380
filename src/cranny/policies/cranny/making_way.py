"""A job on several machines makes way for many that need one machine each.

What all of them gain together is compared with what the large job loses until as many GPUs are expected to be free
again. One alone would seldom make that good.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.snapshot import ALL, Snapshot, Waiting
from cranny.model.arrays import Floats
from cranny.model.plan import Start
from cranny.policies.cranny.placing import Placing
from cranny.policies.cranny.preemption import Expected, Stopping, Waiter
from cranny.policies.cranny.promised_starts import PromisedStarts
from cranny.policies.cranny.restarts import restart_s

LARGE_TRIED = 4  # jobs on several machines that might make way
Queue = Sequence[tuple[Waiting, float]]  # waiting jobs, and how long each is expected to run on one machine


class MadeWay(NamedTuple):
    """A job that is stopped, and what starts in its place."""

    stopped: Expected
    starts: list[Start]


class MakingWay:
    """Looks for a job on several machines to stop, all waiting jobs being able to run on the same machines.

    `release_s` is when each of the GPUs that they can use is expected to be free, (GPUs,) in order, on the
    `eligible` machines. The `head` is the one of them that was promised a start, if one was: it starts as well, or
    nothing is done.
    """

    def __init__(
        self,
        queue: Queue,
        head: str,
        release_s: Floats,
        promises: PromisedStarts,
        rules: Stopping,
        eligible: int = ALL,
    ) -> None:
        self._head = next((place for place, (each, _) in enumerate(queue) if each.job.id == head), None)
        self._release_s = release_s
        self._promises = promises
        self._rules = rules
        self._free = int(np.searchsorted(release_s, rules.now_s))
        others = [each for each in promises.in_order() if each.job_id != head and each.eligible & eligible]
        self._kept = sum(each.gpus for each in others)
        needs = self._kept + np.cumsum([each.job.gpus for each, _ in queue])  # GPUs until each of them can start
        self._queue = queue[: int(np.searchsorted(needs, len(release_s), side="right"))]
        self._waiters = [
            Waiter(each.job, seconds, max(rules.now_s, float(release_s[need - 1])), restart_s(each) + seconds)
            for (each, seconds), need in zip(self._queue, needs.tolist(), strict=False)
        ]

    def find(self, running: Iterable[Expected], placing: Placing, view: Snapshot) -> MadeWay | None:
        """Return what to do; None if nothing pays. The largest job that should makes way."""
        large = sorted(running, key=lambda each: (-each.running.job.gpus, -each.end_s))
        for each in large[:LARGE_TRIED]:
            places = self._fitting(each)
            if not self._pays(each, places):
                continue
            starts = self._starts(each, places, placing, view)
            # Some may have found no machine.
            if self._pays(each, list(starts)) and self._leave_promised(each, starts):
                return MadeWay(each, list(starts.values()))
        return None

    def _fitting(self, each: Expected) -> list[int]:
        """Return the places in the queue of jobs that have room once a job is stopped.

        They must not end too late for starts that were promised when its GPUs would be free.
        """
        latest_s = self._rules.next_promise_s(each.end_s)
        room, places = self._free + each.running.job.gpus, []
        for place, waiter in enumerate(self._waiters):
            if waiter.job.gpus <= room and self._rules.now_s + waiter.runs_s <= latest_s:
                room -= waiter.job.gpus
                places.append(place)
        return places

    def _leave_promised(self, each: Expected, starts: Mapping[int, Start]) -> bool:
        """Say whether waiting jobs take no free GPUs that others were promised, beside those of the job."""
        head = "" if self._head is None else self._queue[self._head][0].job.id
        end_s = self._rules.now_s + max(self._waiters[place].runs_s for place in starts)
        placements = [start.placement for start in starts.values()]
        freed = [each.running.placement]
        return self._promises.allow_in_place(head, placements, freed, self._rules.now_s, end_s)

    def _pays(self, each: Expected, places: Sequence[int]) -> bool:
        """Say whether a job should make way for some waiting ones, until as many GPUs are free again."""
        rules, gpus = self._rules, each.running.job.gpus
        waiters = [self._waiters[place] for place in places]
        ends_s = np.repeat(
            [rules.now_s + waiter.runs_s for waiter in waiters], [waiter.job.gpus for waiter in waiters]
        )
        if len(ends_s) <= self._free or each.end_s <= rules.now_s:  # they need not wait for it
            return False
        if self._head is not None and self._head not in places:
            return False
        its = int(np.searchsorted(self._release_s, each.end_s))
        later_s = np.concatenate([self._release_s[self._free : its], self._release_s[its + gpus :], ends_s])
        missing = self._kept + len(ends_s) - self._free  # GPUs of those that it needs, beside those that stay free
        if missing > len(later_s):
            return False
        resumes_s = float(np.partition(later_s, missing - 1)[missing - 1])
        loss_s = rules.counted_s(each, resumes_s - rules.now_s + each.running.submitted.restart_s)
        return rules.pays(waiters, loss_s, each.slowdowns(loss_s))

    def _starts(self, each: Expected, places: Iterable[int], placing: Placing, view: Snapshot) -> dict[int, Start]:
        """Return the starts of waiting jobs once another one is stopped, by their places in the queue."""
        trial = view.without(each.running.job.id)
        starts: dict[int, Start] = {}
        for place in places:
            (job, attained_gpu_s), seconds = self._queue[place]
            end_s = view.now_s + self._waiters[place].runs_s
            kept = self._promises.kept_from(job.id, view.now_s, end_s)
            found = placing.best(job, trial, seconds, kept)
            if found is not None:
                trial = trial.after(found.placement, job)
                starts[place] = Start(job, found.placement, attained_gpu_s)
        return starts
