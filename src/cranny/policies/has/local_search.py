"""A good solution fast: hand out workers greedily, then let one or two jobs at a time choose anew.

Two jobs that share out their workers between them anew, in every way near the way it is, cover moves and swaps of
workers of all types at once. That leaves little to gain, and costs little: a job's time depends on its numbers of
workers, not on who they are.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.completion_kernel import NOWHERE, Task, cost, tightest, time_s
from cranny.policies._shared.heterogeneous.problem import Floats, Ints

LOOKS = 300_000  # about so many ways are tried in a pass
FARTHEST = 8  # that a job looks from where it is, in workers of a type
PASSES = 100
NOBODY = -1
SAME = 1e-12  # relatively; what is left of rounding
FEW = 12  # jobs, up to which pairs also try every way to fit one of them into a machine


class Aim(NamedTuple):
    """What is minimised: the mean completion time, or (Eq. 34) that and unfairness."""

    beta: float
    ideal: float  # the lowest mean completion time; only looked at where beta is below 1


class Search(NamedTuple):
    """Where a search is."""

    hold: Ints  # (jobs, types) workers of each job
    where: Ints  # (jobs,) machine of a job that keeps to one, or NOWHERE
    room: Ints  # (machines, types) not held by jobs that keep to this machine
    spare: Ints  # (types,) held by nobody
    seconds: Floats  # (jobs,) completion times
    low: Ints  # (types,) from where ways are tried,
    high: Ints  # (types,) and up to where
    one: Ints  # (types,) what the first job would have
    two: Ints  # (types,) what the second job would have
    best: Ints  # (types,) best way for the first job
    changed: Ints  # (jobs + 1,) when a job last changed; after the last job, what time it is
    looked: Ints  # (jobs, jobs) when two jobs last looked for something better together


def begin(task: Task) -> Search:
    """Return memory for a search."""
    jobs, kinds = task.rates.shape
    spare, low, high, one, two, best = np.zeros((6, kinds), dtype=np.int64)
    return Search(
        hold=np.zeros((jobs, kinds), dtype=np.int64),
        where=np.full(jobs, NOWHERE, dtype=np.int64),
        room=task.counts.copy(),
        spare=spare,
        seconds=np.zeros(jobs),
        low=low,
        high=high,
        one=one,
        two=two,
        best=best,
        changed=np.zeros(jobs + 1, dtype=np.int64),
        looked=np.full((jobs, jobs), -1, dtype=np.int64),
    )


def width(jobs: int, kinds: int) -> int:
    """Return how far from where it is a job looks, in workers of a type."""
    pairs = jobs * (jobs - 1) // 2 + jobs
    return max(1, min(FARTHEST, int(((LOOKS / pairs) ** (1 / kinds) - 1) // 2)))


@compiled
def objective(task: Task, aim: Aim, total: float, ratios: float, squares: float) -> float:
    """Return what is minimised: the sum of costs, or Eq. 34 with its sign turned."""
    if aim.beta == 1.0:
        return total
    jobs = len(task.work)
    return -(aim.beta * aim.ideal / total + (1 - aim.beta) * ratios * ratios / (jobs * squares))


@compiled
def _sums(task: Task, seconds: Floats, one: int, two: int) -> tuple[float, float, float]:
    """Return what the objective is made of, for all jobs but these two."""
    total, ratios, squares = 0.0, 0.0, 0.0
    for job in range(len(seconds)):
        if job not in (one, two):
            ratio = seconds[job] / task.equal[job]
            total += cost(task, job, seconds[job])
            ratios += ratio
            squares += ratio * ratio
    return total, ratios, squares


@compiled
def standing(task: Task, aim: Aim, seconds: Floats) -> float:
    """Return the objective of completion times."""
    total, ratios, squares = _sums(task, seconds, NOBODY, NOBODY)
    return objective(task, aim, total, ratios, squares)


@compiled
def greedy(task: Task, search: Search, first: Ints) -> None:
    """Hand out all workers, each to the job that computes so much sooner with it."""
    jobs, kinds = task.rates.shape
    left = 0
    for kind in range(kinds):
        search.spare[kind] = task.totals[kind]
        left += task.totals[kind]
    for job in range(jobs):
        search.where[job] = NOWHERE
        for kind in range(kinds):
            search.hold[job, kind] = 1 if kind == first[job] else 0
        search.spare[first[job]] -= 1
        search.seconds[job] = task.rates[job, first[job]]  # the job's throughput, for a while
    for _ in range(left - jobs):
        gain, to, of = 0.0, -1, -1
        for job in range(jobs):
            rate = search.seconds[job]
            for kind in range(kinds):
                more = task.rates[job, kind]
                sooner = task.weight[job] * task.work[job] * more / (rate * (rate + more))
                if search.spare[kind] > 0 and sooner > gain:
                    gain, to, of = sooner, job, kind
        if to == -1:
            break
        search.hold[to, of] += 1
        search.spare[of] -= 1
        search.seconds[to] += task.rates[to, of]
    adopt(task, search)


@compiled
def adopt(task: Task, search: Search) -> None:
    """Work out room, spare workers and completion times from `hold` and `where`."""
    jobs, kinds = task.rates.shape
    for kind in range(kinds):
        search.spare[kind] = task.totals[kind]
        for machine in range(search.room.shape[0]):
            search.room[machine, kind] = task.counts[machine, kind]
    for job in range(jobs):
        for kind in range(kinds):
            search.spare[kind] -= search.hold[job, kind]
            if search.where[job] != NOWHERE:
                search.room[search.where[job], kind] -= search.hold[job, kind]
    for job in range(jobs):
        alone = search.where[job] != NOWHERE
        search.seconds[job] = _seconds(task, job, search.hold[job], alone)


@compiled
def _seconds(task: Task, job: int, held: Ints, alone: bool) -> float:  # noqa: FBT001 - a kernel
    """Return a job's time with these workers; infinite if one of them cannot run it, or there are none."""
    count, rate = 0, 0.0
    for kind in range(len(held)):
        if held[kind] > 0 and task.rates[job, kind] == 0.0:
            return np.inf
        count += held[kind]
        rate += held[kind] * task.rates[job, kind]
    return time_s(task, job, count, rate, alone) if count > 0 else np.inf


@compiled
def _home(task: Task, job: int, held: Ints, room: Ints) -> int:
    """Return a machine for all of these workers, if there is one and the job gains by it."""
    count = 0
    for kind in range(len(held)):
        count += held[kind]
    if count < 2 or count > task.largest or task.between[job] <= task.inside[job]:
        return NOWHERE
    return tightest(room, held)


@compiled
def _next(at: Ints, low: Ints, high: Ints) -> bool:
    """Go to the next way in a box; False after the last."""
    for kind in range(len(at)):
        if at[kind] < high[kind]:
            at[kind] += 1
            return True
        at[kind] = low[kind]
    return False


@compiled
def _leave(search: Search, job: int) -> None:
    """Take a job's workers back."""
    for kind in range(len(search.spare)):
        search.spare[kind] += search.hold[job, kind]
        if search.where[job] != NOWHERE:
            search.room[search.where[job], kind] += search.hold[job, kind]


@compiled
def _enter(task: Task, search: Search, job: int, held: Ints, moved: bool) -> None:  # noqa: FBT001 - a kernel
    """Give a job workers; if they are others than before, on one machine if there is one for them."""
    if moved:
        search.where[job] = _home(task, job, held, search.room)
        search.changed[job] = search.changed[-1] = search.changed[-1] + 1
    for kind in range(len(held)):
        search.hold[job, kind] = held[kind]
        search.spare[kind] -= held[kind]
        if search.where[job] != NOWHERE:
            search.room[search.where[job], kind] -= held[kind]
    search.seconds[job] = _seconds(task, job, held, search.where[job] != NOWHERE)


@compiled
def _first(task: Task, search: Search, one: int, two: int, box: int) -> bool:
    """Go to the first way for a job: of a box around where it is, or (0) of those that fit into a machine."""
    for kind in range(len(search.spare)):
        # What it may have: what the two hold, or all that is free once it has left.
        most = search.hold[one, kind] + search.hold[two, kind] if two != NOBODY else search.spare[kind]
        if task.rates[one, kind] == 0.0:
            most = 0
        search.low[kind] = max(0, search.hold[one, kind] - box)
        search.high[kind] = most if box == 0 else min(most, search.hold[one, kind] + box)
        search.one[kind] = search.low[kind]
    return box > 0 or _pack(task, search, 0)


@compiled
def _pack(task: Task, search: Search, number: int) -> bool:
    """Go to a way that fits into a machine; False if there are no more."""
    if number >= task.packs.shape[0]:
        return False
    for kind in range(len(search.one)):
        search.one[kind] = task.packs[number, kind]
    return True


@compiled
def _within(search: Search) -> bool:
    """Say whether there are the workers of the way where we are."""
    fits = True
    for kind in range(len(search.one)):
        fits &= search.one[kind] <= search.high[kind]
    return fits


@compiled
def _value(task: Task, search: Search, aim: Aim, one: int, two: int, sums: tuple[float, float, float]) -> float:
    """Return the objective if the first job had `one`, and the second what that leaves of theirs."""
    at = _home(task, one, search.one, search.room)
    seconds = _seconds(task, one, search.one, at != NOWHERE)
    ratio = seconds / task.equal[one]
    total, ratios, squares = sums[0] + cost(task, one, seconds), sums[1] + ratio, sums[2] + ratio * ratio
    if two != NOBODY and seconds < np.inf:
        for kind in range(len(search.one)):
            search.two[kind] = search.hold[one, kind] + search.hold[two, kind] - search.one[kind]
            if at != NOWHERE:
                search.room[at, kind] -= search.one[kind]
        seconds = _seconds(task, two, search.two, _home(task, two, search.two, search.room) != NOWHERE)
        if at != NOWHERE:
            for kind in range(len(search.one)):
                search.room[at, kind] += search.one[kind]
        ratio = seconds / task.equal[two]
        total, ratios, squares = total + cost(task, two, seconds), ratios + ratio, squares + ratio * ratio
    return objective(task, aim, total, ratios, squares) if seconds < np.inf else np.inf


@compiled
def _choose(task: Task, search: Search, aim: Aim, one: int, two: int, box: int, now: float) -> float:
    """Let a job choose workers anew, and another (or NOBODY) take what it leaves; return the objective."""
    kinds, others = len(search.spare), _sums(task, search.seconds, one, two)
    _leave(search, one)
    if two != NOBODY:
        _leave(search, two)
    for kind in range(kinds):
        search.best[kind] = search.hold[one, kind]
    best, number = now, 0
    more = _first(task, search, one, two, box)
    while more:
        if _within(search):
            value = _value(task, search, aim, one, two, others)
            if value < best - SAME * abs(best):
                best = value
                for kind in range(kinds):
                    search.best[kind] = search.one[kind]
        number += 1
        more = _next(search.one, search.low, search.high) if box else _pack(task, search, number)
    moved = best < now  # otherwise all is as it was, machines too
    if two != NOBODY:
        for kind in range(kinds):
            search.two[kind] = search.hold[one, kind] + search.hold[two, kind] - search.best[kind]
    _enter(task, search, one, search.best, moved)
    if two != NOBODY:
        _enter(task, search, two, search.two, moved)
    return best


@compiled
def climb(task: Task, search: Search, aim: Aim, box: int) -> float:
    """Improve until no job and no pair of jobs can; return the objective."""
    jobs = len(search.seconds)
    now = standing(task, aim, search.seconds)
    for _ in range(PASSES):
        before = now
        for one in range(jobs):
            for two in range(NOBODY, jobs):
                if two == one:
                    continue
                if two != NOBODY and search.looked[one, two] >= max(search.changed[one], search.changed[two]):
                    continue
                for reach in (box, 0):
                    if two != NOBODY and (two < one if reach else jobs > FEW):
                        continue
                    now = _choose(task, search, aim, one, two, reach, now)
                if two != NOBODY:
                    search.looked[one, two] = search.changed[jobs]
        if now >= before - SAME * abs(before):
            break
    return now
