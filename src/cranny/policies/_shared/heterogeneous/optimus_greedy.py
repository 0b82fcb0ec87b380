"""Optimus and Optimus-LB, as baselines of HAS/JPS (TPDS 2024).

Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018: one
worker each, then one more for the job whose completion time falls most by it, until no job gains. Optimus splits
samples equally; Optimus-LB in proportion to throughput.

Optimus knows no GPU types, and HAS/JPS does not say which worker is next. Workers are given out as the cluster
lists them, machine by machine: that is the only reading we see that takes O(S K) steps.
"""

import numpy as np

from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem, compute_s, network_s
from cranny.policies._shared.heterogeneous.solution import Shares


def optimus(problem: Problem) -> Shares:
    """Divide workers by Optimus, with equal parts for all workers of a job."""
    return Shares(problem, _greedy(problem, equal=True), equal_split=True)


def optimus_lb(problem: Problem) -> Shares:
    """Divide workers by Optimus with the proportional split."""
    return Shares(problem, _greedy(problem, equal=False))


def _greedy(problem: Problem, *, equal: bool) -> Ints:
    """Give out workers one by one."""
    jobs = len(problem.jobs)
    workers = np.zeros((jobs, *problem.counts.shape), dtype=np.int64)
    left = problem.counts.copy()
    for job, kind in enumerate(problem.first.tolist()):
        machine = int(np.flatnonzero(left[:, kind])[0])
        workers[job, machine, kind] += 1
        left[machine, kind] -= 1
    times = _times(problem, workers, equal=equal)
    for machine, kind in np.argwhere(left).tolist():
        for _ in range(int(left[machine, kind])):
            able = np.flatnonzero(problem.rates[:, kind] > 0)
            workers[able, machine, kind] += 1
            with_it = _times(problem, workers, equal=equal)
            workers[able, machine, kind] -= 1
            gains = np.where(problem.rates[:, kind] > 0, times - with_it, -np.inf)
            job = int(gains.argmax())
            if gains[job] > 0:
                workers[job, machine, kind] += 1
                times[job] = with_it[job]
    return workers


def _times(problem: Problem, workers: Ints, *, equal: bool) -> Floats:
    """Return the completion times that these workers would give, each job by itself."""
    return compute_s(problem, workers.sum(axis=1), equal=equal) + network_s(problem, workers)
