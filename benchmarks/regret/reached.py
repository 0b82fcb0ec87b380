"""How near to the bounds some schedule comes: that of any policy, or one that is found with hindsight.

All are judged as if they were the judged policy's: against the same best other policies, with the same seeds. What
one reaches is not excluded, so a cell of the judged policy above it could be lower.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from benchmarks.regret.bounds import comes_at_once
from benchmarks.regret.judgement import BOUNDS, BySeed, Row, best_costs, judge, score
from benchmarks.regret.measures import Measures, measured
from benchmarks.regret.paper_worlds import HasWorld
from benchmarks.regret.sharing import sharing
from benchmarks.regret.staged import FollowsStages, least_worst
from benchmarks.regret.world import Contender
from cranny.core.protocol import Policy
from cranny.run import run

STAGED = "a search with hindsight"


class Reached(NamedTuple):
    """A schedule: by what it came, its worst cell and the mean over its cells."""

    by: str
    worst: float
    mean: float


def reached(row: Row, own: Contender) -> list[Reached]:
    """Return all schedules that are known of a world: those of policies, of the judged one too, and others."""
    seeds = row.measures.get(own, {}).keys()
    found = []
    for name, by_seed in [*_replayed_schedules(row, seeds), *_other_schedules(row, own, seeds)]:
        as_own = row._replace(measures={**row.measures, own: by_seed}, failed=())
        summed = score(judge(as_own, own))
        if summed is not None and math.isfinite(summed.worst.value):
            found.append(Reached(name, summed.worst.value, summed.mean))
    return found


def _replayed_schedules(row: Row, seeds: Collection[int]) -> Iterator[tuple[str, BySeed]]:
    for contender, by_seed in row.measures.items():
        if by_seed.keys() >= {*seeds} and contender.policy not in BOUNDS:
            yield contender.label, {seed: by_seed[seed] for seed in seeds}


def _other_schedules(row: Row, own: Contender, seeds: Collection[int]) -> Iterator[tuple[str, BySeed]]:
    """Yield schedules that no policy of the table makes, for jobs that can be resized."""
    world = row.world
    if comes_at_once(world):
        yield STAGED, {seed: _searched(world, best_costs(row, own, seed), seed) for seed in seeds}


def _searched(world: HasWorld, best: Mapping[str, float], seed: int) -> Measures:
    found = least_worst(sharing(world, seed), best)
    return _replayed(world, FollowsStages([job.id for job in world.work(seed)], found.workers), seed)


def _replayed(world: HasWorld, policy: Policy, seed: int) -> Measures:
    scenario = replace(world.scenario(Contender("has-resets"), seed, None), policy=policy)
    return measured(world, run(scenario), seed, 0.0)
