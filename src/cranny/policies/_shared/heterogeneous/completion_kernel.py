"""Compiled: the arrays of a problem, and completion times.

A job's time depends only on how many workers of each type it has, and on whether all of them share a machine. So
searches consider numbers of workers of each type, and machines only for jobs that fit on one (`one_machine`).
"""

from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.problem import ROUNDING, Floats, Ints, Problem, equal_s, exchange_s

NO_MACHINE = -1
MOST_PACKS = 2000


class ProblemArrays(NamedTuple):
    """A problem as arrays."""

    work: Floats  # (jobs,) samples of all epochs
    inside: Floats  # (jobs,) seconds of exchange with very many workers on one machine
    between: Floats  # (jobs,) and on several
    weight: Floats  # (jobs,), which sum to 1
    deadline: Floats  # (jobs,) seconds
    equal: Floats  # (jobs,) seconds with equal shares
    rates: Floats  # (jobs, types)
    counts: Ints  # (machines, types)
    totals: Ints  # (types,)
    penalty: float  # of a late job: more than all weighted times together, so that late jobs are few
    largest: int  # workers of the largest machine
    most: int  # workers that one job can have
    packs: Ints  # (packs, types) all sets of two workers and more that fit on one machine, if that matters
    apart: Floats  # (jobs,) as `between`, for jobs that do not hold a pack


def problem_arrays(problem: Problem) -> ProblemArrays:
    """Return the arrays of a problem."""
    counts = problem.counts[problem.counts.any(axis=1)]
    inside, between = exchange_s(problem, apart=False), exchange_s(problem, apart=len(counts) > 1)
    weight = np.array([job.weight for job in problem.jobs])
    weight = weight / weight.sum()
    work = np.array([float(job.work) for job in problem.jobs])
    slowest = work / np.where(problem.rates > 0, problem.rates, np.inf).min(axis=1) + between
    none = np.empty((0, counts.shape[1]), dtype=np.int64)
    packs = _packs(counts) if (between > inside).any() else none
    return ProblemArrays(
        work=work,
        inside=inside,
        between=between,
        weight=weight,
        deadline=np.array([np.inf if job.deadline_s is None else job.deadline_s for job in problem.jobs]),
        equal=equal_s(problem),
        rates=problem.rates.copy(),
        counts=counts,
        totals=problem.totals,
        penalty=float(2 * (weight * slowest).sum()),
        largest=int(counts.sum(axis=1).max()),
        most=problem.size - len(problem.jobs) + 1,
        packs=none if packs is None else packs,
        # Where there are too many packs to list, any job might hold one.
        apart=inside if packs is None else between,
    )


def _packs(counts: Ints) -> Ints | None:
    """Return all sets of workers that fit on one machine, (packs, types); None if they are too many."""
    found: set[tuple[int, ...]] = set()
    for row in np.unique(counts, axis=0).tolist():
        if prod(count + 1 for count in row) > MOST_PACKS:
            return None
        found.update(product(*(range(count + 1) for count in row)))
    several = sorted(pack for pack in found if sum(pack) > 1)
    return np.array(several, dtype=np.int64).reshape(-1, counts.shape[1]) if len(several) <= MOST_PACKS else None


@compiled
def completion_s(arrays: ProblemArrays, job: int, held: Ints, alone: bool) -> float:  # noqa: FBT001 - a kernel
    """Return a job's time with workers of each type, Eq. 14; infinite if one cannot run it, or there are none."""
    count, rate = 0, 0.0
    for kind in range(len(held)):
        if held[kind] > 0 and arrays.rates[job, kind] == 0.0:
            return np.inf
        count += held[kind]
        rate += held[kind] * arrays.rates[job, kind]
    if count == 0:
        return np.inf
    exchange = arrays.inside[job] if alone else arrays.between[job]
    return float(arrays.work[job] / rate + (count - 1) / count * exchange)


@compiled
def cost(arrays: ProblemArrays, job: int, seconds: float) -> float:
    """Return what a completion time adds to the objective."""
    late = arrays.penalty if seconds > arrays.deadline[job] * (1 + ROUNDING) else 0.0
    return float(arrays.weight[job] * seconds + late)


@compiled
def tightest(vacant: Ints, wanted: Ints) -> int:
    """Return the machine that holds these workers and has the fewest others free, or NO_MACHINE."""
    best, spare = NO_MACHINE, 0
    for machine in range(vacant.shape[0]):
        left = 0
        for kind in range(vacant.shape[1]):
            free = vacant[machine, kind] - wanted[kind]
            if free < 0:
                left = -1
                break
            left += free
        if left >= 0 and (best == NO_MACHINE or left < spare):
            best, spare = machine, left
    return best
