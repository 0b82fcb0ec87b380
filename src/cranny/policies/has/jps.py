"""JPS: a sample of the promising categories; HAS/JPS (TPDS 2024), Algorithm 3.

alpha leaves out the front part of Psi, beta weighs mean JCT against fairness (Eq. 34), N is the number of samples.
"""

from dataclasses import replace

import numpy as np

from cranny.model.validate import between, whole
from cranny.policies._shared.heterogeneous.problem import Floats, Problem
from cranny.policies._shared.heterogeneous.solution import Shares
from cranny.policies._shared.heterogeneous.worker_placement import seat
from cranny.policies.has.categories import category, size
from cranny.policies.has.evaluate import Examiner, best

ALPHA = 0.7
BETA = 1.0
SAMPLES = 60


def jps(
    problem: Problem,
    rng: np.random.Generator,
    samples: int = SAMPLES,
    alpha: float = ALPHA,
    beta: float = BETA,
) -> Shares:
    """Share by JPS."""
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
    places = draw(rng, size(workers, jobs), samples, alpha)  # line 2
    examiner = Examiner(sorted_problem)
    drawn = [category(workers, jobs, place) for place in places]
    scores = examiner.scores(drawn, len(drawn))  # line 3
    totals = examiner.totals(drawn[best(scores, beta)])  # line 4
    return Shares(problem, seat(problem, totals[np.argsort(order)]))


def heaviness(problem: Problem) -> Floats:
    """Return the seconds that each job would compute for with an S-th of every worker, over S; (jobs,)."""
    work = np.array([job.work for job in problem.jobs])
    return np.asarray(work / (len(work) * (problem.totals * problem.rates).sum(axis=1)))


def draw(rng: np.random.Generator, count: int, samples: int, alpha: float) -> list[int]:
    """Draw places in the rear part of `count` categories, none twice; all of them where there are no more."""
    first = min(int(alpha * count) if count < 2**53 else count * round(alpha * 2**53) // 2**53, count - 1)
    there = count - first
    if there <= samples:
        return list(range(first, count))
    if there < 2**40:
        return [first + int(place) for place in rng.choice(there, samples, replace=False)]
    # More than a machine number holds: draw bits, and what is too large again.
    places: dict[int, None] = {}
    while len(places) < samples:
        place = int.from_bytes(rng.bytes((there.bit_length() + 7) // 8), "little") >> (-there.bit_length() % 8)
        if place < there:
            places[first + place] = None
    return list(places)
