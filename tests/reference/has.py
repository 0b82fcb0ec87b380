"""HAS/JPS by the book: single workers, Python lists, the paper's pseudo-code line by line.

A worker is (machine, type). Where the paper is not clear this does what `docs/understand/has-jps.md` says.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from scipy.optimize import linear_sum_assignment

from cranny.policies._shared.heterogeneous.problem import Problem

Worker = tuple[int, int]
MOST_STEPS = 200


class EndlessError(Exception):
    """The prices of a market rise for long, or for ever."""


def workers_of(problem: Problem) -> list[Worker]:
    return [
        (machine, kind)
        for machine, row in enumerate(problem.counts.tolist())
        for kind, count in enumerate(row)
        for _ in range(count)
    ]


def categories(workers: int, jobs: int) -> list[tuple[int, ...]]:
    """Algorithm 1, with 1-based K_i as printed; a set remembers what is in Psi."""
    psi: list[tuple[int, ...]] = []
    k = [0, workers - jobs + 1] + [1] * (jobs - 1)
    while tuple(k[1:]) not in psi:
        psi.append(tuple(k[1:]))
        was_reset = False
        for i in range(2, jobs + 1):
            if i > 2 and not was_reset:
                break
            highest = workers - (i - 1) - sum(k[i + 1 :])
            was_reset = k[i] >= highest
            k[i] = 1 if was_reset else k[i] + 1
        k[1] = workers - sum(k[2:])
    return psi


def jct_s(problem: Problem, job: int, held: Sequence[Worker]) -> float:
    """Eq. 14 for one job."""
    if not held or any(problem.rates[job, kind] == 0 for _, kind in held):
        return float("inf")
    training = problem.jobs[job]
    pairs = [problem.inside_gbps if a[0] == b[0] else min(problem.inside_gbps, problem.between_gbps)
             for n, a in enumerate(held) for b in held[n + 1 :]]  # fmt: skip
    slowest_bps = min(pairs, default=float("inf")) * 1e9
    bits = training.model_bytes * 8 * training.exchanges_per_epoch
    communication = 2 * (len(held) - 1) * bits / (slowest_bps * len(held))
    computation = training.samples / sum(float(problem.rates[job, kind]) for _, kind in held)
    return training.epochs * (computation + communication)


def all_shares(problem: Problem) -> Iterator[list[list[Worker]]]:
    """Yield every way to give single workers to jobs or to none."""
    workers = workers_of(problem)
    jobs = len(problem.jobs)
    for owners in product(range(jobs + 1), repeat=len(workers)):
        yield [
            [worker for worker, owner in zip(workers, owners, strict=True) if owner == job] for job in range(jobs)
        ]


def optimum_s(problem: Problem) -> float:
    """Return the lowest mean JCT, by looking at everything."""
    jobs = len(problem.jobs)
    return min(sum(jct_s(problem, job, held[job]) for job in range(jobs)) / jobs for held in all_shares(problem))


def market(rho: Sequence[Sequence[float]], sizes: Sequence[int]) -> list[list[int]]:
    """Algorithm 2, lines 2-15: the workers of each job.

    Between workers that are worth the same to it, a job prefers those that it won last, and then those that fewest
    others want: without a rule for ties the prices of equal workers rise for ever. With it they rise for long.
    """
    jobs, workers = len(rho), len(rho[0])
    price = [0.0] * workers
    winner = [-1] * workers
    for _ in range(MOST_STEPS):
        gamma = [[rho[i][k] - price[k] for k in range(workers)] for i in range(jobs)]
        wanted = [0] * workers
        graph: list[list[int]] = []  # line 3
        for i in range(jobs):
            rank = [(-round(gamma[i][k], 6), winner[k] != i, wanted[k], k) for k in range(workers)]
            graph.append([k for *_, k in sorted(rank)[: sizes[i]]])
            for k in graph[i]:
                wanted[k] += 1
        contested = [k for k in range(workers) if wanted[k] > 1]  # line 4
        if not contested:
            return graph
        k = contested[0]  # line 6
        bids = {}
        for i in (i for i in range(jobs) if k in graph[i]):  # lines 7-10
            others = sorted((gamma[i][j] for j in range(workers) if j != k), reverse=True)
            bids[i] = sum(sorted(gamma[i], reverse=True)[: sizes[i]]) - sum(others[: sizes[i]])
        price[k] += max(1.0, *bids.values())  # line 11
        winner[k] = max(bids, key=bids.__getitem__)
    raise EndlessError


def most_throughput(rho: Sequence[Sequence[float]], sizes: Sequence[int]) -> list[list[int]]:
    """What Theorem 2 says the market finds, by SciPy."""
    seats = np.repeat(np.arange(len(sizes)), sizes)
    rows, columns = linear_sum_assignment(-np.array(rho)[seats])
    found: list[list[int]] = [[] for _ in sizes]
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        found[seats[row]].append(column)
    return found


def has_s(problem: Problem) -> float:
    """Algorithm 2: the lowest mean JCT over all categories, workers taken as the market leaves them."""
    workers = workers_of(problem)
    jobs = len(problem.jobs)
    rho = [[float(problem.rates[job, kind]) for _, kind in workers] for job in range(jobs)]
    best = float("inf")
    for sizes in categories(len(workers), jobs):
        try:
            graph = market(rho, sizes)
        except EndlessError:
            graph = most_throughput(rho, sizes)
        times = [jct_s(problem, job, [workers[k] for k in graph[job]]) for job in range(jobs)]
        best = min(best, sum(times) / jobs)
    return best


def highest_level(problem: Problem) -> float:
    """Return the highest of what LAS maximises, by looking at all ways to give single workers to jobs."""
    jobs = len(problem.jobs)
    equal = (problem.totals * problem.rates).sum(axis=1) / jobs
    level = np.zeros((1, jobs))  # (ways, jobs)
    for _, kind in workers_of(problem):
        more = np.diag(problem.rates[:, kind] / equal)
        level = np.unique((level[:, None] + more).reshape(-1, jobs).round(9), axis=0)
    return float(level.min(axis=1).max())


def least_s(problem: Problem, totals: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
    """Return the least sum of JCTs with so many workers of each type: each job on each machine, or on several."""
    best = float("inf")
    jobs = range(len(totals))
    for where in product(range(-1, len(problem.counts)), repeat=len(totals)):
        left = problem.counts.copy()
        for job in jobs:
            if where[job] >= 0:
                left[where[job]] -= totals[job]
        if (left < 0).any():
            continue
        times = 0.0
        for job in jobs:
            kinds = [kind for kind, count in enumerate(totals[job].tolist()) for _ in range(count)]
            machines = [where[job]] * len(kinds) if where[job] >= 0 else range(len(kinds))
            times += jct_s(problem, job, list(zip(machines, kinds, strict=True)))
        best = min(best, times)
    return best
