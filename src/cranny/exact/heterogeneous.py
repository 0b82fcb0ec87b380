"""The best division of a heterogeneous cluster, by enumeration: "exhaustive search" in HAS/JPS (TPDS 2024).

Every way to give out the workers of each machine and type is evaluated; nothing is pruned by a bound or by
symmetry of machines. That makes it slow, and a reference for methods that are not.
"""

from itertools import combinations
from math import comb, prod

import numpy as np

from cranny.core.jit import compiled
from cranny.model.errors import InputError
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem, Shares, exchange_s

MOST = 100_000_000  # ways; some seconds
SEVERAL = -2  # machines
NONE = -1


def exhaustive(problem: Problem, *, all_workers: bool = False) -> Shares:
    """Return the shares of the lowest weighted mean completion time, without deadlines.

    `all_workers` leaves no worker idle, as (8c) of the paper wants it.
    """
    pools = np.argwhere(problem.counts > 0)
    sizes = [int(problem.counts[machine, kind]) for machine, kind in pools]
    jobs = len(problem.jobs)
    ways = [_ways(size, jobs, all_workers=all_workers) for size in sizes]
    if (cases := prod(len(way) for way in ways)) > MOST:
        raise InputError(f"there are {cases:.3g} ways to divide {problem.size} workers: too many to enumerate")
    first = np.cumsum([0] + [len(way) for way in ways])
    best = np.zeros(len(pools), dtype=np.int64)
    by_depth = (len(pools) + 1, jobs)
    _search(
        np.concatenate(ways), first, pools[:, 0].copy(), problem.rates[:, pools[:, 1]],
        np.array([job.work for job in problem.jobs], dtype=np.float64), exchange_s(problem, apart=False),
        exchange_s(problem, apart=True),
        np.array([job.weight for job in problem.jobs], dtype=np.float64), best, best.copy(), np.zeros(by_depth),
        np.zeros(by_depth, dtype=np.int64), np.zeros(by_depth, dtype=np.int64),
    )  # fmt: skip
    workers = np.zeros((jobs, *problem.counts.shape), dtype=np.int64)
    for pool, (machine, kind) in enumerate(pools):
        workers[:, machine, kind] = ways[pool][best[pool] - first[pool]]
    shares = Shares(problem, workers)
    return Shares(problem, workers, bound_s=shares.weighted_jct_s, proved=not all_workers)


def _ways(size: int, jobs: int, *, all_workers: bool) -> Ints:
    """Return all ways to give out workers that are alike, (ways, jobs): stars and bars."""
    holders = jobs - 1 if all_workers else jobs
    ways = np.empty((comb(size + holders, holders), jobs), dtype=np.int64)
    for number, bars in enumerate(combinations(range(size + holders), holders)):
        parts = np.diff((-1, *bars, size + holders)) - 1
        ways[number] = parts[:jobs]
    return ways


@compiled
def _search(
    ways: Ints, first: Ints, machine: Ints, rates: Floats, work: Floats, inside: Floats, between: Floats,
    weight: Floats, best: Ints, at: Ints, rate: Floats, count: Ints, where: Ints,
) -> None:  # fmt: skip
    """Enumerate all ways; `best` gets the way of each pool. The last three: sums of each job by depth."""
    pools, jobs = len(machine), len(work)
    least, depth = np.inf, 0
    at[0] = first[0]
    where[0] = NONE
    while depth >= 0:
        if at[depth] == first[depth + 1]:
            depth -= 1
            if depth >= 0:
                at[depth] += 1
            continue
        for job in range(jobs):
            given, was = ways[at[depth], job], where[depth, job]
            rate[depth + 1, job] = rate[depth, job] + given * rates[job, depth]
            count[depth + 1, job] = count[depth, job] + given
            if given > 0 and rates[job, depth] == 0.0:
                rate[depth + 1, job] = np.nan  # it cannot run there
            where[depth + 1, job] = (
                was if given == 0 else machine[depth] if was in (NONE, machine[depth]) else SEVERAL
            )
        if depth + 1 < pools:
            depth += 1
            at[depth] = first[depth]
            continue
        total = 0.0
        for job in range(jobs):
            workers = count[pools, job]
            if workers == 0:
                total = np.inf
                break
            exchange = between[job] if where[pools, job] == SEVERAL else inside[job]
            total += weight[job] * (work[job] / rate[pools, job] + (workers - 1) / workers * exchange)
        if total < least:  # never true of something that is not a number
            least = total
            for pool in range(pools):
                best[pool] = at[pool]
        at[depth] += 1
