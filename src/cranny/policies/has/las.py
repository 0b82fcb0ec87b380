"""LAS, the baseline of the motivating example of HAS/JPS (TPDS 2024), Section IV-A.

Max-min fairness: the least throughput of a job over V_equal, its throughput with an equal share of the cluster,
shall be as high as can be. The job that has least gets the free worker that is best for it (least attained
service first, Tiresias, NSDI 2019); then two jobs exchange workers while that helps the one of them that has
less.
"""

from itertools import permutations

import numpy as np

from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem
from cranny.policies._shared.heterogeneous.solution import Shares
from cranny.policies._shared.heterogeneous.worker_placement import seat


def las(problem: Problem) -> Shares:
    """Share by least attained service."""
    jobs = len(problem.jobs)
    equal = (problem.totals * problem.rates).sum(axis=1) / jobs
    worth = problem.rates / equal[:, None]  # of a worker to a job
    totals = np.zeros(worth.shape, dtype=np.int64)
    totals[np.arange(jobs), problem.first] = 1
    left = problem.totals - totals.sum(axis=0)
    while (able := (worth[:, left > 0] > 0).any(axis=1)).any():
        attained = np.where(able, (totals * worth).sum(axis=1), np.inf)
        job = int(attained.argmin())
        kind = int(np.where(left > 0, worth[job], 0.0).argmax())
        totals[job, kind] += 1
        left[kind] -= 1
    while any(_exchange(totals, worth, poor, rich) for poor, rich in permutations(range(jobs), 2)):
        pass
    return Shares(problem, seat(problem, totals))


def _exchange(totals: Ints, worth: Floats, poor: int, rich: int) -> bool:
    """Let two jobs exchange workers one for one if the lesser of what they have grows; say whether they did."""
    attained = (totals * worth).sum(axis=1)
    for given, taken in permutations(range(worth.shape[1]), 2):
        if not (totals[poor, given] and totals[rich, taken] and worth[poor, taken] and worth[rich, given]):
            continue
        then = (
            attained[poor] + worth[poor, taken] - worth[poor, given],
            attained[rich] + worth[rich, given] - worth[rich, taken],
        )
        if min(then) > min(attained[poor], attained[rich]) * (1 + 1e-9):
            totals[poor, given] -= 1
            totals[poor, taken] += 1
            totals[rich, taken] -= 1
            totals[rich, given] += 1
            return True
    return False
