"""Matching markets of HAS/JPS (TPDS 2024), Algorithm 2: the highest throughput for given numbers of workers (P3).

Buyers are jobs, each of which wants K_i workers; sellers are workers, with prices p. Where every job holds the
workers that it prefers at these prices, no others have more throughput together (Theorem 2).

Departure: workers of a type are alike, so types are sold, not workers, and all workers of a type have one price.
Departure: the paper raises the price of one worker at a time. As it is written this need not end: two jobs that
want one each of two equal workers outbid each other for ever. We look for rounds of exchange instead: job i
gives a worker of type t for one of type u, whose holder takes one of type v, and so on back to t. While there is
a round that gains, it is made, as often as the jobs in it can. When there is none, prices exist (`prices`), and
the same theorem holds.

`hold[i, t]` are the workers of type t that job i has; rho of a type that cannot run a job is `CANNOT`.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.problem import Floats, Ints

# Less throughput than anything: such a worker is held only if the numbers leave nothing else.
CANNOT = -1e12
SAME = 1e-9  # gains below this, relatively, are rounding


class Market(NamedTuple):
    """What a market reads and writes."""

    hold: Ints  # (jobs, types) workers of each job
    loss: Floats  # (types, types) least loss of a job that gives a worker of one type for one of another
    giver: Ints  # (types, types) that job
    price: Floats  # (types,) with its sign turned
    via: Ints  # (types,) the type before, in a round of exchange


def market(jobs: int, kinds: int) -> Market:
    """Return a market without prices."""
    return Market(
        np.zeros((jobs, kinds), dtype=np.int64),
        np.zeros((kinds, kinds)),
        np.zeros((kinds, kinds), dtype=np.int64),
        np.zeros(kinds),
        np.zeros(kinds, dtype=np.int64),
    )


def prices(cleared: Market) -> Floats:
    """Return the prices at which every job holds what it prefers, the lowest 0; (types,)."""
    return np.asarray(cleared.price.max() - cleared.price)


def priced(rates: Floats) -> Floats:
    """Return the throughputs with `CANNOT` where a job cannot run."""
    return np.where(rates > 0, rates, CANNOT)


@compiled
def clear(market: Market, rates: Floats, sizes: Ints, totals: Ints) -> None:
    """Fill `hold` with the workers that have most throughput together, `sizes` of them for each job."""
    hold, giver, via = market.hold, market.giver, market.via
    _start(rates, sizes, totals, hold)
    while True:
        _weigh(market, rates)
        begin = _round(market.loss, market.price, via)
        if begin == -1:
            return
        many, t = np.int64(2**62), begin
        while True:  # how often the round can be made
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
def _weigh(market: Market, rates: Floats) -> None:
    """Work out what it costs to take a worker of one type from somebody and give him one of another."""
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
    """Let jobs take, one after the other, the best that is left."""
    jobs, kinds = hold.shape
    hold[:] = 0
    for job in range(jobs):
        wants = sizes[job]
        while wants > 0:
            best, most = -1, 0
            for kind in range(kinds):
                left = totals[kind]
                for other in range(job + 1):
                    left -= hold[other, kind]
                if left > 0 and (best == -1 or rates[job, kind] > rates[job, best]):
                    best, most = kind, left
            taken = min(most, wants)
            hold[job, best] += taken
            wants -= taken


@compiled
def _round(loss: Floats, price: Floats, via: Ints) -> int:
    """Return a type on a round of exchange that gains, or -1; `via` leads back (Bellman, Ford)."""
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
    for _ in range(kinds):  # from anywhere behind the round into it
        changed = via[changed]
    return changed
