"""Matching markets of HAS/JPS (TPDS 2024), Algorithms 2 and 3: the highest throughput of each category (P3).

A category gives the number of workers of each job. Buyers are jobs, job i of K_i workers; sellers are workers,
with prices p. Where every job holds the workers that it prefers at these prices, no other matching has a higher
total throughput (Theorem 2).

Departure: workers of a type are alike, so types are sold, not workers, and all workers of a type have one price.
Departure: the paper raises the price of one worker at a time. As it is written this need not end: two jobs that
want one each of two equal workers outbid each other for ever. We look for cycles of exchange instead: job i
gives a worker of type t for one of type u, whose holder takes one of type v, and so on back to t. While there is
a cycle that gains, it is applied, as often as its jobs can. When there is none, prices exist (the
highest of `Market.price` less each), and the same theorem holds.

`hold[i, t]` are the workers of type t that job i has; rho of a type that cannot run a job is `CANNOT`.
"""

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.model.errors import InputError
from cranny.policies._shared.heterogeneous.completion_kernel import (
    NO_MACHINE,
    ProblemArrays,
    completion_s,
    problem_arrays,
)
from cranny.policies._shared.heterogeneous.one_machine import PackSearch, pack_jobs, pack_search
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem

# Below any throughput: such a worker is held only if the category leaves no other.
CANNOT = -1e12
SAME = 1e-9  # relative gains below this are rounding
ROWS = 4096  # categories evaluated in one call


class Market(NamedTuple):
    """Arrays that a market reads and writes."""

    hold: Ints  # (jobs, types) workers of each job
    loss: Floats  # (types, types) least loss of a job that gives a worker of one type for one of another
    giver: Ints  # (types, types) that job
    price: Floats  # (types,) negated
    via: Ints  # (types,) the type before, in a cycle of exchange


def market(jobs: int, kinds: int) -> Market:
    """Return a market without prices."""
    return Market(
        np.zeros((jobs, kinds), dtype=np.int64),
        np.zeros((kinds, kinds)),
        np.zeros((kinds, kinds), dtype=np.int64),
        np.zeros(kinds),
        np.zeros(kinds, dtype=np.int64),
    )


@compiled
def clear(market: Market, rates: Floats, sizes: Ints, totals: Ints) -> None:
    """Fill `hold` with the workers that have most throughput together, `sizes` of them for each job."""
    hold, giver, via = market.hold, market.giver, market.via
    _start(rates, sizes, totals, hold)
    while True:
        _losses(market, rates)
        begin = _gaining_cycle(market.loss, market.price, via)
        if begin == -1:
            return
        many, t = np.int64(2**62), begin
        while True:  # how often the cycle can be applied
            many = min(many, hold[giver[via[t], t], via[t]])
            t = via[t]
            if t == begin:
                break
        while True:
            job = giver[via[t], t]
            hold[job, via[t]] -= many
            hold[job, t] += many
            t = via[t]
            if t == begin:
                break


@compiled
def _losses(market: Market, rates: Floats) -> None:
    """Compute the least loss of a job that gives a worker of one type for one of another."""
    jobs, kinds = market.hold.shape
    for t in range(kinds):
        for u in range(kinds):
            market.loss[t, u], market.giver[t, u] = np.inf, -1
            for job in range(jobs):
                loss = rates[job, t] - rates[job, u]
                if t != u and market.hold[job, t] > 0 and loss < market.loss[t, u]:
                    market.loss[t, u], market.giver[t, u] = loss, job


@compiled
def _start(rates: Floats, sizes: Ints, totals: Ints, hold: Ints) -> None:
    """Give jobs, one after the other, the best workers that are left."""
    jobs, kinds = hold.shape
    hold[:] = 0
    for job in range(jobs):
        need = sizes[job]
        while need > 0:
            best, most = -1, 0
            for kind in range(kinds):
                left = totals[kind]
                for other in range(job + 1):
                    left -= hold[other, kind]
                if left > 0 and (best == -1 or rates[job, kind] > rates[job, best]):
                    best, most = kind, left
            taken = min(most, need)
            hold[job, best] += taken
            need -= taken


@compiled
def _gaining_cycle(loss: Floats, price: Floats, via: Ints) -> int:
    """Return a type on a cycle of exchange that gains, or -1; `via` leads back (Bellman, Ford)."""
    kinds = len(price)
    price[:] = 0.0
    via[:] = -1
    changed = -1
    for _ in range(kinds):
        changed = -1
        for t in range(kinds):
            for u in range(kinds):
                least = price[t] + loss[t, u]
                if least < price[u] - SAME * (abs(price[u]) + 1):
                    price[u], via[u] = least, t
                    changed = u
        if changed == -1:
            return -1
    for _ in range(kinds):  # from any type behind the cycle into it
        changed = via[changed]
    return changed


class NoCategoryError(InputError):
    """None of the evaluated categories gives every job only workers that can run it."""


@compiled
def _evaluate(
    arrays: ProblemArrays,
    rates: Floats,
    rows: Ints,
    scores: Floats,
    market: Market,
    packs: PackSearch,
    where: Ints,
) -> None:
    """Fill `scores` with the mean JCT and the fairness of each category in `rows`."""
    hold, jobs = market.hold, len(where)
    for row in range(rows.shape[0]):
        clear(market, rates, rows[row], arrays.totals)
        pack_jobs(arrays, hold, packs, where)
        total, ratios, squares = 0.0, 0.0, 0.0
        for job in range(jobs):
            seconds = completion_s(arrays, job, hold[job], where[job] != NO_MACHINE)
            total += seconds
            ratios += seconds / arrays.equal[job]
            squares += (seconds / arrays.equal[job]) ** 2
        scores[row, 0] = total / jobs
        scores[row, 1] = ratios * ratios / (jobs * squares) if total < np.inf else 0.0


class CategoryEvaluator:
    """Evaluates categories of one problem by their markets."""

    def __init__(self, problem: Problem) -> None:
        self.arrays = problem_arrays(problem)
        self.rates: Floats = np.where(problem.rates > 0, problem.rates, CANNOT)
        jobs, kinds = problem.rates.shape
        self._market = market(jobs, kinds)
        self._packs = pack_search(jobs, self.arrays.counts)
        self._where: Ints = np.zeros(jobs, dtype=np.int64)

    def scores(self, categories: Iterable[tuple[int, ...]], count: int) -> Floats:
        """Return mean JCT and fairness of each category, (categories, 2)."""
        found = np.empty((count, 2))
        rest = iter(categories)
        for done in range(0, count, ROWS):
            rows = np.array(list(islice(rest, ROWS)), dtype=np.int64)
            scores = found[done : done + ROWS]
            _evaluate(self.arrays, self.rates, rows, scores, self._market, self._packs, self._where)
        return found

    def totals(self, sizes: tuple[int, ...]) -> Ints:
        """Return the workers of each job and type in a category."""
        clear(self._market, self.rates, np.array(sizes, dtype=np.int64), self.arrays.totals)
        return self._market.hold.copy()


def best(scores: Floats, beta: float) -> int:
    """Return the best category, Eq. 34: beta for a low mean JCT, 1 - beta for fairness."""
    jct_s, fairness = scores[:, 0], scores[:, 1]
    if not np.isfinite(jct_s).any():
        raise NoCategoryError(
            "no category gives every job only workers that can run it; has-exact leaves workers idle"
        )
    return int(np.argmax(beta * jct_s.min() / jct_s + (1 - beta) * fairness))
