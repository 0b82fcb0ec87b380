"""Branch and bound: search or prune every solution that could be better than the incumbent.

At dual prices p, a choice of workers has a reduced cost: its cost and price, less the least cost and price of the
job (`dual_bound`). The cost of a solution is at least the bound plus the reduced costs of all its jobs. So a
choice whose reduced cost exceeds the gap between bound and incumbent is in no better solution, and a good bound
leaves few. These are searched depth first, job by job, each job's choices in order of reduced cost.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.completion_kernel import NO_MACHINE, ProblemArrays, completion_s, cost
from cranny.policies._shared.heterogeneous.problem import Floats, Ints
from cranny.policies.has.dual_bound import DualPrices, spread
from cranny.policies.has.local_search import Objective, objective_value

MOST_CHOICES = 100_000
MOST_STEPS = 2_000_000  # when listing choices; then as many of the search
SAME = 1e-9  # relative


class Choices(NamedTuple):
    """The workers each job could have; a job's choices are those from `start[job]` to `start[job + 1]`."""

    held: Ints  # (choices, types)
    alone: Ints  # (choices,) 1 if all on one machine
    seconds: Floats  # (choices,)
    reduced: Floats  # (choices,) reduced cost
    start: Ints  # (jobs + 1,)


class SearchPath(NamedTuple):
    """The present path of the search; all but `taken` and `vacant` by depth."""

    order: Ints  # (jobs,) the job at each depth
    choice: Ints  # (jobs,)
    machine: Ints  # (jobs,) of a choice on one machine: that machine, or the first to try
    left: Ints  # (jobs + 1, types) workers that no job has
    sums: Floats  # (jobs + 1, 4) of costs, reduced costs, ratios to equal shares, and their squares
    vacant: Ints  # (machines, types) not taken by jobs on one machine
    taken: Ints  # (machines,) jobs that are on this machine only
    kind: Ints  # (machines,) machines of one kind are alike
    best: Ints  # (jobs, types + 1) the best solution: workers of each type, machine


@compiled
def _add(
    arrays: ProblemArrays, prices: DualPrices, choices: Choices, job: int, held: Ints, alone: int, gap: float
) -> None:
    """Add a choice of a job, the last so far, if its reduced cost is small; there may be no room left for it."""
    seconds, paid = completion_s(arrays, job, held, alone == 1), 0.0
    for kind in range(len(held)):
        paid += held[kind] * prices.price[kind]
    reduced = cost(arrays, job, seconds) + paid - prices.least[job]
    if seconds == np.inf or reduced > gap:
        return
    at = choices.start[job + 1]
    choices.start[job + 1] += 1
    if at < choices.held.shape[0]:
        for kind in range(len(held)):
            choices.held[at, kind] = held[kind]
        choices.alone[at], choices.seconds[at], choices.reduced[at] = alone, seconds, max(reduced, 0.0)


@compiled
def list_choices(arrays: ProblemArrays, prices: DualPrices, choices: Choices, gap: float, held: Ints) -> bool:
    """List all choices with a reduced cost up to `gap`; False if they are too many."""
    jobs, kinds = arrays.rates.shape
    steps, last = 0, kinds - 1
    for job in range(jobs):
        choices.start[job + 1] = choices.start[job]
        for pack in range(arrays.packs.shape[0]):
            _add(arrays, prices, choices, job, arrays.packs[pack], 1, gap)
        low, high = arrays.most + 1, 0  # numbers of workers the job may have
        for count in range(1, arrays.most + 1):
            if spread(arrays, prices, job, count) - prices.least[job] <= gap:
                low, high = min(low, count), count
        held[:] = 0
        more = low <= high
        while more:
            others = 0
            for kind in range(last):
                others += held[kind]
            for own in range(max(0, low - others), min(arrays.totals[last], high - others) + 1):
                held[last] = own
                _add(arrays, prices, choices, job, held, 0, gap)
                steps += 1
            steps += 1
            if steps > MOST_STEPS or choices.start[job + 1] > choices.held.shape[0]:
                return False
            more = False
            for kind in range(last):
                if held[kind] < min(arrays.totals[kind], high):
                    held[kind] += 1
                    more = True
                    break
                held[kind] = 0
    return True


@compiled
def _pruned(
    arrays: ProblemArrays, objective: Objective, least: float, sums: Floats, open_jobs: int, best: float
) -> bool:
    """Say whether no solution below can be better than the best, by bounds on mean JCT and fairness."""
    if objective.beta == 1.0:
        return least >= best - SAME * abs(best)
    ratios, squares = sums[2], sums[3]
    # With r jobs open, Jain's index is highest if each has the ratio squares / ratios.
    fair = (
        1.0 if squares == 0.0 else min(1.0, (ratios * ratios + open_jobs * squares) / (len(arrays.work) * squares))
    )
    return -(
        objective.beta * objective.ideal / max(least, objective.ideal) + (1 - objective.beta) * fair
    ) >= best - SAME * abs(best)


@compiled
def _put(choices: Choices, path: SearchPath, depth: int, sign: int) -> None:
    """Put the choice at this depth on its machine (sign 1), or take it off (sign -1)."""
    machine, chosen = path.machine[depth], path.choice[depth]
    if choices.alone[chosen] == 0:
        return
    path.taken[machine] += sign
    for kind in range(path.vacant.shape[1]):
        path.vacant[machine, kind] -= sign * choices.held[chosen, kind]


@compiled
def _find(choices: Choices, path: SearchPath, depth: int) -> int:
    """Return the next machine for the choice at this depth, of machines that are alike only one; or NO_MACHINE."""
    chosen = path.choice[depth]
    for machine in range(path.machine[depth], path.vacant.shape[0]):
        fits = True
        for kind in range(path.vacant.shape[1]):
            fits &= choices.held[chosen, kind] <= path.vacant[machine, kind]
        if fits and path.taken[machine] == 0:
            for other in range(machine):
                fits &= path.taken[other] > 0 or path.kind[other] != path.kind[machine]
        if fits:
            return machine
    return NO_MACHINE


@compiled
def _take(arrays: ProblemArrays, choices: Choices, path: SearchPath, depth: int) -> bool:
    """Take the choice at this depth if workers, and a machine, are available."""
    chosen, job = path.choice[depth], path.order[depth]
    for kind in range(path.left.shape[1]):
        path.left[depth + 1, kind] = path.left[depth, kind] - choices.held[chosen, kind]
        if path.left[depth + 1, kind] < 0:
            return False
    if choices.alone[chosen] == 1:
        path.machine[depth] = _find(choices, path, depth)
        if path.machine[depth] == NO_MACHINE:
            return False
    ratio = choices.seconds[chosen] / arrays.equal[job]
    path.sums[depth + 1, 0] = path.sums[depth, 0] + cost(arrays, job, choices.seconds[chosen])
    path.sums[depth + 1, 1] = path.sums[depth, 1] + choices.reduced[chosen]
    path.sums[depth + 1, 2] = path.sums[depth, 2] + ratio
    path.sums[depth + 1, 3] = path.sums[depth, 3] + ratio * ratio
    return True


@compiled
def branch(
    arrays: ProblemArrays, objective: Objective, choices: Choices, path: SearchPath, bound: float, best: float
) -> tuple[float, bool]:
    """Search all choices; return the best objective found, and whether it is proved optimal."""
    jobs, depth = len(path.order), 0
    path.choice[0], path.machine[0] = choices.start[path.order[0]], 0
    for _ in range(MOST_STEPS):
        job, chosen = path.order[depth], path.choice[depth]
        # Later choices of this job have higher reduced costs still.
        sums = path.sums[depth]
        over = chosen == choices.start[job + 1] or _pruned(
            arrays, objective, bound + sums[1] + choices.reduced[chosen], sums, jobs - depth, best
        )
        if not over:
            if not _take(arrays, choices, path, depth):
                path.choice[depth], path.machine[depth] = chosen + 1, 0
                continue
            sums = path.sums[depth + 1]
            if depth + 1 == jobs:
                value = objective_value(arrays, objective, sums[0], sums[2], sums[3])
                if value < best - SAME * abs(best):
                    best = value
                    for at in range(jobs):
                        job, kept = path.order[at], path.choice[at]
                        for kind in range(path.left.shape[1]):
                            path.best[job, kind] = choices.held[kept, kind]
                        path.best[job, -1] = path.machine[at] if choices.alone[kept] == 1 else NO_MACHINE
            elif not _pruned(arrays, objective, bound + sums[1], sums, jobs - depth - 1, best):
                _put(choices, path, depth, 1)
                depth += 1
                path.choice[depth], path.machine[depth] = choices.start[path.order[depth]], 0
                continue
            path.choice[depth], path.machine[depth] = chosen + 1, 0
            continue
        if depth == 0:
            return best, True
        depth -= 1
        _put(choices, path, depth, -1)
        if choices.alone[path.choice[depth]] == 1:
            path.machine[depth] += 1  # another machine may leave more workers for others
        else:
            path.choice[depth], path.machine[depth] = path.choice[depth] + 1, 0
    return best, False


def prove(
    arrays: ProblemArrays, objective: Objective, prices: DualPrices, bound: float, best: float, gap: float
) -> tuple[float, bool, Ints | None]:
    """Return the best objective, whether it is proved, and the solution if it is a new one.

    The solution is workers of each type and machine (or NO_MACHINE) of each job, (jobs, types + 1).
    """
    jobs, kinds = arrays.rates.shape
    if (arrays.apart < arrays.between).any():  # not all packs are listed
        return best, False, None
    choices = Choices(
        np.empty((MOST_CHOICES, kinds), dtype=np.int64),
        np.empty(MOST_CHOICES, dtype=np.int64),
        np.empty(MOST_CHOICES),
        np.empty(MOST_CHOICES),
        np.zeros(jobs + 1, dtype=np.int64),
    )
    if not list_choices(arrays, prices, choices, gap, np.zeros(kinds, dtype=np.int64)):
        return best, False, None
    spans = zip(choices.start[:-1].tolist(), choices.start[1:].tolist(), strict=True)
    by_cost = np.concatenate([first + np.argsort(choices.reduced[first:last]) for first, last in spans])
    held, alone, seconds, reduced, start = choices
    choices = Choices(held[by_cost], alone[by_cost], seconds[by_cost], reduced[by_cost], start)
    left = np.zeros((jobs + 1, kinds), dtype=np.int64)
    left[0] = arrays.totals
    path = SearchPath(
        np.argsort(np.diff(choices.start), kind="stable"),
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs, dtype=np.int64),
        left,
        np.zeros((jobs + 1, 4)),
        arrays.counts.copy(),
        np.zeros(len(arrays.counts), dtype=np.int64),
        np.unique(arrays.counts, axis=0, return_inverse=True)[1].reshape(-1),
        np.zeros((jobs, kinds + 1), dtype=np.int64),
    )
    found, proved = branch(arrays, objective, choices, path, bound, best)
    return found, proved, path.best if found < best else None
