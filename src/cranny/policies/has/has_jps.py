"""HAS and JPS: numbers of workers, the market of each, and the best of them; HAS/JPS (TPDS 2024), Algorithms 1-3.

Symbols of the paper and their names here:
    S, K            `len(problem.jobs)`, `problem.size`
    Psi, K_i        categories, sizes: how many workers each job gets
    rho             `problem.rates`
    Lambda, F       mean JCT (Eq. 8), fairness (Eq. 33)
    alpha, N        JPS skips the front part of Psi, and draws so many samples from the rest
    beta            weighs mean JCT against fairness (Eq. 34)

Psi holds every way to write K as a sum of S positive numbers. The last number changes slowest, the second fastest,
and the first is what remains. So the category at a position of Psi can be computed, and Psi need not be stored:
JPS draws positions.

Departure: the market decides types. Which of several machines with workers of a type a job gets, the paper leaves
open; a job that fits on one machine gets one if possible (`one_machine`).
"""

from collections.abc import Iterator
from dataclasses import replace
from math import comb

import numpy as np

from cranny.model.errors import InputError
from cranny.model.validate import between, whole
from cranny.policies._shared.heterogeneous.one_machine import place_workers
from cranny.policies._shared.heterogeneous.problem import Floats, Problem, Shares
from cranny.policies.has.market import CategoryEvaluator, best

MOST = 5_000_000  # categories that are evaluated; a few seconds


def size(workers: int, jobs: int) -> int:
    """Return the size of Psi, K - 1 over S - 1."""
    return comb(workers - 1, jobs - 1)


def categories(workers: int, jobs: int) -> Iterator[tuple[int, ...]]:
    """Yield the categories as Algorithm 1 finds them."""
    counts = [workers - jobs + 1] + [1] * (jobs - 1)  # initialization
    while True:
        yield tuple(counts)  # line 2
        for i in range(1, jobs):  # lines 3-8; a number set back to 1 lets the next one grow
            most = workers - i - sum(counts[i + 1 :])  # Eq. 15
            if counts[i] < most:
                counts[i] += 1
                break
            counts[i] = 1
        else:  # line 1: all numbers are 1 again, the first category comes back
            return
        counts[0] = workers - sum(counts[1:])  # line 9


def category(workers: int, jobs: int, position: int) -> tuple[int, ...]:
    """Return the category at a position of Psi, counted from 0."""
    counts = [0] * jobs
    left = workers
    for i in range(jobs - 1, 0, -1):
        count = 1
        while (below := comb(left - count - 1, i - 1)) <= position:  # categories with this number here
            position -= below
            count += 1
        counts[i] = count
        left -= count
    counts[0] = left
    return tuple(counts)


def has(problem: Problem) -> Shares:
    """Divide workers by HAS."""
    jobs, workers = len(problem.jobs), problem.size
    count = size(workers, jobs)
    if count > MOST:
        raise InputError(f"has would evaluate {count:.3g} categories of {workers} workers; use jps or has-exact")
    evaluator = CategoryEvaluator(problem)
    scores = evaluator.scores(categories(workers, jobs), count)  # lines 1-16
    chosen = category(workers, jobs, best(scores, beta=1.0))  # line 17: the first of those with the least Lambda
    return Shares(problem, place_workers(problem, evaluator.totals(chosen)))  # line 19: `Shares.batches`, Eq. 12


def jps(
    problem: Problem, rng: np.random.Generator, samples: int = 60, alpha: float = 0.7, beta: float = 1.0
) -> Shares:
    """Divide workers by JPS."""
    whole(samples, "samples")
    between(alpha, "alpha", 0, 1)
    between(beta, "beta", 0, 1)
    order = np.argsort(heaviness(problem), kind="stable")  # line 1
    sorted_problem = replace(
        problem,
        jobs=tuple(problem.jobs[job] for job in order),
        throughput=[problem.throughput[job] for job in order],
    )
    jobs, workers = len(order), problem.size
    positions = draw(rng, size(workers, jobs), samples, alpha)  # line 2
    evaluator = CategoryEvaluator(sorted_problem)
    drawn = [category(workers, jobs, position) for position in positions]
    scores = evaluator.scores(drawn, len(drawn))  # line 3
    totals = evaluator.totals(drawn[best(scores, beta)])  # line 4
    return Shares(problem, place_workers(problem, totals[np.argsort(order)]))


def heaviness(problem: Problem) -> Floats:
    """Return the seconds that each job would compute with an S-th of every worker, over S; (jobs,)."""
    work = np.array([job.work for job in problem.jobs])
    return np.asarray(work / (len(work) * (problem.totals * problem.rates).sum(axis=1)))


def draw(rng: np.random.Generator, count: int, samples: int, alpha: float) -> list[int]:
    """Draw positions in the rear part of `count` categories, none twice; all of them where there are no more."""
    first = min(int(alpha * count) if count < 2**53 else count * round(alpha * 2**53) // 2**53, count - 1)
    count_left = count - first
    if count_left <= samples:
        return list(range(first, count))
    if count_left < 2**40:
        return [first + int(position) for position in rng.choice(count_left, samples, replace=False)]
    # More than 64 bits hold: draw bits, and draw again what is too large.
    positions: dict[int, None] = {}
    while len(positions) < samples:
        position = int.from_bytes(rng.bytes((count_left.bit_length() + 7) // 8), "little") >> (
            -count_left.bit_length() % 8
        )
        if position < count_left:
            positions[first + position] = None
    return list(positions)
