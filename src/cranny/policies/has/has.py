"""HAS: every category, its market, and the one of least mean JCT; HAS/JPS (TPDS 2024), Algorithm 2.

Symbols of the paper and their names here:
    S, K            `len(problem.jobs)`, `problem.size`
    Psi, K_i        categories, sizes: how many workers each job gets
    rho             `problem.rates`
    Lambda, F       mean JCT (Eq. 8), fairness (Eq. 33)

Departure: the market decides types. Which of several machines with workers of a type a job gets, the paper leaves
open; a job that fits into one machine gets one if it can (`core.shares.seats`).
"""

from cranny.model.errors import InputError
from cranny.policies._shared.heterogeneous.problem import Problem
from cranny.policies._shared.heterogeneous.solution import Shares
from cranny.policies._shared.heterogeneous.worker_placement import seat
from cranny.policies.has.categories import categories, category, size
from cranny.policies.has.evaluate import Examiner, best

MOST = 5_000_000  # categories; a few seconds


def has(problem: Problem) -> Shares:
    """Share by HAS."""
    jobs, workers = len(problem.jobs), problem.size
    count = size(workers, jobs)
    if count > MOST:
        raise InputError(f"has would look at {count:.3g} categories of {workers} workers; use jps or has-exact")
    examiner = Examiner(problem)
    scores = examiner.scores(categories(workers, jobs), count)  # lines 1-16
    chosen = category(workers, jobs, best(scores, beta=1.0))  # line 17: the first of those with the least Lambda
    return Shares(problem, seat(problem, examiner.totals(chosen)))  # line 19: `Shares.batches`, Eq. 12
