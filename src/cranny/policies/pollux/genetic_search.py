"""Pollux's genetic search over allocation matrices, compiled.

A state has the workers of each job on each machine, (jobs, machines). A population of them is bred for some
generations: two parents, each the better of two that are drawn, exchange the rows of jobs (`cross`); the children
are changed at random (`mutate`), made feasible (`repair`) and valued (`fitness`); the best of parents and children
live on. States that were there already are dropped.

Departure: Pollux sorts states by two objectives (NSGA-II), the second being how large a cluster to rent. Ours has
the size that it has.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import allocating
from cranny.model.arrays import Flags, Floats, Ints

TO_BASE, THINNED, REMOVED = 0.1, 0.1, 0.1  # odds that a job's row is as it was, is thinned, and of each entry then
COMPLETED = 0.5  # odds that a job without workers gets its least number, where there are free GPUs
WAITING = 1e-3  # added to each speedup where the mean of their inverses is taken, or one job without GPUs decided


class AllocationProblem(NamedTuple):
    """Jobs in their order of preference, and the machines to divide among them."""

    base: Ints  # (jobs, machines) workers as they are now
    limit: Ints  # (jobs, machines) the most workers of a job that a machine could have
    capacity: Ints  # (machines,) GPUs to divide
    occupied: Flags  # (machines,) where a distributed job is that stays
    least: Ints  # (jobs,) workers of a job that runs
    most: Ints  # (jobs,)
    speedup: Floats  # (jobs, 2, workers) of a job on one machine, and on several
    kept: Floats  # (jobs,) the part of its speedup that is left to a job whose row changes
    fair: bool  # whether the mean of inverse speedups counts (p = -1), and not their sum


@allocating
def fitness(problem: AllocationProblem, state: Ints) -> float:
    """Return what a state is worth: the more, the better."""
    found = 0.0
    for job in range(len(state)):
        workers, machines, changed = 0, 0, False
        for machine in range(state.shape[1]):
            workers += state[job, machine]
            machines += state[job, machine] > 0
            changed = changed or state[job, machine] != problem.base[job, machine]
        speedup = problem.speedup[job, 1 if machines > 1 else 0, workers]
        if changed:
            speedup *= problem.kept[job]
        found += -1.0 / (speedup + WAITING) if problem.fair else speedup
    return found


@allocating
def cross(first: Ints, second: Ints, child: Ints, rng: np.random.Generator) -> None:
    """Let a child have the rows of one parent up to a job that is drawn, and then those of the other."""
    point = int(rng.random() * len(first))
    child[:point] = first[:point]
    child[point:] = second[point:]


@allocating
def mutate(problem: AllocationProblem, state: Ints, rng: np.random.Generator) -> None:
    """Set rows back, thin some out, and let jobs take more of machines that have free GPUs.

    On such a machine about one job is drawn of all that could use it, and one of those that are there.
    """
    jobs, machines = state.shape
    for job in range(jobs):
        if rng.random() < TO_BASE:
            state[job] = problem.base[job]
        if rng.random() < THINNED:
            for machine in range(machines):
                if rng.random() < REMOVED:
                    state[job, machine] = 0
    for machine in range(machines):
        used, able, there = 0, 0, 0
        for job in range(jobs):
            used += state[job, machine]
            if problem.limit[job, machine] > 0:
                able += 1
                there += state[job, machine] > 0
        if used >= problem.capacity[machine]:
            continue
        for job in range(jobs):
            if problem.limit[job, machine] > 0:
                unlikely = 1.0 - 1.0 / able
                if state[job, machine] > 0:
                    unlikely *= 1.0 - 1.0 / there
                if rng.random() >= unlikely:
                    more = problem.limit[job, machine] - state[job, machine] + 1
                    state[job, machine] += int(rng.random() * more)


@allocating
def repair(problem: AllocationProblem, state: Ints, rng: np.random.Generator) -> None:
    """Make a state feasible: jobs keep what they have, in their order, on machines in one that is drawn.

    At most one distributed job is on a machine, no job has more workers than it may have, and no machine more than
    it has GPUs. Jobs below their least number of workers then get them on machines with free GPUs, or have none.
    """
    jobs, machines = state.shape
    order = np.arange(machines)
    for last in range(machines - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    free, shared = problem.capacity.copy(), problem.occupied.copy()  # machines shared: with a distributed job
    for job in range(jobs):
        row, left = state[job], problem.most[job]
        distributed = np.count_nonzero(row) > 1
        for machine in order:
            if row[machine] > 0:
                row[machine] = 0 if distributed and shared[machine] else min(row[machine], left, free[machine])
                left -= row[machine]
                free[machine] -= row[machine]
                shared[machine] |= distributed and row[machine] > 0
    shared[:] = problem.occupied
    for job in range(jobs):
        row = state[job]
        if row.sum() < problem.least[job]:
            free += row
            row[:] = 0
        elif np.count_nonzero(row) > 1:
            for machine in order:
                shared[machine] |= row[machine] > 0
    for job in range(jobs):
        if not state[job].any() and rng.random() < COMPLETED:
            _complete(state[job], problem.limit[job], problem.least[job], free, shared, order)


@allocating
def _complete(row: Ints, limit: Ints, least: int, free: Ints, shared: Flags, order: Ints) -> None:
    """Give a job its least number of workers on one machine, else on several in an order; or none."""
    for machine in order:
        if min(free[machine], limit[machine]) >= least:
            row[machine] = least
            free[machine] -= least
            return
    left = least
    for machine in order:
        if left > 0 and not shared[machine]:
            row[machine] = min(free[machine], limit[machine], left)
            left -= row[machine]
    if left > 0:
        row[:] = 0
        return
    for machine in order:
        free[machine] -= row[machine]
        shared[machine] |= row[machine] > 0


@allocating
def breed(
    problem: AllocationProblem,
    states: Ints,
    values: Floats,
    marks: Ints,
    keys: Ints,
    parents: int,
    rng: np.random.Generator,
) -> int:
    """Add children of the first states, which are in order, the best first; return how many states there are."""
    count = parents
    for _ in range(len(states) // 2):
        first = int(min(rng.random(), rng.random()) * parents)  # the better of two
        second = int(min(rng.random(), rng.random()) * parents)
        cross(states[first], states[second], states[count], rng)
        mutate(problem, states[count], rng)
        repair(problem, states[count], rng)
        count = keep_if_new(problem, states, values, marks, keys, count)
    return count


@allocating
def keep_if_new(
    problem: AllocationProblem, states: Ints, values: Floats, marks: Ints, keys: Ints, count: int
) -> int:
    """Value the state after the first `count`; return how many there are with it, if it is not there yet.

    States are distinguished by the sum of their `keys`.
    """
    mark = 0
    for job in range(len(keys)):
        for machine in range(keys.shape[1]):
            mark += states[count, job, machine] * keys[job, machine]
    for other in range(count):
        if marks[other] == mark:
            return count
    marks[count], values[count] = mark, fitness(problem, states[count])
    return count + 1


def search(
    problem: AllocationProblem, seeds: Ints, population: int, generations: int, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Breed states from some feasible ones; return the last population and its values, the best first.

    Of equal ones that is first which was there first.
    """
    keys = rng.integers(2**62, size=problem.base.shape)
    states = np.empty((2 * population, *problem.base.shape), np.int64)
    values, marks = np.empty(2 * population), np.empty(2 * population, np.int64)
    count = 0
    for state in seeds[:population]:
        states[count] = state
        count = keep_if_new(problem, states, values, marks, keys, count)
    for _ in range(generations):
        count = breed(problem, states, values, marks, keys, count, rng)
        order = np.argsort(-values[:count], kind="stable")[:population]
        count = len(order)
        states[:count], values[:count], marks[:count] = states[order], values[order], marks[order]
    return states[:count], values[:count]
