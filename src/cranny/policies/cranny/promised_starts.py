"""Starts that waiting jobs were promised, and which other jobs may start without delaying them.

At the time of a promise enough GPUs are expected to be free, counted as batch schedulers do (EASY): wherever they
are, and after all that was promised before. A job may start if it ends by then, or if enough are left anyway.

A job that could start, and chooses to wait for better machines, has these kept for it. What others were promised
before it chose comes first: such a job starts only if it delays none of them. Its machines may be taken by any job
once that is due which did not choose its start.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from cranny.core.machine_set import members
from cranny.core.snapshot import ALL
from cranny.model.arrays import Floats
from cranny.model.placement import Placement

SAME_S = 1e-6  # times that differ by less are the same: those expected and those that come are rounded differently


class PromisedStart(NamedTuple):
    """A waiting job starts by a certain time, on some of certain machines if it waits for these."""

    job_id: str
    gpus: int
    start_s: float
    machines: tuple[int, ...] = ()
    gpus_on: tuple[int, ...] = ()  # GPUs that it needs of each of them; if it does not say, all
    constrained: bool = False  # it can start on no others
    chosen: bool = False  # it could have started elsewhere
    eligible: int = ALL  # machines that have its type of GPU, in its partition, as a set

    def is_due(self, now_s: float) -> bool:
        """Say whether the job should have started by now."""
        return self.start_s <= now_s + SAME_S


class PromisedStarts:
    """Promises to waiting jobs; `release_s` says when each GPU is expected to be free, (machines, GPUs)."""

    def __init__(self, release_s: Callable[[], Floats]) -> None:
        self._release_s = release_s
        self.by_job: dict[str, PromisedStart] = {}  # by the ids of jobs, in the order in which they were made
        self._extra: dict[str, int] = {}  # GPUs that are left at each promise, until something changes
        self._kept: dict[str, int] = {}  # GPUs kept at each for it and those before, until promises change

    def __contains__(self, job_id: object) -> bool:
        return job_id in self.by_job

    def __len__(self) -> int:
        return len(self.by_job)

    def in_order(self) -> list[PromisedStart]:
        """Return all promises, the earliest first."""
        return sorted(self.by_job.values(), key=lambda promise: promise.start_s)

    def make(self, promise: PromisedStart) -> None:
        """Promise a job to start, in place of what it was promised before; what it chooses is a new promise."""
        if promise.chosen:
            self.by_job.pop(promise.job_id, None)
        self.by_job[promise.job_id] = promise
        self._promises_changed()

    def set_eligible(self, promise: PromisedStart, eligible: int) -> None:
        """Note which machines a job can use: what a log keeps does not say."""
        if promise.eligible != eligible:
            self.by_job[promise.job_id] = promise._replace(eligible=eligible)
            self._promises_changed()

    def withdraw(self, job_id: str) -> bool:
        """Forget what a job was promised; say whether it was promised anything."""
        self._promises_changed()
        return self.by_job.pop(job_id, None) is not None

    def must_keep(self, job_id: str) -> bool:
        """Say whether a job was promised a start that it did not choose."""
        promise = self.by_job.get(job_id)
        return promise is not None and not promise.chosen

    def must_keep_until(self, job_id: str, now_s: float, start_s: float) -> bool:
        """Say whether a job was promised an earlier start than some time, which is still to come."""
        return self.must_keep(job_id) and not self.is_due(job_id, now_s) and self.by_job[job_id].start_s < start_s

    def is_due(self, job_id: str, now_s: float) -> bool:
        """Say whether a job must start now as it was promised; before that it must not delay other promises."""
        return self.must_keep(job_id) and self.by_job[job_id].is_due(now_s)

    def kept_from(self, job_id: str, now_s: float, end_s: float) -> dict[int, int]:
        """Return the machines kept for others than a job that ends then, and how many GPUs are left for it.

        What others chose is kept for them until the start that it was promised itself is due.
        """
        due = self.is_due(job_id, now_s)
        return self._left_on((each for each in self.by_job.values() if not (due and each.chosen)), job_id, end_s)

    def kept_for_constrained(self, job_id: str, end_s: float) -> dict[int, int]:
        """Return the same of machines promised to jobs that can start on no others."""
        bound = (each for each in self.by_job.values() if each.constrained and not each.chosen)
        return self._left_on(bound, job_id, end_s)

    def _left_on(self, promises: Iterable[PromisedStart], job_id: str, end_s: float) -> dict[int, int]:
        """Return the GPUs that a job may have of machines promised to others for starts before it ends."""
        left: dict[int, int] = {}
        needed: Counter[int] = Counter()
        release_s: Floats | None = None
        for promise in promises:
            if promise.job_id == job_id or end_s <= promise.start_s:
                continue
            if not promise.gpus_on:
                left |= dict.fromkeys(promise.machines, 0)
                continue
            release_s = self._release_s() if release_s is None else release_s
            for machine, gpus in zip(promise.machines, promise.gpus_on, strict=True):
                free = int(np.count_nonzero(release_s[machine] <= promise.start_s))
                left[machine] = min(left.get(machine, free), free)
                needed[machine] += gpus
        return {machine: max(0, free - needed[machine]) for machine, free in left.items()}

    def _before(self, job_id: str) -> Iterator[PromisedStart]:
        """Yield the promises to others that come before that to a job: not what they chose after it was made."""
        later = False
        for promise in self.by_job.values():
            if promise.job_id == job_id:
                later = not promise.chosen
            elif not (later and promise.chosen):
                yield promise

    def changed(self) -> None:
        """Note that GPUs were taken or given back."""
        self._extra.clear()

    def earliest_s(self, job_id: str, gpus: int, now_s: float, usable: Floats, eligible: int = ALL) -> float:
        """Return when so many of the `usable` GPUs are expected to be free beside what others were promised.

        All that was promised before on some of the `eligible` machines counts, whenever it is: whether it will
        have ended by then is not known.
        """
        others = [each for each in self._before(job_id) if each.eligible & eligible]
        need = gpus + sum(each.gpus for each in others)
        if need > usable.size:
            return math.inf
        if any(each.machines for each in others):
            usable = usable.copy()
            for each in others:
                if each.machines:  # what is free there is of no use to others before it starts
                    usable[list(each.machines)] = np.maximum(usable[list(each.machines)], each.start_s)
        return max(now_s, float(np.partition(usable, need - 1, axis=None)[need - 1]))

    def allow(self, job_id: str, gpus: int, now_s: float, end_s: float, eligible: int = ALL) -> bool:
        """Say whether a job may start now and end then without delaying what others were promised before.

        It starts on some of the `eligible` machines.
        """
        return all(
            gpus <= left for promise, left in self._delayed(job_id, now_s, end_s) if promise.eligible & eligible
        )

    def allow_in_place(
        self,
        job_id: str,
        starts: Collection[Placement],
        stopped: Collection[Placement],
        now_s: float,
        end_s: float,
    ) -> bool:
        """Say the same of jobs that start where others are stopped, which would run on until then."""

        def taken(promise: PromisedStart) -> int:
            freed = sum(_on(each, promise.eligible) for each in stopped)
            return sum(_on(each, promise.eligible) for each in starts) - freed

        return all(taken(promise) <= max(0, left) for promise, left in self._delayed(job_id, now_s, end_s))

    def _delayed(self, job_id: str, now_s: float, end_s: float) -> Iterator[tuple[PromisedStart, int]]:
        """Yield the promises that a job would overlap from now to its end, and the GPUs that each leaves it.

        One that is due already leaves none.
        """
        own = self.by_job.get(job_id)
        for promise in self.by_job.values():
            if promise is own and own.is_due(now_s):
                return  # those after it were promised beside it
            if promise is own or end_s <= promise.start_s:
                continue
            own_gpus = own.gpus if own is not None and own.start_s <= promise.start_s else 0
            yield promise, 0 if promise.is_due(now_s) else self._left_at(promise) + own_gpus

    def allow_move(self, old: Placement, old_end_s: float, new: Placement, end_s: float) -> bool:
        """Say whether a running job holds no more GPUs of promises elsewhere, where it ends at another time."""
        return all(
            _held(new, end_s, promise) <= _held(old, old_end_s, promise) for promise in self.by_job.values()
        )

    def _promises_changed(self) -> None:
        self._extra.clear()
        self._kept.clear()

    def _left_at(self, promise: PromisedStart) -> int:
        """Return the GPUs that are left at the time of a promise once it and those before are kept."""
        if promise.job_id not in self._extra:
            if not self._kept:
                self._kept = _kept(list(self.by_job.values()))
            release_s = self._release_s()
            its = release_s if promise.eligible == ALL else release_s[list(members(promise.eligible))]
            free = int(np.count_nonzero(its <= promise.start_s))
            for other in self.by_job.values():
                if other.constrained and other.start_s > promise.start_s and other.eligible & promise.eligible:
                    free -= int(np.count_nonzero(release_s[list(other.machines)] <= promise.start_s))
            self._extra[promise.job_id] = free - self._kept[promise.job_id]
        return self._extra[promise.job_id]


def _kept(promises: Sequence[PromisedStart]) -> dict[str, int]:
    """Return the GPUs kept at each promise for it and for those before that want some of the same machines."""
    if len({each.eligible for each in promises}) > 1:
        return {
            promise.job_id: sum(
                each.gpus
                for each in promises
                if each.start_s <= promise.start_s and each.eligible & promise.eligible
            )
            for promise in promises
        }
    in_order = sorted(promises, key=lambda each: each.start_s)
    starts = [each.start_s for each in in_order]
    kept = list(accumulate((each.gpus for each in in_order), initial=0))
    return {each.job_id: kept[bisect_right(starts, each.start_s)] for each in in_order}


def _held(placement: Placement, end_s: float, promise: PromisedStart) -> int:
    """Return how many GPUs that were promised a job that ends then holds when the promise is due."""
    if end_s <= promise.start_s:
        return 0
    return _on(placement, promise.eligible)


def _on(placement: Placement, machines: int) -> int:
    """Return how many GPUs of a placement are on some machines, as a set."""
    if machines == ALL:
        return len(placement.machines)
    return sum(machines >> machine & 1 for machine in placement.machines)
