"""Local search: workers are given out greedily, then one or two jobs at a time choose theirs anew.

The neighbourhood divides the workers of two jobs anew between them, in every way near the present one; this covers
moves and swaps of workers of all types at once. It leaves little to gain and costs little, because a job's time
depends on its numbers of workers alone.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.completion_kernel import (
    NO_MACHINE,
    ProblemArrays,
    completion_s,
    cost,
    tightest,
)
from cranny.policies._shared.heterogeneous.problem import Floats, Ints

EVALUATIONS = 300_000  # approximate number of evaluations in a pass
FARTHEST = 8  # largest change of a job's workers of a type in a step
PASSES = 100
NO_JOB = -1
SAME = 1e-12  # relative; rounding errors
FEW = 12  # jobs, up to which pairs also try every pack for one of them

Sums = tuple[float, float, float]  # of costs, of ratios to the times with equal shares, and of their squares


class Objective(NamedTuple):
    """The objective: the mean completion time, or (Eq. 34) that and unfairness."""

    beta: float
    ideal: float  # the lowest mean completion time; used only where beta is below 1


class SearchState(NamedTuple):
    """The present solution of a search, and its scratch arrays."""

    hold: Ints  # (jobs, types) workers of each job
    where: Ints  # (jobs,) machine of a job that is on one, or NO_MACHINE
    vacant: Ints  # (machines, types) not held by jobs that are on this machine alone
    seconds: Floats  # (jobs,) completion times
    changed: Ints  # (jobs + 1,) step at which a job last changed; after the last job, the present step
    tried: Ints  # (jobs, jobs) step at which two jobs were last tried together
    spare: Ints  # (types,) held by no job
    low: Ints  # (types,) lower corner of the neighbourhood,
    high: Ints  # (types,) and upper corner
    one: Ints  # (types,) candidate for the first job
    two: Ints  # (types,) candidate for the second job
    best: Ints  # (types,) best candidate for the first job


def new_state(arrays: ProblemArrays) -> SearchState:
    """Return the arrays of a search."""
    jobs, kinds = arrays.rates.shape
    return SearchState(
        np.zeros((jobs, kinds), dtype=np.int64),
        np.full(jobs, NO_MACHINE, dtype=np.int64),
        arrays.counts.copy(),
        np.zeros(jobs),
        np.zeros(jobs + 1, dtype=np.int64),
        np.full((jobs, jobs), -1, dtype=np.int64),
        *np.zeros((6, kinds), dtype=np.int64),
    )


def width(jobs: int, kinds: int) -> int:
    """Return the width of the neighbourhood, in workers of a type."""
    pairs = jobs * (jobs - 1) // 2 + jobs
    return max(1, min(FARTHEST, int(((EVALUATIONS / pairs) ** (1 / kinds) - 1) // 2)))


@compiled
def objective_value(
    arrays: ProblemArrays, objective: Objective, total: float, ratios: float, squares: float
) -> float:
    """Return what is minimised: the sum of costs, or Eq. 34 negated."""
    if objective.beta == 1.0:
        return total
    jobs = len(arrays.work)
    return -(objective.beta * objective.ideal / total + (1 - objective.beta) * ratios * ratios / (jobs * squares))


@compiled
def _sums(arrays: ProblemArrays, seconds: Floats, one: int, two: int) -> Sums:
    """Return the sums of the objective over all jobs but these two."""
    total, ratios, squares = 0.0, 0.0, 0.0
    for job in range(len(seconds)):
        if job not in (one, two):
            ratio = seconds[job] / arrays.equal[job]
            total += cost(arrays, job, seconds[job])
            ratios += ratio
            squares += ratio * ratio
    return total, ratios, squares


@compiled
def value_of(arrays: ProblemArrays, objective: Objective, seconds: Floats) -> float:
    """Return the objective of completion times."""
    total, ratios, squares = _sums(arrays, seconds, NO_JOB, NO_JOB)
    return objective_value(arrays, objective, total, ratios, squares)


@compiled
def greedy(arrays: ProblemArrays, search: SearchState, first: Ints) -> None:
    """Give each worker to the job whose time it reduces most."""
    jobs, kinds = arrays.rates.shape
    left = 0
    for kind in range(kinds):
        search.spare[kind] = arrays.totals[kind]
        left += arrays.totals[kind]
    for job in range(jobs):
        search.where[job] = NO_MACHINE
        for kind in range(kinds):
            search.hold[job, kind] = 1 if kind == first[job] else 0
        search.spare[first[job]] -= 1
        search.seconds[job] = arrays.rates[job, first[job]]  # the job's throughput, for a while
    for _ in range(left - jobs):
        gain, to, of = 0.0, -1, -1
        for job in range(jobs):
            rate = search.seconds[job]
            for kind in range(kinds):
                more = arrays.rates[job, kind]
                sooner = arrays.weight[job] * arrays.work[job] * more / (rate * (rate + more))
                if search.spare[kind] > 0 and sooner > gain:
                    gain, to, of = sooner, job, kind
        if to == -1:
            break
        search.hold[to, of] += 1
        search.spare[of] -= 1
        search.seconds[to] += arrays.rates[to, of]
    recompute(arrays, search)


@compiled
def recompute(arrays: ProblemArrays, search: SearchState) -> None:
    """Compute vacant and spare workers and completion times from `hold` and `where`."""
    jobs, kinds = arrays.rates.shape
    for kind in range(kinds):
        search.spare[kind] = arrays.totals[kind]
        for machine in range(search.vacant.shape[0]):
            search.vacant[machine, kind] = arrays.counts[machine, kind]
    for job in range(jobs):
        for kind in range(kinds):
            search.spare[kind] -= search.hold[job, kind]
            if search.where[job] != NO_MACHINE:
                search.vacant[search.where[job], kind] -= search.hold[job, kind]
    for job in range(jobs):
        alone = search.where[job] != NO_MACHINE
        search.seconds[job] = completion_s(arrays, job, search.hold[job], alone)


@compiled
def _machine_for(arrays: ProblemArrays, job: int, held: Ints, vacant: Ints) -> int:
    """Return a machine for all of these workers, if one holds them and the job gains by it."""
    count = 0
    for kind in range(len(held)):
        count += held[kind]
    if count < 2 or count > arrays.largest or arrays.between[job] <= arrays.inside[job]:
        return NO_MACHINE
    return tightest(vacant, held)


@compiled
def _release(search: SearchState, job: int) -> None:
    """Release a job's workers."""
    for kind in range(len(search.spare)):
        search.spare[kind] += search.hold[job, kind]
        if search.where[job] != NO_MACHINE:
            search.vacant[search.where[job], kind] += search.hold[job, kind]


@compiled
def _give_workers(arrays: ProblemArrays, search: SearchState, job: int, held: Ints, moved: bool) -> None:  # noqa: FBT001 - a kernel
    """Give a job workers; if they differ from before, on one machine if one holds them."""
    if moved:
        search.where[job] = _machine_for(arrays, job, held, search.vacant)
        search.changed[job] = search.changed[-1] = search.changed[-1] + 1
    for kind in range(len(held)):
        search.hold[job, kind] = held[kind]
        search.spare[kind] -= held[kind]
        if search.where[job] != NO_MACHINE:
            search.vacant[search.where[job], kind] -= held[kind]
    search.seconds[job] = completion_s(arrays, job, held, search.where[job] != NO_MACHINE)


@compiled
def _advance(arrays: ProblemArrays, search: SearchState, number: int, box: int) -> bool:
    """Advance to a candidate: the first or the next in a box, or (0) one of the packs; False after the last."""
    if box == 0 and number >= arrays.packs.shape[0]:
        return False
    for kind in range(len(search.one)):
        if box == 0:
            search.one[kind] = arrays.packs[number, kind]
        elif number > 0 and search.one[kind] < search.high[kind]:
            search.one[kind] += 1
            return True
        else:
            search.one[kind] = search.low[kind]
    return box == 0 or number == 0


@compiled
def _value(
    arrays: ProblemArrays, search: SearchState, objective: Objective, one: int, two: int, sums: Sums
) -> float:
    """Return the objective if the first job has `one`, and the second the rest of their workers."""
    at = _machine_for(arrays, one, search.one, search.vacant)
    seconds = completion_s(arrays, one, search.one, at != NO_MACHINE)
    ratio = seconds / arrays.equal[one]
    total, ratios, squares = sums[0] + cost(arrays, one, seconds), sums[1] + ratio, sums[2] + ratio * ratio
    if two != NO_JOB and seconds < np.inf:
        for kind in range(len(search.one)):
            search.two[kind] = search.hold[one, kind] + search.hold[two, kind] - search.one[kind]
            if at != NO_MACHINE:
                search.vacant[at, kind] -= search.one[kind]
        seconds = completion_s(
            arrays, two, search.two, _machine_for(arrays, two, search.two, search.vacant) != NO_MACHINE
        )
        if at != NO_MACHINE:
            for kind in range(len(search.one)):
                search.vacant[at, kind] += search.one[kind]
        ratio = seconds / arrays.equal[two]
        total, ratios, squares = total + cost(arrays, two, seconds), ratios + ratio, squares + ratio * ratio
    return objective_value(arrays, objective, total, ratios, squares) if seconds < np.inf else np.inf


@compiled
def _choose(
    arrays: ProblemArrays, search: SearchState, objective: Objective, one: int, two: int, box: int, now: float
) -> float:
    """Choose the workers of a job anew, and give the rest to another (or NO_JOB); return the objective.

    Candidates are in a box around its workers, or (0) all packs.
    """
    kinds, others = len(search.spare), _sums(arrays, search.seconds, one, two)
    _release(search, one)
    if two != NO_JOB:
        _release(search, two)
    for kind in range(kinds):
        search.best[kind] = search.hold[one, kind]
        # At most what the two hold, or all that is free once its own are released.
        most = search.hold[one, kind] + search.hold[two, kind] if two != NO_JOB else search.spare[kind]
        most = most if arrays.rates[one, kind] > 0.0 else 0
        search.low[kind] = max(0, search.hold[one, kind] - box)
        search.high[kind] = most if box == 0 else min(most, search.hold[one, kind] + box)
    best, number = now, 0
    while _advance(arrays, search, number, box):
        fits = True
        for kind in range(kinds):
            fits &= search.one[kind] <= search.high[kind]
        if fits:
            value = _value(arrays, search, objective, one, two, others)
            if value < best - SAME * abs(best):
                best = value
                for kind in range(kinds):
                    search.best[kind] = search.one[kind]
        number += 1
    moved = best < now  # otherwise workers and machines stay
    if two != NO_JOB:
        for kind in range(kinds):
            search.two[kind] = search.hold[one, kind] + search.hold[two, kind] - search.best[kind]
    _give_workers(arrays, search, one, search.best, moved)
    if two != NO_JOB:
        _give_workers(arrays, search, two, search.two, moved)
    return best


@compiled
def local_search(arrays: ProblemArrays, search: SearchState, objective: Objective, box: int) -> float:
    """Improve until no job and no pair of jobs can be improved; return the objective."""
    jobs = len(search.seconds)
    now = value_of(arrays, objective, search.seconds)
    for _ in range(PASSES):
        before = now
        for one in range(jobs):
            for two in range(NO_JOB, jobs):
                if two == one:
                    continue
                if two != NO_JOB and search.tried[one, two] >= max(search.changed[one], search.changed[two]):
                    continue
                for reach in (box, 0):
                    if two != NO_JOB and (two < one if reach else jobs > FEW):
                        continue
                    now = _choose(arrays, search, objective, one, two, reach, now)
                if two != NO_JOB:
                    search.tried[one, two] = search.changed[jobs]
        if now >= before - SAME * abs(before):
            break
    return now
