"""Machines for jobs that fit on one: which jobs get one, so that all together exchange for the least time.

What a job saves by one machine does not depend on which one. First those that save most choose, each the machine
that it fills most tightly. If some job that could have had a machine gets none, other choices are searched depth
first, until none can save more. Where that takes too long, the best so far is kept.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.completion_kernel import (
    NO_MACHINE,
    ProblemArrays,
    problem_arrays,
    tightest,
)
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem

MOST_STEPS = 5_000
SAME = 1e-9  # relative


class PackSearch(NamedTuple):
    """Scratch arrays; those of the search by depth, which is a place in `order`."""

    vacant: Ints  # (machines, types)
    order: Ints  # (jobs,) that could have a machine, those that save most first
    saved: Floats  # (jobs,) seconds that each job saves
    rest: Floats  # (jobs + 1,) seconds that the jobs from here on save at most
    total: Floats  # (jobs + 1,) seconds that the jobs before save
    machine: Ints  # (jobs,) present choice; after the last machine, none


def pack_search(jobs: int, counts: Ints) -> PackSearch:
    """Return scratch arrays for so many jobs on machines (machines, types)."""
    return PackSearch(
        np.zeros_like(counts),
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs),
        np.zeros(jobs + 1),
        np.zeros(jobs + 1),
        np.zeros(jobs, dtype=np.int64),
    )


@compiled
def pack_jobs(arrays: ProblemArrays, totals: Ints, search: PackSearch, where: Ints) -> None:
    """Find machines for jobs with `totals` workers, (jobs, types); `where` gets them, or NO_MACHINE."""
    for machine in range(search.vacant.shape[0]):
        for kind in range(search.vacant.shape[1]):
            search.vacant[machine, kind] = arrays.counts[machine, kind]
    where[:] = NO_MACHINE
    count = _candidates(arrays, totals, search)
    found, missed = 0.0, False
    for depth in range(count):
        job = search.order[depth]
        where[job] = tightest(search.vacant, totals[job])
        if where[job] == NO_MACHINE:
            missed = True
        else:
            found += search.saved[job]
            _take(search, totals[job], where[job], 1)
    if missed:
        for depth in range(count):
            job = search.order[depth]
            if where[job] != NO_MACHINE:
                _take(search, totals[job], where[job], -1)
        _depth_first(totals, search, where, count, found)


@compiled
def _candidates(arrays: ProblemArrays, totals: Ints, search: PackSearch) -> int:
    """Order the jobs that save time on one machine, and fit on one; return how many there are."""
    count = 0
    for job in range(totals.shape[0]):
        workers = 0
        for kind in range(totals.shape[1]):
            workers += totals[job, kind]
        if workers < 2 or workers > arrays.largest or arrays.between[job] <= arrays.inside[job]:
            continue
        if tightest(search.vacant, totals[job]) == NO_MACHINE:
            continue
        search.saved[job] = (workers - 1) / workers * (arrays.between[job] - arrays.inside[job])
        at = count
        while at > 0 and search.saved[search.order[at - 1]] < search.saved[job]:
            search.order[at] = search.order[at - 1]
            at -= 1
        search.order[at] = job
        count += 1
    search.rest[count] = 0.0
    for depth in range(count - 1, -1, -1):
        search.rest[depth] = search.rest[depth + 1] + search.saved[search.order[depth]]
    return count


@compiled
def _take(search: PackSearch, held: Ints, machine: int, sign: int) -> None:
    """Take workers of a machine (sign 1), or give them back (sign -1)."""
    for kind in range(len(held)):
        search.vacant[machine, kind] -= sign * held[kind]


@compiled
def _depth_first(totals: Ints, search: PackSearch, where: Ints, count: int, found: float) -> None:
    """Improve `where`, with which jobs save `found` seconds."""
    machines, depth = search.vacant.shape[0], 0
    search.machine[0], search.total[0] = 0, 0.0
    for _ in range(MOST_STEPS):
        if depth < count and search.total[depth] + search.rest[depth] > found * (1 + SAME):
            job = search.order[depth]
            at = _next_machine(search, totals[job], search.machine[depth])
            search.machine[depth] = at
            if at <= machines:
                search.total[depth + 1] = search.total[depth]
                if at < machines:
                    search.total[depth + 1] += search.saved[job]
                    _take(search, totals[job], at, 1)
                depth += 1
                if depth < count:
                    search.machine[depth] = 0
                    continue
                if search.total[depth] > found * (1 + SAME):
                    found = search.total[depth]
                    for done in range(count):
                        chosen = search.machine[done]
                        where[search.order[done]] = chosen if chosen < machines else NO_MACHINE
        if depth == 0:
            return
        depth -= 1
        if search.machine[depth] < machines:
            _take(search, totals[search.order[depth]], search.machine[depth], -1)
        search.machine[depth] += 1


@compiled
def _next_machine(search: PackSearch, held: Ints, first: int) -> int:
    """Return the next machine that holds workers, of machines that are alike only one.

    After the last comes the number of machines, which stands for none; after that there is no choice.
    """
    machines, kinds = search.vacant.shape
    for machine in range(first, machines):
        fits = True
        for kind in range(kinds):
            fits &= held[kind] <= search.vacant[machine, kind]
        for other in range(machine if fits else 0):
            same = True
            for kind in range(kinds):
                same &= search.vacant[other, kind] == search.vacant[machine, kind]
            fits &= not same
        if fits:
            return machine
    return first if first > machines else machines


def place_workers(problem: Problem, totals: Ints, where: Ints | None = None) -> Ints:
    """Return the workers of each job on each machine, (jobs, machines, types), from those of each type.

    `where` names the machine of jobs that are on one, -1 for the others; without it, jobs that fit on one machine
    get one, as many as save most time. Workers of a type are alike but for their machine.
    """
    used = np.flatnonzero(problem.counts.any(axis=1))
    if where is None:
        where = np.empty(len(totals), dtype=np.int64)
        arrays = problem_arrays(problem)
        pack_jobs(arrays, totals, pack_search(len(totals), arrays.counts), where)
    workers = np.zeros((len(totals), *problem.counts.shape), dtype=np.int64)
    for job in np.flatnonzero(where >= 0).tolist():
        workers[job, used[where[job]]] = totals[job]
    left = problem.counts - workers.sum(axis=0)
    for job in np.flatnonzero(where < 0).tolist():
        for kind in range(totals.shape[1]):
            before = np.concatenate([[0], np.cumsum(left[:, kind])])
            taken = np.diff(np.minimum(before, totals[job, kind]))
            workers[job, :, kind] = taken
            left[:, kind] -= taken
    return workers
