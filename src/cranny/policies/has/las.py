"""LAS as HAS's paper has it: the least throughput of a job, over that of an equal share, as high as possible.

HAS/JPS (TPDS 2024), Section IV-A, its baseline "used by Tiresias": LAS maximises

    min over jobs i of  sum over workers k of sigma_ik rho_ik / V_i^Equal,

where V_i^Equal is the job's throughput with an S-th of every worker. We call the fraction the job's *level*.

1. A first solution: the job of the lowest level gets the free worker that is best for it (least attained service
   first), then two jobs exchange workers while that helps the one of the lower level.
2. Prices p of workers, of the linear program in which workers can be divided. A job that is to reach level v pays
   at least c_i(v), the price of its cheapest whole workers. If all c_i(v) together exceed the price of all
   workers, no shares reach v.
3. Otherwise the choices are listed that exceed c_i(v) by no more than what remains, and searched depth first.
   Bisection over v, until nothing is left between what was found and what is impossible.

Max-min fairness says nothing of jobs above the lowest level: what the search leaves is given out as in step 1.

Departure: where the search takes too long (many jobs on many types), the best solution so far is returned, and not
called proved.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.one_machine import place_workers
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem, Shares

SAME = 1e-9  # relative; rounding errors
HIGHER = 1e-7  # relative; levels that differ by less are equal
MOST_CHOICES = 50_000
MOST_STEPS = 200_000  # of one search
BISECTIONS, MOST_SEARCHES = 12, 40
FOUND, NOT_FOUND, UNFINISHED = 0, 1, 2


def las(problem: Problem) -> Shares:
    """Divide workers by LAS."""
    level = levels(problem)
    totals = np.zeros(level.shape, dtype=np.int64)
    totals[np.arange(len(totals)), problem.first] = 1
    give_rest(totals, level, problem.totals - totals.sum(axis=0), np.zeros(len(totals)))
    # Types that are alike to every job are one type to the search.
    _, first, kind = np.unique(level, axis=1, return_index=True, return_inverse=True)
    search = LevelSearch(level[:, first], np.bincount(kind.reshape(-1), problem.totals).astype(np.int64))
    found, proved = search.highest(float((totals * level).sum(axis=1).min()))
    if found is not None:
        totals = _by_type(found, kind.reshape(-1), problem.totals)
        give_rest(totals, level, problem.totals - totals.sum(axis=0), np.zeros(len(totals)))
    return Shares(problem, place_workers(problem, totals), proved=proved)


def levels(problem: Problem) -> Floats:
    """Return what one worker of each type adds to the level of each job, (jobs, types)."""
    equal = (problem.totals * problem.rates).sum(axis=1) / len(problem.jobs)
    return np.asarray(problem.rates / equal[:, None])


@compiled
def give_rest(totals: Ints, level: Floats, left: Ints, attained: Floats) -> None:
    """Give out the workers that are left, least attained service first; then exchange. `attained` is scratch."""
    jobs, kinds = totals.shape
    for job in range(jobs):
        attained[job] = 0.0
        for kind in range(kinds):
            attained[job] += totals[job, kind] * level[job, kind]
    while True:
        least, best = -1, -1
        for job in range(jobs):
            wanted = -1
            for kind in range(kinds):
                if left[kind] > 0 and level[job, kind] > (0.0 if wanted == -1 else level[job, wanted]):
                    wanted = kind
            if wanted != -1 and (least == -1 or attained[job] < attained[least]):
                least, best = job, wanted
        if least == -1:
            break
        totals[least, best] += 1
        left[best] -= 1
        attained[least] += level[least, best]
    again = True
    while again:
        again = False
        for poor in range(jobs):
            for rich in range(jobs):
                while attained[poor] < attained[rich] and _exchange(totals, level, attained, poor, rich):
                    again = True


@compiled
def _exchange(totals: Ints, level: Floats, attained: Floats, poor: int, rich: int) -> bool:
    """Exchange workers of two jobs one for one if the lesser of their levels grows; say whether they did."""
    for given in range(len(level[poor])):
        for taken in range(len(level[poor])):
            if (
                min(totals[poor, given], totals[rich, taken]) == 0
                or min(level[poor, taken], level[rich, given]) == 0
            ):
                continue
            more = level[poor, taken] - level[poor, given]
            less = level[rich, given] - level[rich, taken]
            if min(attained[poor] + more, attained[rich] + less) > attained[poor] * (1 + SAME):
                totals[poor, given] -= 1
                totals[poor, taken] += 1
                totals[rich, taken] -= 1
                totals[rich, given] += 1
                attained[poor] += more
                attained[rich] += less
                return True
    return False


def _by_type(found: Ints, kind: Ints, there: Ints) -> Ints:
    """Return workers of each type, from those of types that are alike."""
    totals = np.zeros((len(found), len(there)), dtype=np.int64)
    left = there.copy()
    for at, like in enumerate(kind.tolist()):
        before = np.concatenate([[0], np.cumsum(found[:, like])])
        totals[:, at] = np.diff(np.minimum(before, left[at]))
        found[:, like] -= totals[:, at]
    return totals


class LevelChoices(NamedTuple):
    """Workers with which jobs reach a level; a job's choices are those from `start[job]` to `start[job + 1]`."""

    held: Ints  # (choices, types)
    over: Floats  # (choices,) price, and then price above the job's cheapest choice
    start: Ints  # (jobs + 1,)


class LevelSearch:
    """Searches shares in which every job reaches a level."""

    def __init__(self, level: Floats, there: Ints) -> None:
        # Equal jobs stand side by side, so that the search need not try their choices in every order.
        self._order = np.lexsort(level.T)
        self._level: Floats = level[self._order]
        self._there = there
        self._price, self._most = relaxed(level, there)
        jobs, kinds = level.shape
        self._choices = LevelChoices(
            np.empty((MOST_CHOICES, kinds), np.int64), np.empty(MOST_CHOICES), np.zeros(jobs + 1, np.int64)
        )

    def highest(self, low: float) -> tuple[Ints | None, bool]:
        """Return shares of the highest level, if any is above `low`, and whether that is proved."""
        best, high, proved = None, self._most * (1 + HIGHER), False
        for number in range(MOST_SEARCHES):
            above = low * (1 + HIGHER)
            # The first solution is often the best already. If not, bisection comes close.
            level = max(above, (low + high) / 2) if 0 < number < BISECTIONS else above
            found, ended = self._reach(level)
            if found is not None:
                best, low = found, float((found * self._level).sum(axis=1).min())
            elif level == above:
                proved = ended
                break
            else:
                high = level
        return None if best is None else best[np.argsort(self._order)], proved

    def _reach(self, level: float) -> tuple[Ints | None, bool]:
        """Return shares in which every job reaches a level, or None; and whether the search ended."""
        jobs, kinds = self._level.shape
        scratch = np.zeros(jobs), np.zeros(kinds, dtype=np.int64)
        slack = list_choices(self._choices, self._level, self._price, self._there, level, *scratch)
        held, over, start = self._choices
        if slack < 0 or start[-1] > MOST_CHOICES:
            return None, slack < 0
        spans = zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
        by_price = np.concatenate([first + np.argsort(over[first:last]) for first, last in spans])
        choices = LevelChoices(held[by_price], over[by_price], start)
        order = np.argsort(np.diff(start), kind="stable")
        alike = np.append(False, (self._level[order[1:]] == self._level[order[:-1]]).all(axis=1))
        left, chosen = np.zeros((jobs + 1, kinds), dtype=np.int64), np.zeros(jobs, dtype=np.int64)
        left[0] = self._there
        outcome = depth_first(choices, order, alike, slack, left, np.zeros(jobs + 1), chosen)
        return choices.held[chosen[np.argsort(order)]] if outcome == FOUND else None, outcome != UNFINISHED


def relaxed(level: Floats, there: Ints) -> tuple[Floats, float]:
    """Return prices of workers, and the highest level if workers could be divided."""
    from scipy.optimize import linprog

    jobs, kinds = level.shape
    if kinds == 1:
        return np.ones(1), float(there[0] / (1 / level[:, 0]).sum())
    cells = np.kron(np.eye(jobs), np.ones(kinds))  # (jobs, jobs * types) those of each job
    behind = np.pad(-cells * level.ravel(), ((0, 0), (0, 1)), constant_values=1.0)
    limits = np.pad(np.tile(np.eye(kinds), jobs), ((0, 0), (0, 1)))
    solved = linprog(
        np.append(np.zeros(jobs * kinds), -1.0),
        A_ub=np.vstack([behind, limits]),
        b_ub=np.append(np.zeros(jobs), there),
    )
    return np.maximum(-solved.ineqlin.marginals[jobs:], 0.0), float(solved.x[-1])


@compiled
def list_choices(
    choices: LevelChoices, level: Floats, price: Floats, there: Ints, goal: float, least: Floats, held: Ints
) -> float:
    """List the choices that may be in a solution; return what remains if each job pays its least.

    That is below zero if no shares reach the goal. `least` and `held` are scratch.
    """
    jobs, paid = len(least), 0.0
    budget = 0.0
    for kind in range(len(held)):
        budget += price[kind] * there[kind]
    budget *= 1 + SAME
    for job in range(jobs):
        least[job] = _list_job(choices, level[job], price, there, goal, budget - paid, held, -1)[1]
        paid += least[job]
        if paid > budget:
            return -1.0
    slack = budget - paid
    for job in range(jobs):
        first = choices.start[job]
        last = _list_job(choices, level[job], price, there, goal, least[job] + slack, held, first)[0]
        choices.start[job + 1] = last
        if last > len(choices.over):
            choices.start[jobs] = last
            break
        for at in range(first, last):
            choices.over[at] -= least[job]
    return slack


@compiled
def _list_job(
    choices: LevelChoices,
    level: Floats,
    price: Floats,
    there: Ints,
    goal: float,
    most: float,
    held: Ints,
    first: int,
) -> tuple[int, float]:
    """List one job's choices from `first` on, of a price up to `most`; return their end and the least price.

    With -1 for `first` only the least price is found. It is infinite if there is no choice.
    """
    kinds, last, unit, least, at = len(held), 0, np.inf, np.inf, first
    for kind in range(kinds):
        held[kind] = 0
        if level[kind] > 0 and there[kind] > 0 and price[kind] / level[kind] < unit:
            unit, last = price[kind] / level[kind], kind  # the cheapest, of which there are as many as needed
    while True:
        reached, paid = 0.0, 0.0
        for kind in range(kinds):
            if kind != last:
                reached += held[kind] * level[kind]
                paid += held[kind] * price[kind]
        need = max(0, int(np.ceil((goal - reached) / level[last] - SAME)))
        paid += need * price[last]
        if need <= there[last] and paid <= most:
            least = min(least, paid)
            if first == -1:
                most = paid
            elif at == len(choices.over):
                return at + 1, least
            else:
                _store(choices, at, held, last, need, paid)
                at += 1
        more = False
        for kind in range(kinds):
            if kind == last or level[kind] == 0.0:
                continue
            held[kind] += 1
            if held[kind] <= there[kind] and _may_pay(level, price, goal, most, held, kind, last, unit):
                more = True
                break
            held[kind] = 0
        if not more:
            return at, least


@compiled
def _store(choices: LevelChoices, at: int, held: Ints, last: int, need: int, paid: float) -> None:
    """Write a choice: its workers, with those of the last type, and its price."""
    choices.over[at] = paid
    for kind in range(len(held)):
        choices.held[at, kind] = need if kind == last else held[kind]


@compiled
def _may_pay(
    level: Floats, price: Floats, goal: float, most: float, held: Ints, kind: int, last: int, unit: float
) -> bool:
    """Say whether workers of a type are needed, and what more is needed may have a price up to `most`."""
    reached, paid = 0.0, 0.0
    for each in range(len(held)):
        if each != last:
            reached += held[each] * level[each]
            paid += held[each] * price[each]
    return reached - level[kind] < goal and paid + max(0.0, goal - reached) * unit <= most


@compiled
def depth_first(
    choices: LevelChoices, order: Ints, alike: Ints, slack: float, left: Ints, over: Floats, chosen: Ints
) -> int:
    """Search a choice of each job so that all fit; `left` and `over` are by depth, `chosen` gets the solution."""
    depth, jobs = 0, len(order)
    chosen[0] = choices.start[order[0]]
    for _ in range(MOST_STEPS):
        job, at = order[depth], chosen[depth]
        if at == choices.start[job + 1] or over[depth] + choices.over[at] > slack:
            if depth == 0:
                return NOT_FOUND
            depth -= 1
            chosen[depth] += 1
            continue
        fits = True
        for kind in range(left.shape[1]):
            left[depth + 1, kind] = left[depth, kind] - choices.held[at, kind]
            fits &= left[depth + 1, kind] >= 0
        if not fits:
            chosen[depth] += 1
            continue
        over[depth + 1] = over[depth] + choices.over[at]
        depth += 1
        if depth == jobs:
            return FOUND
        # Of jobs that are alike, the next has the same choice or a later one.
        chosen[depth] = choices.start[order[depth]] + (at - choices.start[job] if alike[depth] else 0)
    return UNFINISHED
