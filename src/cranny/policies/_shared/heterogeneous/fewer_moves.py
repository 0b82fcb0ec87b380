"""Who moves: what jobs take together, and what their moves cost, as little as can be found.

Ways to share a cluster compare by the seconds that all jobs still take, and by a price for each job that moves:
its restart, and a margin of what it has left, so that small gains move nobody. A method shares as if nobody ran
yet, and much of what it changes gains less than it costs. So moves are taken back: jobs that get workers just like
theirs keep theirs; then one after the other is let stay, who wanted its workers gets those that it would have had,
and so it remains if all together does not cost more. A job that moves for nothing goes where the method wants it,
unless its move changes nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cranny.policies._shared.heterogeneous.instance import Scene
from cranny.policies._shared.heterogeneous.problem import Floats, Ints
from cranny.policies._shared.heterogeneous.worker_placement import seat

SAME = 1e-9  # relatively; what is left of rounding


class Weighing(NamedTuple):
    """What ways to share are weighed by."""

    scene: Scene
    chosen: Sequence[int]  # jobs that share
    has: Ints  # (running, machines) workers of those that run, which come first in the scene
    restart_s: Floats  # (running,) that a move takes
    margin_s: Floats  # (running,) that it must gain beyond that
    room: Ints  # (machines,) workers that can be shared

    def moves(self, held: Ints) -> list[int]:
        """Return the running jobs that would move, those first that take longest to."""
        found = np.flatnonzero((held[: len(self.has)] != self.has).any(axis=1))
        order: list[int] = found[np.argsort(-self.restart_s[found], kind="stable")].tolist()
        return order

    def left_s(self, held: Ints) -> float:
        """Return what jobs still take together with workers (jobs, machines)."""
        return float(self.scene.seconds(held)[list(self.chosen)].sum())

    def cost_s(self, held: Ints) -> float:
        """Return what jobs still take, and what their moves must gain."""
        return self.left_s(held) + float((self.restart_s + self.margin_s)[self.moves(held)].sum())

    def cheapest(self, ways: Sequence[Ints]) -> Ints:
        """Return the first of the ways to share that cost least, those that cost the same but for rounding."""
        costs_s = [self.cost_s(held) for held in ways]
        most_s = min(costs_s) * (1 + SAME)
        return next(held for held, cost_s in zip(ways, costs_s, strict=True) if cost_s <= most_s)


def fewer_moves(weighing: Weighing, held: Ints) -> Ints:
    """Take back moves that do not pay, of workers (jobs, machines)."""
    held = _like_before(weighing, held)
    again = True
    while again:
        again = False
        for job in weighing.moves(held):
            tried = _with_stayer(weighing, held, job)
            if tried is not None and _may_stay(weighing, held, tried, job):
                held, again = tried, True  # nobody moves who stayed before, so this ends
                break
    return held


def _may_stay(weighing: Weighing, held: Ints, tried: Ints, job: int) -> bool:
    """Say whether it is no worse if a job stays."""
    if weighing.restart_s[job] > 0:
        return weighing.cost_s(tried) <= weighing.cost_s(held) * (1 + SAME)
    left_s = weighing.left_s(held)
    return abs(weighing.left_s(tried) - left_s) <= SAME * left_s


def _like_before(weighing: Weighing, held: Ints) -> Ints:
    """Let jobs with as many workers of each type as before keep their machines, unless that costs more."""
    scene, has = weighing.scene, weighing.has
    before, after = scene.by_type(has), scene.by_type(held)
    kept = [
        job for job in range(len(has)) if (before[job] == after[job]).all() and (has[job] <= weighing.room).all()
    ]
    others = [job for job in weighing.chosen if job not in kept]
    steady = held.copy()
    steady[kept] = has[kept]
    left = weighing.room - steady[kept].sum(axis=0)
    if others and kept:
        steady[others] = seat(scene.sharing(others, left), after[others]).sum(axis=2)
    return weighing.cheapest([steady, held])


def _with_stayer(weighing: Weighing, held: Ints, stayer: int) -> Ints | None:
    """Let one job stay; who wanted its workers gets those that it would have had. None if that cannot be."""
    scene, has = weighing.scene, weighing.has
    tried = held.copy()
    tried[stayer] = has[stayer]
    spare = weighing.room - tried.sum(axis=0)
    more = held.copy()  # than before, of jobs that move or are new
    more[: len(has)] -= has
    yielding = [job for job in weighing.chosen if job != stayer and more[job].any()]
    lost: dict[int, int] = {}
    for machine in np.flatnonzero(spare < 0).tolist():
        for job in sorted(yielding, key=lambda each: -more[each, machine]):
            taken = min(int(tried[job, machine]), -int(spare[machine]))
            tried[job, machine] -= taken
            spare[machine] += taken
            lost[job] = lost.get(job, 0) + taken
        if spare[machine] < 0:
            return None
    for job, count in lost.items():
        tried[job] += _instead(weighing, job, tried[job], spare, count)
        spare = weighing.room - tried.sum(axis=0)
        if tried[job].sum() < scene.least[job]:
            return None
    return tried


def _instead(weighing: Weighing, job: int, workers: Ints, spare: Ints, count: int) -> Ints:
    """Return up to so many spare workers for a job: its old ones first, then where it is, then the fastest."""
    scene, has = weighing.scene, weighing.has
    rates = scene.problem.rates[job][scene.kind]
    missed = has[job] - workers if job < len(has) else np.zeros_like(spare)
    found = np.zeros_like(spare)
    for machine in np.lexsort((-rates, workers == 0, -missed)).tolist():
        if rates[machine] > 0:
            found[machine] = min(int(spare[machine]), count - int(found.sum()))
    return found
