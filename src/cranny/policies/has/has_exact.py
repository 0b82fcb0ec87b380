"""has-exact: the mean completion time itself made as low as it can be, by numbers of workers that are alike.

HAS/JPS (TPDS 2024) states the problem (P1), and solves another (P3: most throughput for given numbers of workers)
for as many numbers as there is time for. Its own example shows what that costs: 11,225.8 s instead of 10,592.0 s.

But workers of a type are alike, and a job's time depends on how many of each type it has and on whether they
share a machine, nothing else. So P1 is small, and three steps solve it: a good solution fast (`climb`), prices
that bound every solution from below (`prices`), and a search of what is left in between (`branch`). If that
search ends, the solution is proved to be the best; if not, the bound says how far from the best it can be.

Weights, deadlines (first as few late jobs as can be) and fairness (`beta`, Eq. 34) go into the objective.

Departure: (8c) wants every worker used. Here workers may stay idle: one that makes its job slower helps nobody.
Departure: Eq. 34 compares with the lowest mean JCT of the sample; here with the lowest there is, as far as found.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from cranny.model.validate import between
from cranny.policies._shared.heterogeneous.completion_kernel import Task, settle, task
from cranny.policies._shared.heterogeneous.problem import Problem
from cranny.policies._shared.heterogeneous.solution import Shares
from cranny.policies._shared.heterogeneous.worker_placement import seat
from cranny.policies.has.branch_and_bound import prove
from cranny.policies.has.dual_bound import Prices, first_prices, raise_bound
from cranny.policies.has.las import las
from cranny.policies.has.local_search import Aim, Search, adopt, begin, climb, greedy, standing, width

SAME = 1e-9  # of scores, which are from 0 to 1


def has_exact(problem: Problem, beta: float = 1.0) -> Shares:
    """Share so that the mean completion time is lowest; with beta below 1 also fairly."""
    return curve(problem, [beta])[0]


def curve(problem: Problem, betas: Iterable[float]) -> list[Shares]:
    """Share once for each beta, from 1 (lowest mean completion time) to 0 (fairest)."""
    solver = Solver(problem)
    wanted = list(betas)
    found = [solver.solve(beta) for beta in wanted]
    return [solver.best(beta, own, found) for beta, own in zip(wanted, found, strict=True)]


class Solver:
    """One problem, its lowest mean completion time, and the prices that show it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.task: Task = task(problem)
        self._most = problem.size - len(problem.jobs) + 1  # workers that one job can have
        search = begin(self.task)
        greedy(self.task, search, problem.first.copy())
        goal = self._climb(search, Aim(1.0, 0.0))
        self._prices: Prices = first_prices(self.task, search.hold)
        self._base: float = raise_bound(self.task, self._prices, goal, self._most)  # what reduced costs add to
        self.ideal, self._shortest, self._proved = self._finish(search, Aim(1.0, 0.0), goal)
        self.bound = self.ideal if self._proved else self._base

    def solve(self, beta: float) -> Shares:
        """Share for a weight between mean completion time (1) and fairness (0)."""
        between(beta, "beta", 0, 1)
        search, proved = self._shortest, self._proved
        aim, value = Aim(float(beta), self.ideal), self.ideal
        if beta < 1:
            search, value = self._fairer(aim)
            value, search, proved = self._finish(search, aim, value)
            proved &= self._proved  # otherwise the mean could be lower than Eq. 34 is told, and the score higher
        workers = seat(self.problem, search.hold, search.where)
        # The bound is one on the mean, or on how many are late; with beta below 1 the mean is not the aim.
        told = beta == 1 and self.ideal <= self.task.penalty
        shares = Shares(self.problem, workers, bound_s=self.bound if told else None, proved=proved)
        if beta < 1 and self.score(beta, shares) < -value - SAME:
            # Eq. 34 would rather have a job spread over machines, only to make it slower. We do not.
            return replace(shares, proved=False)
        return shares

    def score(self, beta: float, shares: Shares) -> float:
        """Return how good shares are, Eq. 34; late jobs count as late."""
        return -float(standing(self.task, Aim(float(beta), self.ideal), shares.jct_s))

    def best(self, beta: float, own: Shares, others: Iterable[Shares]) -> Shares:
        """Return the best of these for a beta: where nothing was proved, it may be what others found."""
        best = max([own, *others], key=partial(self.score, beta))
        return own if own.proved or best is own else replace(best, proved=False, bound_s=own.bound_s)

    def _climb(self, search: Search, aim: Aim) -> float:
        value: float = climb(self.task, search, aim, width(*self.task.rates.shape))
        return value

    def _fairer(self, aim: Aim) -> tuple[Search, float]:
        """Climb from the lowest mean completion time, and from nearly equal shares; return the better."""
        found = []
        for hold in (self._shortest.hold, las(self.problem).totals):
            search = begin(self.task)
            search.hold[:] = hold
            settle(self.task, search.hold, search.room, search.where)
            adopt(self.task, search)
            found.append((search, self._climb(search, aim)))
        return min(found, key=lambda pair: pair[1])

    def _finish(self, search: Search, aim: Aim, value: float) -> tuple[float, Search, bool]:
        """Look for something better than a solution, or prove that there is nothing."""
        gap = value - self._base if aim.beta == 1.0 else self._room(aim, value)
        value, proved, found = prove(self.task, aim, self._prices, self._most, self._base, value, gap)
        if found is not None:
            search.hold[:] = found[:, :-1]
            search.where[:] = found[:, -1]
            adopt(self.task, search)
            value = standing(self.task, aim, search.seconds)
        return value, search, proved

    def _room(self, aim: Aim, value: float) -> float:
        """Return how much above the bound the mean completion time may be in something fairer than a solution."""
        needed = -value - (1 - aim.beta)  # of the first term of Eq. 34, if fairness were 1
        return aim.beta * aim.ideal / needed - self._base if needed > 0 else np.inf
