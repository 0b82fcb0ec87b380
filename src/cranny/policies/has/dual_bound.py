"""Dual bound: prices of workers, at which each job buys what is best for it, bound every solution from below.

Let a worker of type t cost p_t. The cost of any solution is at least

    L(p) = sum over jobs of min over workers of (cost + price)  -  price of all workers there are,

since the workers in use are no more than there are (Lagrange). The best prices give the best bound.

What a job buys is either a pack, everything on one machine; there are few of them. Or it is m workers of mean
throughput v on several machines. The cheapest mix with this mean is made of two types, and may be fractional,
which makes the bound a little lower than it could be. With slope s, the extra price of a worker for
each extra sample a second, the job's cost and price are

    A / (m v)  +  B (1 - 1 / m)  +  m (p_t + s (v - rho_t)),

A and B being its work and its exchange of gradients. Between the two types, m v = sqrt(A / s) is best. Then the
sum is concave in m, so that m is as small or as large as it can be; at one type, m = sqrt((A / rho - B) / p) is
best. So few m need be evaluated, however many workers there are.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.completion_kernel import ProblemArrays, completion_s, cost
from cranny.policies._shared.heterogeneous.problem import Floats, Ints

STEPS = 200
PATIENCE = 10  # steps without a much better bound, after which they get shorter
CLOSE = 1e-9  # relative


class DualPrices(NamedTuple):
    """Dual prices, and what jobs buy at them."""

    price: Floats  # (types,)
    best_price: Floats  # (types,) with the best bound so far
    least: Floats  # (jobs,) cost and price of what each job buys
    bought: Floats  # (types,) what the present job buys
    demand: Floats  # (types,) what all jobs buy
    counts: Floats  # (proposals,) numbers of workers to evaluate


def initial_prices(arrays: ProblemArrays, hold: Ints) -> DualPrices:
    """Return initial prices: the value of a worker of each type to the jobs that hold some."""
    jobs, kinds = arrays.rates.shape
    rate = (hold * arrays.rates).sum(axis=1)
    value = (arrays.weight * arrays.work / rate**2)[:, None] * arrays.rates
    price = (value * hold).sum(axis=0) / np.maximum(hold.sum(axis=0), 1)
    return DualPrices(
        price, price.copy(), np.zeros(jobs), np.zeros(kinds), np.zeros(kinds), np.zeros(kinds + 2 * kinds**2)
    )


@compiled
def spread(arrays: ProblemArrays, prices: DualPrices, job: int, count: int) -> float:
    """Return the least cost and price of a number of workers on several machines; written to `bought`."""
    price, kinds = prices.price, len(prices.price)
    work = arrays.weight[job] * arrays.work[job]
    exchange = (count - 1) / count * arrays.apart[job]
    left_s = arrays.deadline[job] - exchange
    needed = arrays.work[job] / (count * left_s) if left_s > 0 else np.inf  # mean throughput to meet the deadline
    best = np.inf
    for t in range(kinds):
        slow = arrays.rates[job, t]
        for u in range(kinds):
            fast = arrays.rates[job, u]
            if slow == 0.0 or fast < slow or (fast == slow and u != t):
                continue
            slope = (price[u] - price[t]) / (fast - slow) if u != t else 0.0
            mean = min(max(np.sqrt(work / slope) / count, slow), fast) if slope > 0 else fast
            for mix in (mean, max(mean, needed)):
                if mix > fast * (1 + CLOSE):
                    continue
                seconds = arrays.work[job] / (count * mix) + exchange
                value = cost(arrays, job, seconds * (1 - CLOSE)) + count * (price[t] + slope * (mix - slow))
                if value < best:
                    best = value
                    part = (mix - slow) / (fast - slow) if u != t else 0.0
                    prices.bought[:] = 0.0
                    prices.bought[u] += count * part
                    prices.bought[t] += count * (1 - part)
    return best


@compiled
def _propose(arrays: ProblemArrays, prices: DualPrices, job: int) -> int:
    """Fill `counts` with numbers of workers of which one is best, but for rounding; return how many there are."""
    kinds, many = len(prices.price), 0
    work, exchange = arrays.weight[job] * arrays.work[job], arrays.weight[job] * arrays.apart[job]
    for t in range(kinds):
        slow = arrays.rates[job, t]
        if slow == 0.0:
            continue
        gain = work / slow - exchange
        if gain <= 0:
            prices.counts[many] = 1.0
        else:
            prices.counts[many] = np.sqrt(gain / prices.price[t]) if prices.price[t] > 0 else np.inf
        many += 1
        for u in range(kinds):
            rise = prices.price[u] - prices.price[t]
            if arrays.rates[job, u] > slow and rise > 0:
                rate = np.sqrt(work * (arrays.rates[job, u] - slow) / rise)
                prices.counts[many] = rate / arrays.rates[job, u]
                prices.counts[many + 1] = rate / slow
                many += 2
    return many


@compiled
def best_response(arrays: ProblemArrays, prices: DualPrices, job: int) -> float:
    """Return the least cost and price of any workers; written to `bought`."""
    kinds = len(prices.price)
    best, chosen = np.inf, 1
    timed = arrays.deadline[job] < np.inf  # then any number may be best
    many = arrays.most if timed else 2 * _propose(arrays, prices, job)
    for number in range(many + 1):
        near = number + 1.0 if timed else np.floor(prices.counts[number // 2]) + number % 2
        # The last evaluation only writes `bought`.
        count = int(min(max(near, 1.0), arrays.most)) if number < many else chosen
        value = spread(arrays, prices, job, count)
        if value < best:
            best, chosen = value, count
    for pack in range(arrays.packs.shape[0]):
        paid = 0.0
        for kind in range(kinds):
            paid += arrays.packs[pack, kind] * prices.price[kind]
        value = cost(arrays, job, completion_s(arrays, job, arrays.packs[pack], True)) + paid  # noqa: FBT003 - a kernel
        if value < best:
            best = value
            for kind in range(kinds):
                prices.bought[kind] = arrays.packs[pack, kind]
    return best


@compiled
def bound(arrays: ProblemArrays, prices: DualPrices) -> float:
    """Return L at these prices; `demand` and `least` get what jobs buy and its cost."""
    jobs, kinds = arrays.rates.shape
    prices.demand[:] = 0.0
    total = 0.0
    for job in range(jobs):
        prices.least[job] = best_response(arrays, prices, job)
        total += prices.least[job]
        for kind in range(kinds):
            prices.demand[kind] += prices.bought[kind]
    for kind in range(kinds):
        total -= prices.price[kind] * arrays.totals[kind]
    return total


@compiled
def raise_bound(arrays: ProblemArrays, prices: DualPrices, goal: float) -> float:
    """Move prices towards the best bound, and return it; `goal` is the cost of a known solution.

    Prices of types with excess demand rise, others fall, in Polyak's steps.
    """
    kinds = len(prices.price)
    value = bound(arrays, prices)
    best, step, waited = value, 1.0, 0
    for _ in range(STEPS):
        square = 0.0
        for kind in range(kinds):
            over = prices.demand[kind] - arrays.totals[kind]
            if prices.price[kind] > 0 or over > 0:
                square += over * over
        if square == 0.0 or goal - best <= CLOSE * abs(goal) or step < 1e-4:
            break
        for kind in range(kinds):
            over = prices.demand[kind] - arrays.totals[kind]
            prices.price[kind] = max(0.0, prices.price[kind] + step * (goal - value) / square * over)
        value = bound(arrays, prices)
        waited = 0 if value > best + 0.02 * (goal - best) else waited + 1
        if value > best:
            best = value
            for kind in range(kinds):
                prices.best_price[kind] = prices.price[kind]
        if waited > PATIENCE:
            step, waited = step / 2, 0
            value = _restore_best(arrays, prices)
    return _restore_best(arrays, prices)


@compiled
def _restore_best(arrays: ProblemArrays, prices: DualPrices) -> float:
    """Restore the prices with the best bound."""
    for kind in range(len(prices.price)):
        prices.price[kind] = prices.best_price[kind]
    return bound(arrays, prices)
