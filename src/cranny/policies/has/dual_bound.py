"""A bound on every solution: prices for workers, at which each job buys what is best for itself.

Let a worker of type t cost p_t. Whatever solution is taken, its cost is at least

    L(p) = sum over jobs of min over workers of (cost + price)  -  price of all workers there are,

since the workers in use are no more than there are (Lagrange). The best prices give the best bound.

What a job buys is either a pack, everything on one machine; there are few of them. Or it is m workers of mean
throughput v on several machines. The cheapest mix with this mean is made of two types, and need not be of whole
workers, which makes the bound a little lower than it could be. With slope s, what a worker costs more for each
sample a second that it does more, the job's cost and price are

    A / (m v)  +  B (1 - 1 / m)  +  m (p_t + s (v - rho_t)),

A and B being its work and its exchange of gradients. Between the two types, m v = sqrt(A / s) is best. Then the
sum is concave in m, so that m is as small or as large as it can be; at one type, m = sqrt((A / rho - B) / p) is
best. So few m need be looked at, however many workers there are.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.completion_kernel import Task, cost, time_s
from cranny.policies._shared.heterogeneous.problem import Floats, Ints

STEPS = 200
PATIENCE = 10  # steps without much of a better bound, after which they get shorter
CLOSE = 1e-9  # relatively


class Prices(NamedTuple):
    """Prices and what they lead to."""

    price: Floats  # (types,)
    best_price: Floats  # (types,) with the best bound so far
    least: Floats  # (jobs,) cost and price of what each job buys
    wish: Floats  # (types,) what the job in question buys
    wanted: Floats  # (types,) what all jobs buy
    counts: Floats  # (proposals,) numbers of workers worth looking at


def first_prices(task: Task, hold: Ints) -> Prices:
    """Return prices to begin with: what a worker of each type is worth to those who hold some."""
    jobs, kinds = task.rates.shape
    rate = (hold * task.rates).sum(axis=1)
    worth = (task.weight * task.work / rate**2)[:, None] * task.rates
    price = (worth * hold).sum(axis=0) / np.maximum(hold.sum(axis=0), 1)
    return Prices(
        price, price.copy(), np.zeros(jobs), np.zeros(kinds), np.zeros(kinds), np.zeros(kinds + 2 * kinds**2)
    )


@compiled
def spread(task: Task, prices: Prices, job: int, count: int) -> float:
    """Return the least cost and price of so many workers on several machines; `wish` gets them."""
    price, kinds = prices.price, len(prices.price)
    work = task.weight[job] * task.work[job]
    exchange = (count - 1) / count * task.apart[job]
    left_s = task.deadline[job] - exchange
    needed = task.work[job] / (count * left_s) if left_s > 0 else np.inf  # mean throughput to be in time
    best = np.inf
    for t in range(kinds):
        slow = task.rates[job, t]
        for u in range(kinds):
            fast = task.rates[job, u]
            if slow == 0.0 or fast < slow or (fast == slow and u != t):
                continue
            slope = (price[u] - price[t]) / (fast - slow) if u != t else 0.0
            mean = min(max(np.sqrt(work / slope) / count, slow), fast) if slope > 0 else fast
            for mix in (mean, max(mean, needed)):
                if mix > fast * (1 + CLOSE):
                    continue
                seconds = task.work[job] / (count * mix) + exchange
                value = cost(task, job, seconds * (1 - CLOSE)) + count * (price[t] + slope * (mix - slow))
                if value < best:
                    best = value
                    part = (mix - slow) / (fast - slow) if u != t else 0.0
                    prices.wish[:] = 0.0
                    prices.wish[u] += count * part
                    prices.wish[t] += count * (1 - part)
    return best


@compiled
def _propose(task: Task, prices: Prices, job: int) -> int:
    """Fill `counts` with numbers of workers of which one is best, but for rounding; return how many there are."""
    kinds, many = len(prices.price), 0
    work, exchange = task.weight[job] * task.work[job], task.weight[job] * task.apart[job]
    for t in range(kinds):
        slow = task.rates[job, t]
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
            if task.rates[job, u] > slow and rise > 0:
                rate = np.sqrt(work * (task.rates[job, u] - slow) / rise)
                prices.counts[many] = rate / task.rates[job, u]
                prices.counts[many + 1] = rate / slow
                many += 2
    return many


@compiled
def buy(task: Task, prices: Prices, job: int, most: int) -> float:
    """Return the least cost and price of any workers; `wish` gets them."""
    kinds = len(prices.price)
    best, chosen = np.inf, 1
    timed = task.deadline[job] < np.inf  # then any number may be best
    many = most if timed else 2 * _propose(task, prices, job)
    for number in range(many + 1):
        near = number + 1.0 if timed else np.floor(prices.counts[number // 2]) + number % 2
        # The last time only for what it puts into `wish`.
        count = int(min(max(near, 1.0), most)) if number < many else chosen
        value = spread(task, prices, job, count)
        if value < best:
            best, chosen = value, count
    for pack in range(task.packs.shape[0]):
        count, rate, paid = 0, 0.0, 0.0
        for kind in range(kinds):
            held = task.packs[pack, kind]
            count += held
            rate += held * task.rates[job, kind]
            paid += held * prices.price[kind] if task.rates[job, kind] > 0 or held == 0 else np.inf
        if paid < np.inf:
            value = cost(task, job, time_s(task, job, count, rate, True)) + paid  # noqa: FBT003 - a kernel
            if value < best:
                best = value
                for kind in range(kinds):
                    prices.wish[kind] = task.packs[pack, kind]
    return best


@compiled
def bound(task: Task, prices: Prices, most: int) -> float:
    """Return L at these prices; `wanted` and `least` get what jobs buy and what for."""
    jobs, kinds = task.rates.shape
    prices.wanted[:] = 0.0
    total = 0.0
    for job in range(jobs):
        prices.least[job] = buy(task, prices, job, most)
        total += prices.least[job]
        for kind in range(kinds):
            prices.wanted[kind] += prices.wish[kind]
    for kind in range(kinds):
        total -= prices.price[kind] * task.totals[kind]
    return total


@compiled
def raise_bound(task: Task, prices: Prices, goal: float, most: int) -> float:
    """Move prices towards the best bound, and return it; `goal` is the cost of a solution.

    Prices of types that are wanted more than there are rise, others fall, in steps after Polyak.
    """
    kinds = len(prices.price)
    value = bound(task, prices, most)
    best, step, waited = value, 1.0, 0
    for _ in range(STEPS):
        square = 0.0
        for kind in range(kinds):
            over = prices.wanted[kind] - task.totals[kind]
            if prices.price[kind] > 0 or over > 0:
                square += over * over
        if square == 0.0 or goal - best <= CLOSE * abs(goal) or step < 1e-4:
            break
        for kind in range(kinds):
            over = prices.wanted[kind] - task.totals[kind]
            prices.price[kind] = max(0.0, prices.price[kind] + step * (goal - value) / square * over)
        value = bound(task, prices, most)
        waited = 0 if value > best + 0.02 * (goal - best) else waited + 1
        if value > best:
            best = value
            for kind in range(kinds):
                prices.best_price[kind] = prices.price[kind]
        if waited > PATIENCE:
            step, waited = step / 2, 0
            value = _back(task, prices, most)
    return _back(task, prices, most)


@compiled
def _back(task: Task, prices: Prices, most: int) -> float:
    """Go back to the prices with the best bound."""
    for kind in range(len(prices.price)):
        prices.price[kind] = prices.best_price[kind]
    return bound(task, prices, most)
