"""Pollux by the book: what a feasible allocation is, what it is worth, and the best of all that there are."""

import itertools
from collections.abc import Iterator

import numpy as np

from cranny.model.arrays import Ints
from cranny.policies.pollux.genetic_search import WAITING, AllocationProblem


def feasible(problem: AllocationProblem, state: Ints) -> bool:
    """Say whether jobs have workers where they can, as many as they may or none, and machines GPUs for them."""
    for job, row in enumerate(state.tolist()):
        if any(workers < 0 or workers > most for workers, most in zip(row, problem.limit[job], strict=True)):
            return False
        if sum(row) and not problem.least[job] <= sum(row) <= problem.most[job]:
            return False
    for machine, column in enumerate(state.T.tolist()):
        distributed = [job for job, workers in enumerate(column) if workers and np.count_nonzero(state[job]) > 1]
        if sum(column) > problem.capacity[machine] or len(distributed) + problem.occupied[machine] > 1:
            return False
    return True


def worth(problem: AllocationProblem, state: Ints) -> float:
    """Return the sum of speedups, or less the sum of their inverses."""
    speedups = []
    for job, row in enumerate(state.tolist()):
        on = [workers for workers in row if workers]
        speedup = float(problem.speedup[job, int(len(on) > 1), sum(on)])
        speedups.append(speedup * (1.0 if row == problem.base[job].tolist() else float(problem.kept[job])))
    return -sum(1.0 / (each + WAITING) for each in speedups) if problem.fair else sum(speedups)


def every_state(problem: AllocationProblem) -> Iterator[Ints]:
    """Yield all feasible allocations."""
    ranges = [range(int(most) + 1) for most in problem.limit.ravel()]
    for entries in itertools.product(*ranges):
        state = np.array(entries, dtype=np.int64).reshape(problem.limit.shape)
        if feasible(problem, state):
            yield state
