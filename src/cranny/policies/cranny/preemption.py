"""A running job to stop for a while, so that a waiting one can run in its place: only if more is gained than lost.

The waiting job gains the time until it is expected to start otherwise; the other loses the time that it runs, and
its own restart. The sum of slowdowns, which are seconds by the length of their job, must fall, and for each second
lost at least `margin` must be gained. A second that a job loses beyond its own length counts as often as it has
lost that length, and in all it loses at most as long as it runs where it is placed, or `MOST_LOST` times as long
if it does not end in the tail by that: none is stopped for ever. A job that does not allow it is not stopped.

What others gain is known less well than that. So where a restart takes more than a small part of the length of
its job, what that loses counts twice. And as long as it is not known where the tail begins, the longest completion
time that is expected of any job stands for it.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.constraints import Constraints
from cranny.core.machine_set import within
from cranny.core.snapshot import Snapshot
from cranny.model.arrays import Floats, Ints
from cranny.model.job import Job
from cranny.policies.cranny.free_gpus import FreeGpus
from cranny.policies.cranny.tail import Tail

SHORT_RESTART = 0.15  # of the length of a job: with longer restarts GPUs are not divided
LONG_RESTART = 2.0  # what jobs with longer restarts lose counts so many times
MOST_LOST = 4.0  # times as long as a job runs, that it may lose if it does not end in the tail; else once
SHORTEST_S = 1.0  # jobs count as at least so long when seconds are compared with their lengths


class Expected(NamedTuple):
    """A running job, how long it runs in all on one machine, and when it is expected to end."""

    running: Running
    length_s: float
    end_s: float
    left_s: float  # of its length, when it started
    slowdown: float

    @property
    def machine(self) -> int | None:
        """The machine that it runs on, if that is one."""
        held = self.running.held
        return next(iter(held)) if len(held) == 1 else None

    def is_estimate(self, now_s: float) -> bool:
        """Say whether its end is only an estimate: it does not say how long it runs, or runs longer than that."""
        return self.running.submitted.duration_s is None or self.end_s <= now_s

    @property
    def jct_s(self) -> float:
        """Its completion time, as expected."""
        return self.end_s - self.running.submitted.submit_s

    def slowdowns(self, seconds: float) -> float:
        """Return by how much its slowdown grows if it takes so many seconds longer."""
        return seconds / max(self.length_s, SHORTEST_S)

    def left_after(self, attained_gpu_s: float) -> float:
        """Return what is left of its length once it has attained so many GPU-seconds in all."""
        ran_s = (attained_gpu_s - self.running.attained_gpu_s) / self.running.job.gpus
        if self.running.attained_gpu_s:
            ran_s = max(0.0, ran_s - self.running.submitted.restart_s)
        return max(0.0, self.left_s - ran_s / self.slowdown)


class Waiter(NamedTuple):
    """A waiting job: its length on one machine, when it would start otherwise, and how long it runs."""

    job: Job
    length_s: float
    start_s: float
    runs_s: float

    def running_for(self, runs_s: float) -> "Waiter":
        """Return the same job if it runs so long where it is placed now: if that is longer, it gains less."""
        return self._replace(start_s=self.start_s + self.runs_s - runs_s, runs_s=runs_s)


def start_in_turn_s(gpus: int, before: Sequence[tuple[int, float]], release_s: Floats, now_s: float) -> float:
    """Return when so many GPUs are free once others have started in turn, and given back theirs when they ended.

    Of these, `before`, each has so many GPUs for so many seconds; one that needs more than there are is passed.
    `release_s` is when each GPU is expected to be free, inf if it never is.
    """
    needed = gpus + sum(each for each, _ in before)
    first_s = release_s.ravel()
    if needed < first_s.size:
        first_s = np.partition(first_s, needed)[:needed]
    first_s = np.sort(first_s)
    usable = int(np.searchsorted(first_s, math.inf))
    for each, seconds in before:
        if each <= usable:
            first_s[:each] = max(now_s, float(first_s[each - 1])) + seconds
            first_s.sort()
    return max(now_s, float(first_s[gpus - 1])) if gpus <= usable else math.inf


class Stopping(NamedTuple):
    """What decides which running jobs may be stopped."""

    now_s: float
    promised_s: Sequence[float]  # starts promised to other jobs, in order
    lost_s: Mapping[str, float]  # what jobs have lost by being stopped, by their ids
    margin: float  # seconds that must be gained for each that is lost
    may_stop: Callable[[str], bool]  # whether a job allows it, by its id
    tail: Tail
    slowest: Callable[[Job], float]  # how much longer than on one machine a job may take where it goes on
    longest_s: float = math.inf  # the longest completion time expected, until it is known where the tail begins

    def loss_s(self, each: Expected, waiter: Waiter) -> float:
        """Return what counts as lost if a job is stopped as long as another one runs; inf if it may not be."""
        loss_s = waiter.runs_s + each.running.submitted.restart_s
        return self.counted_s(each, loss_s) if each.end_s - self.now_s > loss_s else math.inf

    def counted_s(self, each: Expected, loss_s: float) -> float:
        """Return as how many seconds a loss counts: more for a job that has lost much, or takes long in all.

        It is inf if the job may not be stopped.
        """
        if not self.may_lose(each, loss_s):
            return math.inf
        job = each.running.submitted
        lost_s = self.lost_s.get(job.id, 0.0) + loss_s
        counted_s = self.tail.counted_s(each.running.job.gpus, each.jct_s, loss_s, self.longest_s)
        long = LONG_RESTART if job.restart_s > SHORT_RESTART * each.length_s else 1.0
        return counted_s * long * max(1.0, each.slowdowns(lost_s))

    def may_lose(self, each: Expected, loss_s: float) -> bool:
        """Say whether a job may be stopped and lose so many seconds.

        One that has just started, or is still restarting, is not: a decision that undoes itself might never end.
        """
        job = each.running.submitted
        restarting_s = job.restart_s if each.running.attained_gpu_s else 0.0
        return (
            each.running.started_s + restarting_s < self.now_s
            and self.may_stop(job.id)
            and loss_s <= self.most_s(each)
        )

    def most_s(self, each: Expected) -> float:
        """Return how much a job may lose from now on.

        In all that is as long as it runs, and `MOST_LOST` times as long if it does not end in the tail; but its
        GPUs must not come too late for a start that was promised to others.
        """
        lost_s = self.lost_s.get(each.running.job.id, 0.0)
        run_s = each.length_s * each.slowdown
        outside_s = min(MOST_LOST * run_s - lost_s, self.tail.begins_s(each.running.job.gpus) - each.jct_s)
        end_s = each.end_s + self._slower_s(each)
        return min(max(run_s - lost_s, outside_s), self.next_promise_s(each.end_s) - end_s)

    def _slower_s(self, each: Expected) -> float:
        """Return how much longer what is left of a job may take where it goes on."""
        longer = self.slowest(each.running.submitted) / each.slowdown
        return max(0.0, each.end_s - self.now_s) * max(0.0, longer - 1.0)

    def next_promise_s(self, end_s: float) -> float:
        """Return the first start that was promised at a time or later; inf if there is none."""
        first = bisect_left(self.promised_s, end_s)
        return self.promised_s[first] if first < len(self.promised_s) else math.inf

    def pays(self, waiters: Sequence[Waiter], seconds: float, slowdowns: float) -> bool:
        """Say whether waiting jobs gain more in all than others lose."""
        gains_s = [waiter.start_s - self.now_s for waiter in waiters]
        gains = [
            gain_s / max(waiter.length_s, SHORTEST_S) for gain_s, waiter in zip(gains_s, waiters, strict=True)
        ]
        return seconds * self.margin < math.fsum(gains_s) and slowdowns < math.fsum(gains)


def in_place_of(
    waiter: Waiter, running: Iterable[Expected], free: Ints, eligible: int, rules: Stopping
) -> Expected | None:
    """Return the job on one machine that another runs in place of; None if none pays.

    It is the one that leaves the fewest GPUs idle, and of these the first to end. `free` is (machines,), of which
    the `eligible` ones, as a set, can run the waiting job.
    """
    if not rules.pays((waiter,), waiter.runs_s, 0.0):
        return None
    best, least = None, (0, 0.0)
    for each in running:
        machine = each.machine
        if machine is None or not eligible >> machine & 1:
            continue
        left = int(free[machine]) + each.running.job.gpus - waiter.job.gpus
        preference = (left, each.end_s)
        if left < 0 or (best is not None and preference >= least):
            continue
        loss_s = rules.loss_s(each, waiter)
        if rules.pays((waiter,), loss_s, each.slowdowns(loss_s)):
            best, least = each, preference
    return best


def in_place_of_many(waiter: Waiter, missing: int, running: Iterable[Expected], rules: Stopping) -> list[Expected]:
    """Return jobs to stop for one that needs several machines and is short of GPUs; none if that does not pay.

    The largest are stopped first, and of these the first to end.
    """
    if not rules.pays((waiter,), waiter.runs_s, 0.0):
        return []
    chosen: list[Expected] = []
    seconds = slowdowns = 0.0
    for each in sorted(running, key=lambda each: (-each.running.job.gpus, each.end_s)):
        if missing <= 0:
            break
        loss_s = rules.loss_s(each, waiter)
        if rules.pays((waiter,), seconds + loss_s, slowdowns + each.slowdowns(loss_s)):
            seconds += loss_s
            slowdowns += each.slowdowns(loss_s)
            missing -= each.running.job.gpus
            chosen.append(each)
    return chosen if missing <= 0 else []


def in_place_within(
    constraints: Constraints,
    waiter: Waiter,
    running: Collection[Expected],
    gpus: FreeGpus,
    view: Snapshot,
    rules: Stopping,
) -> list[Expected]:
    """Return jobs to stop on machines that the constraints of a job allow, in one rack if it needs that."""
    job = waiter.job
    if waiter.start_s == math.inf or constraints.spread > 1:
        return []  # it could not start if nothing ran, or needs GPUs of several racks at once
    allowed = view.eligible(job) & view.up_machines & constraints.allowed(view.cluster)
    if job.gpus <= int(gpus.size.max()):
        found = in_place_of(waiter, running, gpus.free, allowed, rules)
        return [] if found is None else [found]
    parts = [allowed]
    if constraints.same_rack == "required":
        parts = [within(allowed, *span) for span in view.cluster.rack_spans]
    free = [view.available(job).only(part).gpus for part in parts]
    for number in sorted(range(len(parts)), key=lambda number: -free[number]):
        there = [each for each in running if all(parts[number] >> machine & 1 for machine in each.running.held)]
        chosen = in_place_of_many(waiter, job.gpus - free[number], there, rules)
        if chosen:
            return chosen
    return []
