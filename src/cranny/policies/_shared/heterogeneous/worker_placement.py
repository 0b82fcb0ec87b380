"""From numbers of workers of each type to machines.

Workers of a type are alike but for their machine, which matters to jobs that fit into one.
"""

import numpy as np

from cranny.policies._shared.heterogeneous.problem import Ints, Problem


def seat(problem: Problem, totals: Ints, where: Ints | None = None) -> Ints:
    """Return the workers of each job on each machine, (jobs, machines, types), from those of each type.

    `where` names the machine of jobs that keep to one, -1 for the others; without it, jobs that fit into one
    machine get one if they can, those first that gain most by it.
    """
    from cranny.policies._shared.heterogeneous.completion_kernel import settle, task

    used = np.flatnonzero(problem.counts.any(axis=1))
    if where is None:
        where = np.empty(len(totals), dtype=np.int64)
        settle(task(problem), totals, np.empty((len(used), totals.shape[1]), dtype=np.int64), where)
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
