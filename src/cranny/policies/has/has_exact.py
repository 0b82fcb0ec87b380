"""has-exact: the lowest mean completion time itself, by numbers of workers that are alike.

HAS/JPS (TPDS 2024) states the problem (P1), and solves another (P3: most throughput for given numbers of workers)
for as many numbers as time allows. Its own example shows what that costs: 11,225.8 s instead of 10,592.0 s.

But workers of a type are alike, and a job's time depends on how many of each type it has and on whether they share
a machine, nothing else. So P1 is small, and three steps solve it: a good solution fast (`local_search`), dual
prices that bound every solution from below (`dual_bound`), and branch and bound in between (`branch_and_bound`).
If that search ends, the solution is proved to be the best; if not, the bound says how far from the best it can be.

Weights, deadlines (first as few late jobs as possible) and fairness (`beta`, Eq. 34) go into the objective.

Departure: (8c) wants every worker used. Here workers may stay idle: one that makes its job slower is of no use.
Departure: Eq. 34 compares with the lowest mean JCT of the sample; here with the lowest there is, as far as known.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from cranny.model.validate import between
from cranny.policies._shared.heterogeneous.completion_kernel import ProblemArrays, problem_arrays
from cranny.policies._shared.heterogeneous.one_machine import pack_jobs, pack_search, place_workers
from cranny.policies._shared.heterogeneous.problem import Problem, Shares
from cranny.policies.has.branch_and_bound import prove
from cranny.policies.has.dual_bound import DualPrices, initial_prices, raise_bound
from cranny.policies.has.las import las
from cranny.policies.has.local_search import (
    Objective,
    SearchState,
    greedy,
    local_search,
    new_state,
    recompute,
    value_of,
    width,
)

SAME = 1e-9  # absolute, of scores from 0 to 1


def has_exact(problem: Problem, beta: float = 1.0) -> Shares:
    """Minimise the mean completion time; with beta below 1 weighed against fairness."""
    return curve(problem, [beta])[0]


def curve(problem: Problem, betas: Iterable[float]) -> list[Shares]:
    """Solve once for each beta, from 1 (lowest mean completion time) to 0 (fairest)."""
    solver = HasExactSolver(problem)
    chosen = list(betas)
    found = [solver.solve(beta) for beta in chosen]
    return [solver.best(beta, own, found) for beta, own in zip(chosen, found, strict=True)]


class HasExactSolver:
    """One problem, its lowest mean completion time, and the dual prices that prove it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.arrays: ProblemArrays = problem_arrays(problem)
        search = new_state(self.arrays)
        greedy(self.arrays, search, problem.first.copy())
        self._box = width(*self.arrays.rates.shape)
        goal = local_search(self.arrays, search, Objective(1.0, 0.0), self._box)
        self._prices: DualPrices = initial_prices(self.arrays, search.hold)
        self._base: float = raise_bound(self.arrays, self._prices, goal)  # to which reduced costs are added
        self.ideal, self._shortest, self._proved = self._finish(search, Objective(1.0, 0.0), goal)
        self.bound = self.ideal if self._proved else self._base

    def solve(self, beta: float) -> Shares:
        """Solve for a weight between mean completion time (1) and fairness (0)."""
        between(beta, "beta", 0, 1)
        search, proved = self._shortest, self._proved
        objective, value = Objective(float(beta), self.ideal), self.ideal
        if beta < 1:
            search, value = self._fairer(objective)
            value, search, proved = self._finish(search, objective, value)
            proved &= self._proved  # otherwise the mean could be lower than Eq. 34 assumes, and the score higher
        workers = place_workers(self.problem, search.hold, search.where)
        # The bound is on the mean, or on the number of late jobs; with beta below 1 neither is the objective.
        bounded = beta == 1 and self.ideal <= self.arrays.penalty
        shares = Shares(self.problem, workers, bound_s=self.bound if bounded else None, proved=proved)
        if beta < 1 and self.score(beta, shares) < -value - SAME:
            # Eq. 34 would prefer to spread a job over machines only to make it slower. We do not.
            return replace(shares, proved=False)
        return shares

    def score(self, beta: float, shares: Shares) -> float:
        """Return the score of shares, Eq. 34, with the penalty of late jobs."""
        return -float(value_of(self.arrays, Objective(float(beta), self.ideal), shares.jct_s))

    def best(self, beta: float, own: Shares, others: Iterable[Shares]) -> Shares:
        """Return the best of these for a beta: where nothing was proved, another beta's solution may be better."""
        best = max([own, *others], key=partial(self.score, beta))
        return own if own.proved or best is own else replace(best, proved=False, bound_s=own.bound_s)

    def _fairer(self, objective: Objective) -> tuple[SearchState, float]:
        """Search from the lowest mean completion time and from nearly equal shares; return the better."""
        found = []
        for hold in (self._shortest.hold, las(self.problem).totals):
            search = new_state(self.arrays)
            search.hold[:] = hold
            pack_jobs(self.arrays, search.hold, pack_search(len(search.hold), self.arrays.counts), search.where)
            recompute(self.arrays, search)
            found.append((search, local_search(self.arrays, search, objective, self._box)))
        return min(found, key=lambda pair: pair[1])

    def _finish(self, search: SearchState, objective: Objective, value: float) -> tuple[float, SearchState, bool]:
        """Search for a better solution, or prove that there is none."""
        gap = value - self._base
        if objective.beta != 1.0:  # how far above the bound the mean completion time of a fairer solution may be
            needed = -value - (1 - objective.beta)  # of the first term of Eq. 34, if fairness were 1
            gap = objective.beta * objective.ideal / needed - self._base if needed > 0 else np.inf
        value, proved, found = prove(self.arrays, objective, self._prices, self._base, value, gap)
        if found is not None:
            search.hold[:] = found[:, :-1]
            search.where[:] = found[:, -1]
            recompute(self.arrays, search)
            value = value_of(self.arrays, objective, search.seconds)
        return value, search, proved
