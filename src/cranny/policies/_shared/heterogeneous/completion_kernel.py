"""Completion times for compiled searches, and machines for jobs that fit into one.

What a job's time depends on is little: how many workers of each type it has, and whether all of them share a
machine. So searches look at numbers of workers of each type, and at machines only for jobs that fit into one.
"""

from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.completion_times import ROUNDING, equal_s, exchange_s
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem

NOWHERE = -1
MOST_PACKS = 2000


class Task(NamedTuple):
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
    penalty: float  # for a job that is late: more than all weighted times together, so late jobs are few
    largest: int  # workers of the largest machine
    packs: Ints  # (packs, types) all there is to hold on one machine, from two workers on, if that is of use
    apart: Floats  # (jobs,) as `between`, for those who do not hold a pack


def task(problem: Problem) -> Task:
    """Return the arrays of a problem."""
    counts = problem.counts[problem.counts.any(axis=1)]
    inside = exchange_s(problem, problem.inside_gbps)
    between = exchange_s(problem, min(problem.inside_gbps, problem.between_gbps)) if len(counts) > 1 else inside
    weight = np.array([job.weight for job in problem.jobs])
    weight = weight / weight.sum()
    work = np.array([float(job.work) for job in problem.jobs])
    slowest = work / np.where(problem.rates > 0, problem.rates, np.inf).min(axis=1) + between
    packs = _packs(counts) if (between > inside).any() else _no_packs(counts)
    return Task(
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
        packs=_no_packs(counts) if packs is None else packs,
        # Where there are too many packs to look at, anybody might hold one.
        apart=inside if packs is None else between,
    )


def _packs(counts: Ints) -> Ints | None:
    """Return everything that fits into one machine, (packs, types); None if that is too much to look at."""
    found: set[tuple[int, ...]] = set()
    for row in np.unique(counts, axis=0).tolist():
        if prod(count + 1 for count in row) > MOST_PACKS:
            return None
        found.update(product(*(range(count + 1) for count in row)))
    several = sorted(pack for pack in found if sum(pack) > 1)
    return np.array(several, dtype=np.int64).reshape(-1, counts.shape[1]) if len(several) <= MOST_PACKS else None


def _no_packs(counts: Ints) -> Ints:
    return np.empty((0, counts.shape[1]), dtype=np.int64)


@compiled
def time_s(task: Task, job: int, count: int, rate: float, alone: bool) -> float:  # noqa: FBT001 - a kernel
    """Return a job's completion time with so many workers of so much throughput together; Eq. 14."""
    exchange = task.inside[job] if alone else task.between[job]
    return float(task.work[job] / rate + (count - 1) / count * exchange)


@compiled
def cost(task: Task, job: int, seconds: float) -> float:
    """Return what a completion time adds to the objective."""
    late = task.penalty if seconds > task.deadline[job] * (1 + ROUNDING) else 0.0
    return float(task.weight[job] * seconds + late)


@compiled
def tightest(room: Ints, wanted: Ints) -> int:
    """Return the machine that has room for these workers and the least to spare, or NOWHERE."""
    best, spare = NOWHERE, 0
    for machine in range(room.shape[0]):
        left = 0
        for kind in range(room.shape[1]):
            free = room[machine, kind] - wanted[kind]
            if free < 0:
                left = -1
                break
            left += free
        if left >= 0 and (best == NOWHERE or left < spare):
            best, spare = machine, left
    return best


@compiled
def settle(task: Task, totals: Ints, room: Ints, where: Ints) -> None:
    """Find machines for jobs that fit into one, those that gain most first; `where` gets them or NOWHERE.

    `totals` are the workers of each job and type; `room` is scratch.
    """
    jobs, kinds = totals.shape
    for machine in range(room.shape[0]):
        for kind in range(kinds):
            room[machine, kind] = task.counts[machine, kind]
    where[:] = NOWHERE
    for _ in range(jobs):
        gain, chosen = 0.0, -1
        for job in range(jobs):
            if where[job] != NOWHERE or task.between[job] <= task.inside[job]:
                continue
            count = 0
            for kind in range(kinds):
                count += totals[job, kind]
            saved = (count - 1) / count * (task.between[job] - task.inside[job])
            if count <= task.largest and saved > gain and tightest(room, totals[job]) != NOWHERE:
                gain, chosen = saved, job
        if chosen == -1:
            return
        where[chosen] = tightest(room, totals[chosen])
        for kind in range(kinds):
            room[where[chosen], kind] -= totals[chosen, kind]
