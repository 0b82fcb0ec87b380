"""How near to the bounds some schedule comes: that of any policy, or one that is found with hindsight.

All are judged as if they were the judged policy's: against the same best other policies, with one seed. What one
reaches is not excluded, so a cell of the judged policy above it could be lower.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from benchmarks.regret.bounds import comes_at_once
from benchmarks.regret.judgement import Row, best_costs, cost
from benchmarks.regret.measures import Measures, may_be_best, measured
from benchmarks.regret.paper_worlds import HasWorld
from benchmarks.regret.sharing import sharing
from benchmarks.regret.shortest_first import ShortestFirst
from benchmarks.regret.staged import FollowsStages, least_worst
from benchmarks.regret.world import Contender
from cranny.core.protocol import Policy
from cranny.run import run

STAGED, SHORTEST = "a search with hindsight", "shortest first, most workers"


class Reached(NamedTuple):
    """A schedule: by what it came, its worst cell and the mean over its cells."""

    by: str
    worst: float
    mean: float


def reached(row: Row, own: Contender, seed: int) -> list[Reached]:
    """Return all schedules that are known of a world with a seed, and were not replayed to be judged."""
    best = best_costs(row, own, seed)
    return [
        Reached(name, max(ratios.values()), sum(ratios.values()) / len(ratios))
        for name, measures in _schedules(row, best, seed)
        if may_be_best(measures, "") and (ratios := _ratios(measures, best))
    ]


def _ratios(measures: Measures, best: Mapping[str, float]) -> dict[str, float]:
    """Return each metric over that of the best other policy; none if some is missing."""
    if not best.keys() <= measures.keys():
        return {}
    return {metric: cost(measures, metric) / value for metric, value in best.items() if value}


def _schedules(row: Row, best: Mapping[str, float], seed: int) -> Iterator[tuple[str, Measures]]:
    for contender, by_seed in row.measures.items():
        if seed in by_seed:
            yield contender.label, by_seed[seed]
    world = row.world
    if isinstance(world, HasWorld):
        yield SHORTEST, _replayed(world, ShortestFirst(), seed)
    if comes_at_once(world) and best.keys() == {*world.metrics}:
        found = least_worst(sharing(world, seed), best)
        names = [job.id for job in world.work(seed)]
        yield STAGED, _replayed(world, FollowsStages(names, found.workers), seed)


def _replayed(world: HasWorld, policy: Policy, seed: int) -> Measures:
    scenario = replace(world.scenario(Contender("has-resets"), seed, None), policy=policy)
    return measured(world, run(scenario), seed, 0.0)
