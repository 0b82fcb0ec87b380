"""Optimus, Optimus-LB and LAS: baselines of HAS/JPS (TPDS 2024) that give out workers one by one.

Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018: one
worker each, then one more for the job whose completion time falls most by it, until no job gains. Optimus splits
samples equally; Optimus-LB in proportion to throughput.

Optimus knows no GPU types, and HAS/JPS does not say which worker is next. Workers are given out as the cluster
lists them, machine by machine: that is the only reading we see that takes O(S K) steps.

LAS is the baseline of the motivating example, Section IV-A. Max-min fairness: the least throughput of a job over
V_equal, its throughput with an equal share of the cluster, is made as high as possible. The job with the least
gets the free worker that is best for it (least attained service first, Tiresias, NSDI 2019); then two jobs
exchange workers while that helps the one that has less.
"""

from itertools import permutations

import numpy as np

from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem, Shares, completion_times


def optimus(problem: Problem, *, equal: bool = True) -> Shares:
    """Divide workers by Optimus, with equal parts for all workers of a job, or in proportion to throughput."""
    workers = np.zeros((len(problem.jobs), *problem.counts.shape), dtype=np.int64)
    left = problem.counts.copy()
    for job, kind in enumerate(problem.first.tolist()):
        machine = int(np.flatnonzero(left[:, kind])[0])
        workers[job, machine, kind] += 1
        left[machine, kind] -= 1
    times = completion_times(problem, workers, equal=equal)
    for machine, kind in np.argwhere(left).tolist():
        for _ in range(int(left[machine, kind])):
            able = np.flatnonzero(problem.rates[:, kind] > 0)
            workers[able, machine, kind] += 1
            with_it = completion_times(problem, workers, equal=equal)
            workers[able, machine, kind] -= 1
            gains = np.where(problem.rates[:, kind] > 0, times - with_it, -np.inf)
            job = int(gains.argmax())
            if gains[job] > 0:
                workers[job, machine, kind] += 1
                times[job] = with_it[job]
    return Shares(problem, workers, equal_split=equal)


def optimus_lb(problem: Problem) -> Shares:
    """Divide workers by Optimus with the proportional split."""
    return optimus(problem, equal=False)


def las(problem: Problem) -> Shares:
    """Divide workers by least attained service."""
    from cranny.policies._shared.heterogeneous.completion_kernel import place_workers  # compiles

    jobs = len(problem.jobs)
    equal = (problem.totals * problem.rates).sum(axis=1) / jobs
    relative = problem.rates / equal[:, None]  # throughput of a worker to a job
    totals = np.zeros(relative.shape, dtype=np.int64)
    totals[np.arange(jobs), problem.first] = 1
    left = problem.totals - totals.sum(axis=0)
    while (able := (relative[:, left > 0] > 0).any(axis=1)).any():
        attained = np.where(able, (totals * relative).sum(axis=1), np.inf)
        job = int(attained.argmin())
        kind = int(np.where(left > 0, relative[job], 0.0).argmax())
        totals[job, kind] += 1
        left[kind] -= 1
    while any(_exchange(totals, relative, poor, rich) for poor, rich in permutations(range(jobs), 2)):
        pass
    return Shares(problem, place_workers(problem, totals))


def _exchange(totals: Ints, relative: Floats, poor: int, rich: int) -> bool:
    """Exchange workers of two jobs one for one if the lesser of their shares grows; say whether they did."""
    attained = (totals * relative).sum(axis=1)
    for given, taken in permutations(range(relative.shape[1]), 2):
        if not (totals[poor, given] and totals[rich, taken] and relative[poor, taken] and relative[rich, given]):
            continue
        then = (
            attained[poor] + relative[poor, taken] - relative[poor, given],
            attained[rich] + relative[rich, given] - relative[rich, taken],
        )
        if min(then) > min(attained[poor], attained[rich]) * (1 + 1e-9):
            totals[poor, given] -= 1
            totals[poor, taken] += 1
            totals[rich, taken] -= 1
            totals[rich, given] += 1
            return True
    return False
