"""Categories examined: the market of each, what it gives, which is best; HAS/JPS (TPDS 2024), Alg. 2 and 3."""

from collections.abc import Iterable

import numpy as np

from cranny.core.jit import compiled
from cranny.model.errors import InputError
from cranny.policies._shared.heterogeneous.completion_kernel import NOWHERE, Task, settle, task, time_s
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem
from cranny.policies.has.market import Market, clear, market, priced

ROWS = 4096  # categories handed over at a time


class NoCategoryError(InputError):
    """Of the categories looked at, none gives every job only workers that can run it."""


@compiled
def _examine(
    task: Task, rates: Floats, rows: Ints, scores: Floats, market: Market, room: Ints, where: Ints
) -> None:
    """Fill `scores` with the mean JCT and the fairness of each category in `rows`."""
    hold = market.hold
    jobs, kinds = hold.shape
    for row in range(rows.shape[0]):
        clear(market, rates, rows[row], task.totals)
        settle(task, hold, room, where)
        total, ratios, squares = 0.0, 0.0, 0.0
        for job in range(jobs):
            rate, count = 0.0, 0
            for kind in range(kinds):
                if hold[job, kind] > 0 and task.rates[job, kind] == 0:
                    total = np.inf  # somebody holds a worker that cannot run it: not a solution
                rate += hold[job, kind] * task.rates[job, kind]
                count += hold[job, kind]
            seconds = time_s(task, job, count, rate, where[job] != NOWHERE) if rate > 0 else np.inf
            total += seconds
            ratios += seconds / task.equal[job]
            squares += (seconds / task.equal[job]) ** 2
        scores[row, 0] = total / jobs
        scores[row, 1] = ratios * ratios / (jobs * squares) if total < np.inf else 0.0


class Examiner:
    """Markets of one problem, with the jobs in some order."""

    def __init__(self, problem: Problem) -> None:
        self.task = task(problem)
        self.rates = priced(problem.rates)
        jobs, kinds = problem.rates.shape
        self._market = market(jobs, kinds)
        self._room: Ints = np.zeros_like(self.task.counts)
        self._where: Ints = np.zeros(jobs, dtype=np.int64)

    def scores(self, categories: Iterable[tuple[int, ...]], count: int) -> Floats:
        """Return mean JCT and fairness of each category, (categories, 2)."""
        found = np.empty((count, 2))
        rows: Ints = np.empty((min(ROWS, count), len(self._where)), dtype=np.int64)
        done = filled = 0
        for sizes in categories:
            rows[filled] = sizes
            filled += 1
            if filled == len(rows) or done + filled == count:
                _examine(
                    self.task,
                    self.rates,
                    rows[:filled],
                    found[done : done + filled],
                    self._market,
                    self._room,
                    self._where,
                )
                done, filled = done + filled, 0
        return found

    def totals(self, sizes: tuple[int, ...]) -> Ints:
        """Return the workers of each job and type in a category."""
        clear(self._market, self.rates, np.array(sizes, dtype=np.int64), self.task.totals)
        return self._market.hold.copy()


def best(scores: Floats, beta: float) -> int:
    """Return the category to take, Eq. 34: beta for a low mean JCT, 1 - beta for fairness."""
    jct_s, fairness = scores[:, 0], scores[:, 1]
    if not np.isfinite(jct_s).any():
        raise NoCategoryError(
            "no category gives every job only workers that can run it; has-exact leaves workers idle"
        )
    return int(np.argmax(beta * jct_s.min() / jct_s + (1 - beta) * fairness))
