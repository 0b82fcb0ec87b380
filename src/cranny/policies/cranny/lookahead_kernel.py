"""Orders of a few waiting jobs, compiled: each is played out, and the one expected to cost least is found."""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled, inlined, inside
from cranny.model.arrays import Floats, Ints

ROUNDS = 2  # jobs that come earlier than in the queue, at most
GAIN = 1e-6  # of the cost: less is no reason for another order


class FirstJobs(NamedTuple):
    """Waiting jobs, (jobs,) each, in order of the queue."""

    gpus: Ints
    run_s: Floats  # how long each runs once it has started
    length_s: Floats  # on one machine, by which its completion time is divided
    waited_s: Floats
    tail_s: Floats  # the completion time from which on seconds count `weight` times


class ReleaseArrays(NamedTuple):
    """When GPUs in use are expected to be free: (events,) in order, with room for one more event a job."""

    time_s: Floats
    gpus: Ints


class Playing(NamedTuple):
    """Room to compute in: an order and the best one, (jobs,); the starts in it, and releases as jobs start."""

    order: Ints
    best: Ints
    start_s: Floats
    releases: ReleaseArrays


@inlined
def _first_at(releases: ReleaseArrays, first: int, events: int, free: int, gpus: int) -> tuple[float, int]:
    """Return when so many GPUs are free, and how many of these are left over; inf if they never are."""
    time_s = np.inf
    for event in range(first, events):
        if free >= gpus and releases.time_s[event] > time_s:
            break
        free += releases.gpus[event]
        time_s = releases.time_s[event]
    return (time_s, free - gpus) if free >= gpus else (np.inf, 0)


@inlined
def _insert(releases: ReleaseArrays, first: int, events: int, time_s: float, gpus: int) -> None:
    """Add the end of a job to the releases that are still to come."""
    place = events
    while place > first and releases.time_s[place - 1] > time_s:
        releases.time_s[place] = releases.time_s[place - 1]
        releases.gpus[place] = releases.gpus[place - 1]
        place -= 1
    releases.time_s[place], releases.gpus[place] = time_s, gpus


@inside
def _play(queue: FirstJobs, known: ReleaseArrays, busy: int, free: int, now_s: float, room: Playing) -> None:
    """Start jobs in order as GPUs become free; a later one earlier, if that does not delay the first that waits.

    The first `busy` of the known releases are of jobs that run. A job for which there are too few GPUs starts
    never, and no other waits for it.
    """
    releases, start_s = room.releases, room.start_s
    for each in range(busy):
        releases.time_s[each], releases.gpus[each] = known.time_s[each], known.gpus[each]
    start_s[:] = np.inf
    event, events, missing = 0, busy, len(start_s)
    while True:
        shadow_s, left = np.inf, 0  # when the first job that does not fit starts, and the GPUs that it leaves then
        waits = False
        for job in room.order:
            if start_s[job] < np.inf:
                continue
            gpus, end_s = queue.gpus[job], now_s + queue.run_s[job]
            if gpus <= free and (not waits or end_s <= shadow_s or gpus <= left):
                if waits and end_s > shadow_s:
                    left -= gpus
                free -= gpus
                start_s[job] = now_s
                missing -= 1
                _insert(releases, event, events, end_s, gpus)
                events += 1
            elif not waits:
                shadow_s, left = _first_at(releases, event, events, free, gpus)
                waits = shadow_s < np.inf
        if missing == 0 or event == events:
            return
        now_s = releases.time_s[event]
        while event < events and releases.time_s[event] <= now_s:
            free += releases.gpus[event]
            event += 1


@inside
def _sums(queue: FirstJobs, weight: float, now_s: float, start_s: Floats) -> tuple[float, float, float]:
    """Return completion times, slowdowns, and the longest completion time, of the jobs that ever start."""
    jct_s, slowdowns, longest_s = 0.0, 0.0, 0.0
    for job in range(len(start_s)):
        if start_s[job] < np.inf:
            one_s = queue.waited_s[job] + start_s[job] - now_s + queue.run_s[job]
            jct_s += one_s + (weight - 1.0) * max(0.0, one_s - queue.tail_s[job])
            slowdowns += one_s / queue.length_s[job]
            longest_s = max(longest_s, one_s)
    return jct_s, slowdowns, longest_s


@compiled
def best_order(
    queue: FirstJobs,
    known: ReleaseArrays,
    busy: int,
    free: int,
    now_s: float,
    weight: float,
    longest_s: float,
    room: Playing,
) -> float:
    """Find the order that is expected to cost least, and write it to `room.best`; return its cost.

    An order costs what completion times and slowdowns come to in it, each by what they come to in that of the
    queue. So does the longest completion time, unless `longest_s`, that of jobs which run, is -1.
    """
    jobs = len(queue.gpus)
    order, best = room.order, room.best
    for job in range(jobs):
        order[job] = best[job] = job
    _play(queue, known, busy, free, now_s, room)
    jct_s, slowdowns, most_s = _sums(queue, weight, now_s, room.start_s)
    most_s = max(most_s, longest_s)
    least = start = 3.0 if longest_s >= 0.0 else 2.0
    if jct_s <= 0.0:
        return least  # none of them ever starts
    for _ in range(ROUNDS):
        before, later, earlier = least, 0, 0
        for late in range(1, jobs):
            for early in range(late):
                _move(best, late, early, order)
                _play(queue, known, busy, free, now_s, room)
                sums = _sums(queue, weight, now_s, room.start_s)
                cost = sums[0] / jct_s + sums[1] / slowdowns
                if start > 2.0:
                    cost += max(sums[2], longest_s) / most_s
                if cost < least - GAIN:
                    least, later, earlier = cost, late, early
        if least == before:
            break
        _move(best, later, earlier, order)
        for place in range(jobs):
            best[place] = order[place]
    return least


@inlined
def _move(order: Ints, late: int, early: int, moved: Ints) -> None:
    """Write an order in which one job comes earlier."""
    for place in range(len(order)):
        before = early < place <= late
        moved[place] = order[late] if place == early else order[place - before]
