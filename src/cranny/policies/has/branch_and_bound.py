"""A proof: every solution that could be better than the one we have, looked at or ruled out.

At prices p, what a job holds has a reduced cost: its cost and price, less the least that the job could get away
with (`prices`). The cost of a solution is at least the bound plus the reduced costs of all its jobs. So a choice
whose reduced cost is more than the gap between bound and solution is in no better solution, and few are left:
the good bound does the work. What is left is searched depth first, job by job, each job's choices by reduced
cost.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.completion_kernel import NOWHERE, Task, cost, time_s
from cranny.policies._shared.heterogeneous.problem import Floats, Ints
from cranny.policies.has.dual_bound import Prices, spread
from cranny.policies.has.local_search import Aim, objective

MOST_CHOICES = 100_000
MOST_LOOKS = 2_000_000  # at choices, when listing them; then as many steps of the search
SAME = 1e-9  # relatively


class Choices(NamedTuple):
    """What each job could hold; a job's choices are those from `start[job]` to `start[job + 1]`."""

    held: Ints  # (choices, types)
    alone: Ints  # (choices,) 1 if all on one machine
    seconds: Floats  # (choices,)
    reduced: Floats  # (choices,) reduced cost
    start: Ints  # (jobs + 1,)


class Trail(NamedTuple):
    """Where the search is; all but `taken` and `room` by depth."""

    order: Ints  # (jobs,) the job at each depth
    choice: Ints  # (jobs,)
    machine: Ints  # (jobs,) of a choice on one machine: the one it is on, or from which on to look
    left: Ints  # (jobs + 1, types) workers that nobody has
    sums: Floats  # (jobs + 1, 4) of costs, reduced costs, ratios to equal shares, and their squares
    room: Ints  # (machines, types) that jobs on one machine leave
    taken: Ints  # (machines,) jobs that are on this machine alone
    kind: Ints  # (machines,) machines of one kind are alike
    best: Ints  # (jobs, types + 1) the best solution: workers of each type, machine


@compiled
def _add(
    task: Task, prices: Prices, choices: Choices, at: int, job: int, held: Ints, alone: int, gap: float
) -> int:
    """Add a choice if its reduced cost is small; return where the next one goes."""
    count, rate, paid = 0, 0.0, 0.0
    for kind in range(len(held)):
        if held[kind] > 0 and task.rates[job, kind] == 0.0:
            return at
        count += held[kind]
        rate += held[kind] * task.rates[job, kind]
        paid += held[kind] * prices.price[kind]
    if count == 0:
        return at
    seconds = time_s(task, job, count, rate, alone == 1)
    reduced = cost(task, job, seconds) + paid - prices.least[job]
    if reduced > gap:
        return at
    if at < choices.held.shape[0]:
        for kind in range(len(held)):
            choices.held[at, kind] = held[kind]
        choices.alone[at], choices.seconds[at], choices.reduced[at] = alone, seconds, max(reduced, 0.0)
    return at + 1


@compiled
def gather(task: Task, prices: Prices, choices: Choices, most: int, gap: float, held: Ints) -> bool:
    """List all choices with a reduced cost up to `gap`; False if they are too many."""
    jobs, kinds = task.rates.shape
    at, looks, last = 0, 0, kinds - 1
    for job in range(jobs):
        choices.start[job] = at
        for pack in range(task.packs.shape[0]):
            at = _add(task, prices, choices, at, job, task.packs[pack], 1, gap)
        low, high = most + 1, 0  # how many workers the job may have
        for count in range(1, most + 1):
            if spread(task, prices, job, count) - prices.least[job] <= gap:
                low, high = min(low, count), count
        held[:] = 0
        more = low <= high
        while more:
            others = 0
            for kind in range(last):
                others += held[kind]
            for own in range(max(0, low - others), min(task.totals[last], high - others) + 1):
                held[last] = own
                at = _add(task, prices, choices, at, job, held, 0, gap)
                looks += 1
            looks += 1
            if looks > MOST_LOOKS or at > choices.held.shape[0]:
                return False
            more = False
            for kind in range(last):
                if held[kind] < min(task.totals[kind], high):
                    held[kind] += 1
                    more = True
                    break
                held[kind] = 0
    choices.start[jobs] = at
    return True


@compiled
def _hopeless(
    task: Task, aim: Aim, least: float, ratios: float, squares: float, open_jobs: int, best: float
) -> bool:
    """Say that nothing below can beat the best: neither mean JCT nor fairness can be good enough."""
    if aim.beta == 1.0:
        return least >= best - SAME * abs(best)
    # With r jobs open, Jain's index is highest if each has the ratio squares / ratios.
    fair = (
        1.0 if squares == 0.0 else min(1.0, (ratios * ratios + open_jobs * squares) / (len(task.work) * squares))
    )
    return -(aim.beta * aim.ideal / max(least, aim.ideal) + (1 - aim.beta) * fair) >= best - SAME * abs(best)


@compiled
def _put(choices: Choices, trail: Trail, depth: int, sign: int) -> None:
    """Put the choice at this depth onto its machine, or take it off."""
    machine, chosen = trail.machine[depth], trail.choice[depth]
    if choices.alone[chosen] == 0:
        return
    trail.taken[machine] += sign
    for kind in range(trail.room.shape[1]):
        trail.room[machine, kind] -= sign * choices.held[chosen, kind]


@compiled
def _find(choices: Choices, trail: Trail, depth: int) -> int:
    """Return the next machine for the choice at this depth, of machines that are alike only one; or NOWHERE."""
    chosen = trail.choice[depth]
    for machine in range(trail.machine[depth], trail.room.shape[0]):
        fits = True
        for kind in range(trail.room.shape[1]):
            fits &= choices.held[chosen, kind] <= trail.room[machine, kind]
        if fits and trail.taken[machine] == 0:
            for other in range(machine):
                fits &= trail.taken[other] > 0 or trail.kind[other] != trail.kind[machine]
        if fits:
            return machine
    return NOWHERE


@compiled
def _enter(task: Task, choices: Choices, trail: Trail, depth: int) -> bool:
    """Take the choice at this depth if there are workers, and a machine, for it."""
    chosen, job = trail.choice[depth], trail.order[depth]
    for kind in range(trail.left.shape[1]):
        trail.left[depth + 1, kind] = trail.left[depth, kind] - choices.held[chosen, kind]
        if trail.left[depth + 1, kind] < 0:
            return False
    if choices.alone[chosen] == 1:
        trail.machine[depth] = _find(choices, trail, depth)
        if trail.machine[depth] == NOWHERE:
            return False
    ratio = choices.seconds[chosen] / task.equal[job]
    trail.sums[depth + 1, 0] = trail.sums[depth, 0] + cost(task, job, choices.seconds[chosen])
    trail.sums[depth + 1, 1] = trail.sums[depth, 1] + choices.reduced[chosen]
    trail.sums[depth + 1, 2] = trail.sums[depth, 2] + ratio
    trail.sums[depth + 1, 3] = trail.sums[depth, 3] + ratio * ratio
    return True


@compiled
def _keep(choices: Choices, trail: Trail) -> None:
    """Remember the solution where we are."""
    kinds = trail.left.shape[1]
    for depth in range(len(trail.order)):
        chosen, job = trail.choice[depth], trail.order[depth]
        for kind in range(kinds):
            trail.best[job, kind] = choices.held[chosen, kind]
        trail.best[job, kinds] = trail.machine[depth] if choices.alone[chosen] == 1 else NOWHERE


@compiled
def branch(task: Task, aim: Aim, choices: Choices, trail: Trail, bound: float, best: float) -> tuple[float, bool]:
    """Search all choices; return the best objective found, and whether nothing is better."""
    jobs, depth = len(trail.order), 0
    trail.choice[0], trail.machine[0] = choices.start[trail.order[0]], 0
    for _ in range(MOST_LOOKS):
        job, chosen = trail.order[depth], trail.choice[depth]
        # Later choices of this job have higher reduced costs still.
        over = chosen == choices.start[job + 1] or _hopeless(
            task, aim, bound + trail.sums[depth, 1] + choices.reduced[chosen], trail.sums[depth, 2],
            trail.sums[depth, 3], jobs - depth, best,
        )  # fmt: skip
        if not over:
            if not _enter(task, choices, trail, depth):
                trail.choice[depth], trail.machine[depth] = chosen + 1, 0
                continue
            sums = trail.sums[depth + 1]
            if depth + 1 == jobs:
                value = objective(task, aim, sums[0], sums[2], sums[3])
                if value < best - SAME * abs(best):
                    best = value
                    _keep(choices, trail)
            elif not _hopeless(task, aim, bound + sums[1], sums[2], sums[3], jobs - depth - 1, best):
                _put(choices, trail, depth, 1)
                depth += 1
                trail.choice[depth], trail.machine[depth] = choices.start[trail.order[depth]], 0
                continue
            trail.choice[depth], trail.machine[depth] = chosen + 1, 0
            continue
        if depth == 0:
            return best, True
        depth -= 1
        _put(choices, trail, depth, -1)
        if choices.alone[trail.choice[depth]] == 1:
            trail.machine[depth] += 1  # another machine may leave more room for others
        else:
            trail.choice[depth], trail.machine[depth] = trail.choice[depth] + 1, 0
    return best, False


def prove(
    task: Task, aim: Aim, prices: Prices, most: int, bound: float, best: float, gap: float
) -> tuple[float, bool, Ints | None]:
    """Return the best objective, whether it is proved, and the solution if it is a new one.

    The solution is workers of each type and machine (or NOWHERE) of each job, (jobs, types + 1).
    """
    jobs, kinds = task.rates.shape
    if (task.apart < task.between).any():  # not all ways to fit into a machine are listed
        return best, False, None
    choices = Choices(
        np.empty((MOST_CHOICES, kinds), dtype=np.int64),
        np.empty(MOST_CHOICES, dtype=np.int64),
        np.empty(MOST_CHOICES),
        np.empty(MOST_CHOICES),
        np.zeros(jobs + 1, dtype=np.int64),
    )
    if not gather(task, prices, choices, most, gap, np.zeros(kinds, dtype=np.int64)):
        return best, False, None
    sorted_choices = _sorted(choices)
    trail = _trail(task, np.argsort(np.diff(choices.start), kind="stable"))
    found, proved = branch(task, aim, sorted_choices, trail, bound, best)
    return found, proved, trail.best if found < best else None


def _sorted(choices: Choices) -> Choices:
    """Return the choices with each job's in the order of reduced costs."""
    spans = zip(choices.start[:-1].tolist(), choices.start[1:].tolist(), strict=True)
    order = np.concatenate([first + np.argsort(choices.reduced[first:last]) for first, last in spans])
    return Choices(
        choices.held[order], choices.alone[order], choices.seconds[order], choices.reduced[order], choices.start
    )


def _trail(task: Task, order: Ints) -> Trail:
    """Return where a search begins."""
    jobs, kinds = task.rates.shape
    left = np.zeros((jobs + 1, kinds), dtype=np.int64)
    left[0] = task.totals
    return Trail(
        order,
        np.zeros(jobs, dtype=np.int64),
        np.zeros(jobs, dtype=np.int64),
        left,
        np.zeros((jobs + 1, 4)),
        task.counts.copy(),
        np.zeros(len(task.counts), dtype=np.int64),
        np.unique(task.counts, axis=0, return_inverse=True)[1].reshape(-1),
        np.zeros((jobs, kinds + 1), dtype=np.int64),
    )
