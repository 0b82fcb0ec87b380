"""The search of Table 1, compiled: rotations of circles with the least demand above a link's capacity.

All demands are cut into the same angles. A row holds a job's demand twice in a row, so that a rotation by k
angles reads it from `angles - k` on. The *excess* of a demand is its part above the capacity, summed over the
angles.

Excess grows faster the more is there already. So what a job adds at least to a part of the jobs, it adds at
least to all of them: with some jobs rotated, the excess so far plus the least that each other job adds by itself
is a lower bound, and branches whose bound is no better than the best rotations known are not searched.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from cranny.core.jit import OPTIONS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

F = TypeVar("F", bound=Callable[..., Any])

# No number here is NaN, and sums may be added up in any order, four or eight numbers at a time.
ANY_ORDER = {"reassoc", "nsz", "contract", "arcp", "nnan"}


def compiled(function: F) -> F:
    """Compile a function of arithmetic."""
    return cast("F", numba.njit(**OPTIONS, fastmath=ANY_ORDER)(function))


class SearchBuffers(NamedTuple):
    """Buffers for a search of some jobs and angles."""

    base: Floats  # (jobs + 1, angles) demand of the jobs that are rotated, at each depth
    child: Floats  # (jobs, rotations) excess with the next job at each of its rotations; infinite once searched
    row: Floats  # (rotations,)
    floor: Floats  # (jobs,) excess at each depth
    rest: Floats  # (jobs,) the least that jobs after the next add
    path: Ints  # (jobs,)
    trial: Ints  # (jobs,)
    spent: Ints  # (1,) additions

    @classmethod
    def of(cls, jobs: int, angles: int, rotations: int) -> "SearchBuffers":
        """Make the buffers."""
        return cls(
            np.empty((jobs + 1, angles)),
            np.empty((jobs, rotations)),
            np.empty(rotations),
            np.empty(jobs + 1),
            np.empty(jobs + 1),
            np.zeros(jobs, np.int64),
            np.zeros(jobs, np.int64),
            np.zeros(1, np.int64),
        )


@compiled
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


@compiled
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


@compiled
def copy(source: Any, target: Any) -> None:
    """Copy one array over another of the same length."""
    for i in range(len(target)):
        target[i] = source[i]


@compiled
def excess_with(base: Floats, row: Floats, turn: int, capacity: float) -> float:
    """Return the excess of a demand and of one more job, rotated by so many angles."""
    angles = len(base)
    turned = row[angles - turn : 2 * angles - turn]
    total = 0.0
    for i in range(angles):
        above = base[i] + turned[i] - capacity
        total += above if above > 0.0 else 0.0  # `max` minds NaN, and takes three times as long
    return total


@compiled
def every_excess(base: Floats, row: Floats, rotations: int, capacity: float, out: Floats) -> int:
    """Write the excess with one more job at each of its rotations; return the first of the best."""
    best = 0
    for turn in range(rotations):
        out[turn] = excess_with(base, row, turn, capacity)
        if out[turn] < out[best]:
            best = turn
    return best


@compiled
def put(base: Floats, row: Floats, turn: int, sign: float, out: Floats) -> None:
    """Write a demand with one more job, or less."""
    angles = len(base)
    turned = row[angles - turn : 2 * angles - turn]
    for i in range(angles):
        out[i] = base[i] + sign * turned[i]


@compiled
def overlay(rows: Floats, turns: Ints, out: Floats) -> None:
    """Write the demand of all jobs at their rotations."""
    out[:] = 0.0
    for job in range(len(rows)):
        put(out, rows[job], turns[job], 1.0, out)


@compiled
def descend(
    rows: Floats, rotations: Ints, capacity: float, turns: Ints, work: SearchBuffers, close: float
) -> float:
    """Turn one job after the other to where it is best, as long as that helps; return the excess."""
    total = work.base[0]
    overlay(rows, turns, total)
    known = 0.0
    for i in range(len(total)):
        known += max(total[i] - capacity, 0.0)
    better = True
    while better and known > close:
        better = False
        for job in range(1, len(rows)):
            put(total, rows[job], turns[job], -1.0, total)
            best = every_excess(total, rows[job], rotations[job], capacity, work.row)
            work.spent[0] += rotations[job] * len(total)
            if work.row[best] < known - close:
                turns[job] = best
                known = work.row[best]
                better = True
            put(total, rows[job], turns[job], 1.0, total)
    return known


@compiled
def insert(rows: Floats, rotations: Ints, capacity: float, turns: Ints, work: SearchBuffers) -> None:
    """Overlay one job after the other, each where it adds least to those before."""
    total = work.base[0]
    total[:] = 0.0
    turns[:] = 0
    for job in range(len(rows)):
        if job:
            turns[job] = every_excess(total, rows[job], rotations[job], capacity, work.row)
        put(total, rows[job], turns[job], 1.0, total)


@compiled
def local_search(
    rows: Floats,
    rotations: Ints,
    capacity: float,
    floor: float,
    restarts: int,
    budget: int,
    best: Ints,
    work: SearchBuffers,
    close: float,
) -> float:
    """Descend from no rotation, from one job after the other, and from drawn rotations; return the least excess.

    After so many restarts, or with the budget of additions spent, no further rotations are drawn.
    """
    best[:] = 0
    least = math.inf
    state = 12345
    work.spent[0] = 0
    for attempt in range(restarts + 2):
        if attempt >= 2 and work.spent[0] > budget:
            break
        if attempt == 0:
            work.trial[:] = 0
        elif attempt == 1:
            insert(rows, rotations, capacity, work.trial, work)
        else:
            for job in range(1, len(rows)):  # a linear congruential generator: the same draws everywhere
                state = (state * 1103515245 + 12345) % 2147483648
                work.trial[job] = (state >> 8) % rotations[job]
        found = descend(rows, rotations, capacity, work.trial, work, close)
        if found < least - close:
            least = found
            copy(work.trial, best)
        if least <= floor + close:
            break
    return least


@compiled
def lower_bound(
    rows: Floats,
    rotations: Ints,
    twin: Ints,
    capacity: float,
    depth: int,
    work: SearchBuffers,
    least: float,
    close: float,
) -> float:
    """Compute what the jobs from `depth` on add to those before; return a lower bound of the excess of all."""
    base, here = work.base[depth], work.floor[depth]
    first = every_excess(base, rows[depth], rotations[depth], capacity, work.child[depth])
    bound = float(work.child[depth, first])
    if twin[depth]:  # of two equal jobs, the later one turns no less than the one before
        for turn in range(work.path[depth - 1]):
            work.child[depth, turn] = math.inf
    work.rest[depth] = 0.0
    for job in range(depth + 1, len(rows)):
        if bound >= least - close:
            break
        best = every_excess(base, rows[job], rotations[job], capacity, work.row)
        work.rest[depth] += work.row[best] - here
        bound += work.row[best] - here
    return bound


@compiled
def branch_and_bound(
    rows: Floats,
    rotations: Ints,
    twin: Ints,
    capacity: float,
    floor: float,
    budget: int,
    known: float,
    best: Ints,
    work: SearchBuffers,
    close: float,
) -> tuple[float, float]:
    """Search all rotations, the first job standing still; return the least excess and a lower bound of it.

    The bound equals the least excess if the search came to its end within the budget of additions.
    """
    jobs, angles = len(rows), rows.shape[1] // 2
    least, lower = known, floor
    work.path[0] = 0
    copy(rows[0], work.base[1])
    work.floor[1] = 0.0
    for i in range(angles):
        work.floor[1] += max(rows[0, i] - capacity, 0.0)
    lower = max(lower, lower_bound(rows, rotations, twin, capacity, 1, work, math.inf, close))
    depth = 1
    work.spent[0] = 0
    while depth >= 1:
        if least <= lower + close:
            return least, least
        if work.spent[0] > budget:
            return least, lower
        turn = int(np.argmin(work.child[depth, : rotations[depth]]))
        bound = work.child[depth, turn] + work.rest[depth]
        if depth == 1:
            lower = max(lower, min(bound, least))
        if bound >= least - close:
            depth -= 1
            continue
        work.path[depth] = turn
        if depth == jobs - 1:
            least = bound
            copy(work.path, best)
            depth -= 1
            continue
        put(work.base[depth], rows[depth], turn, 1.0, work.base[depth + 1])
        work.floor[depth + 1] = work.child[depth, turn]
        work.child[depth, turn] = math.inf
        for job in range(depth + 1, jobs):
            work.spent[0] += rotations[job] * angles
        if lower_bound(rows, rotations, twin, capacity, depth + 1, work, least, close) < least - close:
            depth += 1
    return least, least


@compiled
def centre(rows: Floats, rotations: Ints, capacity: float, turns: Ints, work: SearchBuffers, close: float) -> None:
    """Turn each job to the middle of the rotations that are as good as its own, one after the other.

    There it may drift a little either way, and stays clear of the edges of arcs, which angles blur.
    """
    total = work.base[0]
    overlay(rows, turns, total)
    for job in range(1, len(rows)):
        put(total, rows[job], turns[job], -1.0, total)
        count, here = rotations[job], turns[job]
        every_excess(total, rows[job], count, capacity, work.row)
        good = work.row[here] + close
        before, after = 0, 0
        while before < count and work.row[(here - before - 1) % count] <= good:
            before += 1
        while after < count and work.row[(here + after + 1) % count] <= good:
            after += 1
        if before < count:  # else any rotation does
            turns[job] = (here + (after - before) // 2) % count
        put(total, rows[job], turns[job], 1.0, total)
