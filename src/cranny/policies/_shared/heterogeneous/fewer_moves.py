"""Fewer moves: take back those that gain less than they cost.

Solutions are compared by the remaining seconds of all jobs, as the method adds them up, plus a cost for each job
that moves: its restart, and a margin of its remaining time, so that small gains move no job. Seconds of jobs count
by their weights where the method's do, and one late job more outweighs them all. A solution in which a job takes
longer than the method allows costs infinitely much. A method solves as if no job ran yet, and many of its
moves gain less than they cost. So moves are taken back: jobs that get workers equal to theirs keep theirs; then
one job after the other is kept in place, the job that was to get its workers gets those that it would have had,
and this is accepted if the total cost does not rise. A job whose restart costs nothing goes where the method puts
it, unless its move changes nothing.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from cranny.policies._shared.heterogeneous.instance import Instance
from cranny.policies._shared.heterogeneous.problem import ROUNDING, Floats, Ints

SAME = 1e-9  # relative; rounding errors


class MethodTerms(NamedTuple):
    """What a method makes of the remaining times of jobs."""

    total_s: Callable[[Floats], float]  # of the jobs that take part
    limit_s: Floats  # (jobs,) that a job may take at most
    limit_if_stays_s: Floats  # (jobs,) the same for a job that keeps its workers
    weight: Floats  # (jobs,) how much a second of a job counts
    deadline_s: Floats  # (jobs,) from now
    late_s: float = 0.0  # that a job costs which misses its deadline


class MoveCosts(NamedTuple):
    """What solutions cost, moves included."""

    instance: Instance
    chosen: Sequence[int]  # jobs that take part
    has: Ints  # (running, machines) workers of running jobs, which come first in the instance
    restart_s: Floats  # (running,) that a move takes
    margin_s: Floats  # (running,) that a move must gain beyond that
    divisible: Ints  # (machines,) workers that no job holds, or that running jobs could give back
    terms: MethodTerms

    def moves(self, held: Ints) -> list[int]:
        """Return the running jobs that would move, those with the longest restart first."""
        found = np.flatnonzero((held[: len(self.has)] != self.has).any(axis=1))
        order: list[int] = found[np.argsort(-self.restart_s[found], kind="stable")].tolist()
        return order

    def left_s(self, held: Ints) -> float:
        """Return the total remaining time with workers (jobs, machines); infinite if a job takes too long."""
        chosen, seconds = list(self.chosen), self.instance.seconds(held)
        limit_s = self.terms.limit_s.copy()
        stay = np.flatnonzero((held[: len(self.has)] == self.has).all(axis=1))
        limit_s[stay] = self.terms.limit_if_stays_s[stay]
        if (seconds[chosen] > limit_s[chosen] * (1 + SAME)).any():
            return inf
        ends_s = seconds.copy()
        moved = self.moves(held)
        ends_s[moved] += self.restart_s[moved]
        late = (ends_s > self.terms.deadline_s * (1 + ROUNDING))[chosen]
        return self.terms.total_s(seconds[chosen]) + self.terms.late_s * int(late.sum())

    def cost_s(self, held: Ints) -> float:
        """Return the total remaining time, plus what the moves must gain."""
        moved = self.moves(held)
        return self.left_s(held) + float(
            (self.terms.weight[moved] * (self.restart_s + self.margin_s)[moved]).sum()
        )

    def cheapest(self, solutions: Sequence[Ints]) -> Ints:
        """Return the first of the cheapest solutions; costs that differ by rounding are equal."""
        costs_s = [self.cost_s(held) for held in solutions]
        most_s = min(costs_s) * (1 + SAME)
        return next(held for held, cost_s in zip(solutions, costs_s, strict=True) if cost_s <= most_s)


def fewer_moves(costs: MoveCosts, held: Ints) -> Ints:
    """Take back moves that do not pay, of workers (jobs, machines)."""
    held = _like_before(costs, held)
    again = True
    while again:
        again = False
        for job in costs.moves(held):
            tried = _with_job_kept(costs, held, job)
            if tried is not None and _may_stay(costs, held, tried, job):
                held, again = tried, True  # no job moves that stayed before, so this ends
                break
    return held


def _may_stay(costs: MoveCosts, held: Ints, tried: Ints, job: int) -> bool:
    """Say whether the solution in which a job stays is no worse."""
    if costs.restart_s[job] > 0:
        return costs.cost_s(tried) <= costs.cost_s(held) * (1 + SAME)
    left_s = costs.left_s(held)
    return abs(costs.left_s(tried) - left_s) <= SAME * left_s


def _like_before(costs: MoveCosts, held: Ints) -> Ints:
    """Let jobs with as many workers of each type as before keep their machines, unless that costs more."""
    from cranny.policies._shared.heterogeneous.one_machine import place_workers  # compiles

    instance, has = costs.instance, costs.has
    before, after = instance.by_type(has), instance.by_type(held)
    kept = [
        job for job in range(len(has)) if (before[job] == after[job]).all() and (has[job] <= costs.divisible).all()
    ]
    others = [job for job in costs.chosen if job not in kept]
    steady = held.copy()
    steady[kept] = has[kept]
    left = costs.divisible - steady[kept].sum(axis=0)
    if others and kept:
        steady[others] = place_workers(instance.subproblem(others, left), after[others]).sum(axis=2)
    return costs.cheapest([steady, held])


def _with_job_kept(costs: MoveCosts, held: Ints, kept_job: int) -> Ints | None:
    """Keep one job in place; jobs that were to get its workers get those it would have had. None if impossible."""
    instance, has = costs.instance, costs.has
    tried = held.copy()
    tried[kept_job] = has[kept_job]
    spare = costs.divisible - tried.sum(axis=0)
    more = held.copy()  # workers than before, of jobs that move or are new
    more[: len(has)] -= has
    donors = [job for job in costs.chosen if job != kept_job and more[job].any()]
    lost: dict[int, int] = {}
    for machine in np.flatnonzero(spare < 0).tolist():
        for job in sorted(donors, key=lambda each: -more[each, machine]):
            taken = min(int(tried[job, machine]), -int(spare[machine]))
            tried[job, machine] -= taken
            spare[machine] += taken
            lost[job] = lost.get(job, 0) + taken
        if spare[machine] < 0:
            return None
    for job, count in lost.items():
        tried[job] += _instead(costs, job, tried[job], spare, count)
        spare = costs.divisible - tried.sum(axis=0)
        if tried[job].sum() < instance.least[job]:
            return None
    return tried


def _instead(costs: MoveCosts, job: int, workers: Ints, spare: Ints, count: int) -> Ints:
    """Return up to so many spare workers for a job: its old ones first, then where it is, then the fastest."""
    instance, has = costs.instance, costs.has
    rates = instance.problem.rates[job][instance.kind]
    missed = has[job] - workers if job < len(has) else np.zeros_like(spare)
    found = np.zeros_like(spare)
    for machine in np.lexsort((-rates, workers == 0, -missed)).tolist():
        if rates[machine] > 0:
            found[machine] = min(int(spare[machine]), count - int(found.sum()))
    return found
