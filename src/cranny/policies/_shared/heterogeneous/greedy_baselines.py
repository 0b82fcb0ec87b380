"""Optimus and Optimus-LB: baselines of HAS/JPS (TPDS 2024) that give out workers one by one.

Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018: one
worker each, then one more for the job whose completion time falls most by it, until no job gains. Optimus splits
samples equally; Optimus-LB in proportion to throughput.

Optimus knows no GPU types, and HAS/JPS does not say which worker is next, only that all takes O(S K) steps. Three
readings do:

    listed    as the cluster lists them, machine by machine
    fastest   by type, the one with the most throughput of all jobs together first
    slowest   by type, the other way round

If each job looked at the free worker best for it, that would be `fastest` where jobs prefer the same types.
"""

from dataclasses import replace

import numpy as np

from cranny.model.validate import one_of
from cranny.policies._shared.heterogeneous.problem import Ints, Problem, Shares, completion_times

ORDERS = ("listed", "fastest", "slowest")


def optimus(problem: Problem, *, equal: bool = True, order: str = "listed") -> Shares:
    """Divide workers by Optimus, with equal parts for all workers of a job, or in proportion to throughput."""
    pools, first = _given_out(problem, one_of(order, ORDERS, "order"))
    workers = np.zeros((len(problem.jobs), *problem.counts.shape), dtype=np.int64)
    left = problem.counts.copy()
    for job, kind in enumerate(first.tolist()):
        machine = int(np.flatnonzero(left[:, kind])[0])
        workers[job, machine, kind] += 1
        left[machine, kind] -= 1
    times = completion_times(problem, workers, equal=equal)
    for machine, kind in pools.tolist():
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


def optimus_lb(problem: Problem, order: str = "listed") -> Shares:
    """Divide workers by Optimus with the proportional split."""
    return optimus(problem, equal=False, order=order)


def _given_out(problem: Problem, order: str) -> tuple[Ints, Ints]:
    """Return machines and types in the order of their workers, and the type of each job's first worker."""
    pools: Ints = np.argwhere(problem.counts)
    if order == "listed":
        return pools, problem.first
    together = problem.rates.sum(axis=0)
    types = np.argsort(together if order == "slowest" else -together, kind="stable")
    by_type = replace(
        problem,
        gpu_types=tuple(problem.gpu_types[kind] for kind in types),
        workers=problem.counts[:, types].tolist(),
        throughput=[[row[kind] for kind in types] for row in problem.throughput],
    )
    rank = np.argsort(types)
    return pools[np.argsort(rank[pools[:, 1]], kind="stable")], types[by_type.first]
