"""A running job to stop for a while, so that a waiting one can run in its place: only if more is gained than lost.

The waiting job gains the time until it is expected to start otherwise; the other loses the time that it runs, and
its own restart, and then goes on where it was. Both the sum of these seconds and the sum of slowdowns, which are
seconds by the length of their job, must fall. In all a job loses at most as long as it runs by being stopped, so
none is stopped for ever.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cranny.core.accounting import Running
from cranny.model.arrays import Ints


class Expected(NamedTuple):
    """A running job, how long it runs in all on one machine, and when it is expected to end."""

    running: Running
    length_s: float
    end_s: float
    left_s: float  # of its length, when it started
    slowdown: float

    def left_after(self, attained_gpu_s: float) -> float:
        """Return what is left of its length once it has attained so many GPU-seconds in all."""
        ran_s = (attained_gpu_s - self.running.attained_gpu_s) / self.running.job.gpus
        if self.running.attained_gpu_s:
            ran_s = max(0.0, ran_s - self.running.submitted.restart_s)
        return max(0.0, self.left_s - ran_s / self.slowdown)


class Waiter(NamedTuple):
    """A waiting job, how long it runs, and when it is expected to start otherwise."""

    gpus: int
    length_s: float
    start_s: float


def victim(
    waiter: Waiter,
    running: Iterable[Expected],
    free: Ints,
    now_s: float,
    least_end_s: float,
    lost_s: Mapping[str, float],
    margin: float,
) -> Expected | None:
    """Return the job to stop: that which leaves the fewest GPUs idle, and of these the longest; None if none pays.

    Only jobs that are expected to end after `least_end_s` are stopped, since others were promised the GPUs of those
    that end before. `free` has the free GPUs of machines, and `lost_s` what jobs have lost already.
    """
    gain_s = (waiter.start_s - now_s) / margin
    if gain_s <= waiter.length_s:
        return None
    best, least = None, (0, 0.0)
    for each in running:
        held, job = each.running.held, each.running.submitted
        if len(held) > 1 or each.end_s <= least_end_s:
            continue
        loss_s = waiter.length_s + job.restart_s
        left = int(free[next(iter(held))]) + job.gpus - waiter.gpus
        if left < 0 or loss_s >= min(gain_s, each.end_s - now_s):
            continue
        if loss_s / each.length_s >= gain_s / max(waiter.length_s, 1.0):
            continue
        preference = (left, -each.length_s)
        if lost_s.get(job.id, 0.0) + loss_s <= each.length_s and (best is None or preference < least):
            best, least = each, preference
    return best


def victims(
    waiter: Waiter,
    missing: int,
    running: Iterable[Expected],
    now_s: float,
    least_end_s: float,
    lost_s: Mapping[str, float],
    margin: float,
) -> list[Expected]:
    """Return jobs to stop for one that needs several machines, the largest first; none if that does not pay."""
    gain_s = (waiter.start_s - now_s) / margin
    able = []
    for each in running:
        job = each.running.submitted
        loss_s = waiter.length_s + job.restart_s
        if each.end_s > max(least_end_s, now_s + loss_s) and lost_s.get(job.id, 0.0) + loss_s <= each.length_s:
            able.append((job.gpus, loss_s, each))
    able.sort(key=lambda one: (-one[0], one[1]))
    chosen: list[Expected] = []
    for gpus, loss_s, each in able:
        if missing <= 0:
            break
        gain_s -= loss_s
        if gain_s <= 0:
            return []
        missing -= gpus
        chosen.append(each)
    if missing > 0:
        return []
    slowdowns = sum((waiter.length_s + each.running.submitted.restart_s) / each.length_s for each in chosen)
    return chosen if slowdowns * margin < (waiter.start_s - now_s) / max(waiter.length_s, 1.0) else []
