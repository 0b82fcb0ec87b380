"""The search of Table 1, compiled: rotations of circles with the least demand above a link's capacity.

All demands are cut into the same angles. A row holds a job's demand twice in a row, so that a rotation by k
angles reads it from `angles - k` on. The *excess* of a demand is its part above the capacity, summed over the
angles.

Excess grows faster the more is there already. So what a job adds at least to a part of the jobs, it adds at
least to all of them: with some jobs rotated, the excess so far plus the least that each other job adds by itself
is a lower bound, and branches whose bound is no better than the best rotations known are not searched.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from cranny.core.jit import reordering
from cranny.model.arrays import Floats, Ints


class RotationSearch(NamedTuple):
    """Jobs whose rotations are searched, the first of which stands still; and buffers for the search."""

    rows: Floats  # (jobs, 2 x angles)
    rotations: Ints  # (jobs,) that differ
    twin: Ints  # (jobs,) 1 for a job that equals the one before
    capacity: float
    close: float  # excesses closer than this are equal
    base: Floats  # (jobs + 1, angles) demand of the jobs that are rotated, at each depth
    child: Floats  # (jobs, rotations) excess with the next job at each of its rotations; infinite once searched
    row: Floats  # (rotations,)
    floor: Floats  # (jobs + 1,) excess at each depth
    rest: Floats  # (jobs + 1,) the least that jobs after the next add
    path: Ints  # (jobs,)
    trial: Ints  # (jobs,)
    spent: Ints  # (1,) additions

    @classmethod
    def of(cls, rows: Floats, rotations: Ints, twin: Ints, capacity: float, close: float) -> "RotationSearch":
        """Make the buffers for some jobs."""
        jobs, most = len(rows), int(rotations.max())
        base, child = np.empty((jobs + 1, rows.shape[1] // 2)), np.empty((jobs, most))
        floor, rest = np.empty((2, jobs + 1))
        path, trial = np.zeros((2, jobs), np.int64)
        spent = np.zeros(1, np.int64)
        buffers = base, child, np.empty(most), floor, rest, path, trial, spent
        return cls(rows, rotations, twin, capacity, close, *buffers)


@reordering
def fill(arcs: Floats, counts: Ints, times: Floats, rows: Floats) -> None:
    """Write the mean demand of jobs at each angle, twice in a row, into rows of zeros.

    Arcs (start_s, end_s, gbps) stand job after job, so many of each; times are iteration time and turns.
    """
    angles, arc = rows.shape[1] // 2, 0
    for job in range(len(rows)):
        per_s = angles / (times[job, 0] * times[job, 1])
        for _ in range(counts[job]):
            for turn in range(int(times[job, 1])):
                begun = turn * times[job, 0]
                spread(rows[job], (begun + arcs[arc, 0]) * per_s, (begun + arcs[arc, 1]) * per_s, arcs[arc, 2])
            arc += 1
        for i in range(angles):
            rows[job, angles + i] = rows[job, i]


@reordering
def spread(row: Floats, start: float, end: float, gbps: float) -> None:
    """Add an arc to the angles that it covers; those at its ends in part."""
    first, last = math.floor(start), math.floor(end)
    if first == last:
        row[first] += gbps * (end - start)
        return
    row[first] += gbps * (first + 1 - start)
    for i in range(first + 1, last):
        row[i] += gbps
    row[last] += gbps * (end - last)  # nothing, one past the last angle, for an arc that ends with the circle


@reordering
def copy(source: Any, target: Any) -> None:
    """Copy one array over another of the same length."""
    for i in range(len(target)):
        target[i] = source[i]


@reordering
def excess_with(base: Floats, row: Floats, turn: int, capacity: float) -> float:
    """Return the excess of a demand and of one more job, rotated by so many angles."""
    angles = len(base)
    turned = row[angles - turn : 2 * angles - turn]
    total = 0.0
    for i in range(angles):
        above = base[i] + turned[i] - capacity
        total += above if above > 0.0 else 0.0  # `max` minds NaN, and takes three times as long
    return total


@reordering
def every_excess(base: Floats, row: Floats, rotations: int, capacity: float, out: Floats) -> int:
    """Write the excess with one more job at each of its rotations; return the first of the best."""
    best = 0
    for turn in range(rotations):
        out[turn] = excess_with(base, row, turn, capacity)
        if out[turn] < out[best]:
            best = turn
    return best


@reordering
def put(base: Floats, row: Floats, turn: int, sign: float, out: Floats) -> None:
    """Write a demand with one more job, or less."""
    angles = len(base)
    turned = row[angles - turn : 2 * angles - turn]
    for i in range(angles):
        out[i] = base[i] + sign * turned[i]


@reordering
def overlay(rows: Floats, turns: Ints, out: Floats) -> None:
    """Write the demand of all jobs at their rotations."""
    out[:] = 0.0
    for job in range(len(rows)):
        put(out, rows[job], turns[job], 1.0, out)


@reordering
def descend(search: RotationSearch, turns: Ints) -> float:
    """Turn one job after the other to where it is best, as long as that helps; return the excess."""
    rows, rotations, capacity, total = search.rows, search.rotations, search.capacity, search.base[0]
    overlay(rows, turns, total)
    known = 0.0
    for i in range(len(total)):
        known += max(total[i] - capacity, 0.0)
    better = True
    while better and known > search.close:
        better = False
        for job in range(1, len(rows)):
            put(total, rows[job], turns[job], -1.0, total)
            best = every_excess(total, rows[job], rotations[job], capacity, search.row)
            search.spent[0] += rotations[job] * len(total)
            if search.row[best] < known - search.close:
                turns[job] = best
                known = search.row[best]
                better = True
            put(total, rows[job], turns[job], 1.0, total)
    return known


@reordering
def insert(search: RotationSearch, turns: Ints) -> None:
    """Overlay one job after the other, each where it adds least to those before."""
    rows, total = search.rows, search.base[0]
    total[:] = 0.0
    turns[:] = 0
    for job in range(len(rows)):
        if job:
            turns[job] = every_excess(total, rows[job], search.rotations[job], search.capacity, search.row)
        put(total, rows[job], turns[job], 1.0, total)


@reordering
def local_search(search: RotationSearch, floor: float, restarts: int, budget: int, best: Ints) -> float:
    """Descend from no rotation, from one job after the other, and from drawn rotations; return the least excess.

    After so many restarts, or with the budget of additions spent, no further rotations are drawn.
    """
    best[:] = 0
    least = math.inf
    state = 12345
    search.spent[0] = 0
    for attempt in range(restarts + 2):
        if attempt >= 2 and search.spent[0] > budget:
            break
        if attempt == 0:
            search.trial[:] = 0
        elif attempt == 1:
            insert(search, search.trial)
        else:
            for job in range(1, len(search.rows)):  # a linear congruential generator: the same draws everywhere
                state = (state * 1103515245 + 12345) % 2147483648
                search.trial[job] = (state >> 8) % search.rotations[job]
        found = descend(search, search.trial)
        if found < least - search.close:
            least = found
            copy(search.trial, best)
        if least <= floor + search.close:
            break
    return least


@reordering
def lower_bound(search: RotationSearch, depth: int, least: float) -> float:
    """Compute what the jobs from `depth` on add to those before; return a lower bound of the excess of all."""
    rows, rotations, capacity = search.rows, search.rotations, search.capacity
    base, here = search.base[depth], search.floor[depth]
    first = every_excess(base, rows[depth], rotations[depth], capacity, search.child[depth])
    bound = float(search.child[depth, first])
    if search.twin[depth]:  # of two equal jobs, the later one turns no less than the one before
        for turn in range(search.path[depth - 1]):
            search.child[depth, turn] = math.inf
    search.rest[depth] = 0.0
    for job in range(depth + 1, len(rows)):
        if bound >= least - search.close:
            break
        best = every_excess(base, rows[job], rotations[job], capacity, search.row)
        search.rest[depth] += search.row[best] - here
        bound += search.row[best] - here
    return bound


@reordering
def branch_and_bound(
    search: RotationSearch, floor: float, budget: int, known: float, best: Ints
) -> tuple[float, float]:
    """Search all rotations, the first job standing still; return the least excess and a lower bound of it.

    The bound equals the least excess if the search came to its end within the budget of additions.
    """
    rows, rotations, close = search.rows, search.rotations, search.close
    jobs, angles = len(rows), rows.shape[1] // 2
    least, lower = known, floor
    search.path[0] = 0
    copy(rows[0], search.base[1])
    search.floor[1] = 0.0
    for i in range(angles):
        search.floor[1] += max(rows[0, i] - search.capacity, 0.0)
    lower = max(lower, lower_bound(search, 1, math.inf))
    depth = 1
    search.spent[0] = 0
    while depth >= 1:
        if least <= lower + close:
            return least, least
        if search.spent[0] > budget:
            return least, lower
        turn = int(np.argmin(search.child[depth, : rotations[depth]]))
        bound = search.child[depth, turn] + search.rest[depth]
        if depth == 1:
            lower = max(lower, min(bound, least))
        if bound >= least - close:
            depth -= 1
            continue
        search.path[depth] = turn
        if depth == jobs - 1:
            least = bound
            copy(search.path, best)
            depth -= 1
            continue
        put(search.base[depth], rows[depth], turn, 1.0, search.base[depth + 1])
        search.floor[depth + 1] = search.child[depth, turn]
        search.child[depth, turn] = math.inf
        for job in range(depth + 1, jobs):
            search.spent[0] += rotations[job] * angles
        if lower_bound(search, depth + 1, least) < least - close:
            depth += 1
    return least, least


@reordering
def centre(search: RotationSearch, turns: Ints) -> None:
    """Turn each job to the middle of the rotations that are as good as its own, one after the other.

    There it may drift a little either way, and stays clear of the edges of arcs, which angles blur.
    """
    rows, row, total = search.rows, search.row, search.base[0]
    overlay(rows, turns, total)
    for job in range(1, len(rows)):
        put(total, rows[job], turns[job], -1.0, total)
        count, here = search.rotations[job], turns[job]
        every_excess(total, rows[job], count, search.capacity, row)
        good = row[here] + search.close
        before, after = 0, 0
        while before < count and row[(here - before - 1) % count] <= good:
            before += 1
        while after < count and row[(here + after + 1) % count] <= good:
            after += 1
        if before < count:  # else any rotation does
            turns[job] = (here + (after - before) // 2) % count
        put(total, rows[job], turns[job], 1.0, total)
