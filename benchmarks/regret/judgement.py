"""Regret: each judged metric of a policy over that of the best other policy of the same world and seeds.

The best other policy of a cell is the one with the lowest geometric mean over the seeds, whatever its queue order.
Ratios are taken seed by seed, since both had the same jobs; intervals are Student's t of their logarithms, 95 %.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.measure import Budget
from benchmarks.regret.measures import METRICS, Measures, may_be_best
from benchmarks.regret.replays import Found, part_of
from benchmarks.regret.world import Contender, World
from cranny.report.confidence import estimate

WORST, MEAN = 1.03, 0.95  # at most
LEVEL = 1.0 - 1e-9  # from which on two policies are equally good
BOUNDS = ("ideal",)  # CASSINI's bound: jobs wait for links of their own; shown, but it is no rival
BySeed = Mapping[int, Measures]


class Ratio(NamedTuple):
    """A cell of the table: less is better, 1 is the best other policy; an interval takes two seeds at least."""

    world: str
    part: str
    metric: str
    value: float
    low: float | None
    high: float | None
    best: str  # the other policy
    seeds: int

    @property
    def name(self) -> str:
        """Return where the cell is."""
        return f"{self.world} {METRICS[self.metric].label}"

    @property
    def ahead(self) -> bool:
        """Say whether the policy is ahead beyond doubt, which takes more seeds than one."""
        return self.high is not None and self.high < LEVEL


class Row(NamedTuple):
    """All that was measured in a world in one part, by policy and seed."""

    world: World
    part: str
    measures: Mapping[Contender, BySeed]


def rows(found: Found) -> list[Row]:
    """Sort what was found by world and part."""
    made: dict[tuple[str, str], Row] = {}
    by_policy: dict[tuple[str, str], dict[Contender, dict[int, Measures]]] = {}
    for cell, outcome in found.items():
        key = cell.world.key, part_of(cell)
        there = by_policy.setdefault(key, {})
        made.setdefault(key, Row(cell.world, key[1], there))
        if outcome.summary is not None:
            there.setdefault(cell.contender, {})[cell.seed] = outcome.summary
    return list(made.values())


def judge(row: Row, own: Contender) -> list[Ratio]:
    """Return the cells of a policy in a world."""
    mine = row.measures.get(own, {})
    return [found for metric in row.world.metrics if (found := _ratio(row, own, mine, metric)) is not None]


def _ratio(row: Row, own: Contender, mine: BySeed, metric: str) -> Ratio | None:
    """Return one cell; None if there is no policy to compare with."""
    others = {
        rival: values
        for rival, values in row.measures.items()
        if rival.policy != own.policy
        and rival.policy not in BOUNDS
        and values.keys() >= mine.keys()
        and all(metric in each and may_be_best(each, metric) for each in values.values())
    }
    if not mine or not others:
        return None
    cost = {
        rival: {seed: _cost(each, metric) for seed, each in values.items()} for rival, values in others.items()
    }
    best = min(cost, key=lambda rival: math.fsum(_log(cost[rival][seed]) for seed in mine))
    logs = [_log(_cost(each, metric)) - _log(cost[best][seed]) for seed, each in mine.items()]
    if not all(may_be_best(each, "") for each in mine.values()):
        logs = [math.inf] * len(logs)  # it left jobs unfinished, which nothing makes good
    return _cell(row, metric, logs, best.label)


def _cell(row: Row, metric: str, logs: Sequence[float], best: str) -> Ratio:
    if not all(map(math.isfinite, logs)):
        return Ratio(row.world.key, row.part, metric, math.inf, None, None, best, len(logs))
    mean, half = (found := estimate(logs)).mean, found.half
    low = None if half is None else math.exp(mean - half)
    high = None if half is None else math.exp(mean + half)
    return Ratio(row.world.key, row.part, metric, math.exp(mean), low, high, best, len(logs))


def _cost(measures: Measures, metric: str) -> float:
    """Return a metric so that less is better."""
    value = measures[metric]
    return 1.0 / value if METRICS[metric].more_is_better and value else value


def _log(value: float) -> float:
    """Return the logarithm; values of 0 are all equally good."""
    return math.log(max(value, 1e-12))


def against(row: Row, own: Contender, rival: Contender, metric: str) -> Ratio | None:
    """Return a metric of a policy over that of another, seed by seed; None if they have no seeds in common."""
    mine, theirs = row.measures.get(own, {}), row.measures.get(rival, {})
    logs = [
        _log(_cost(mine[seed], metric)) - _log(_cost(theirs[seed], metric))
        for seed in mine
        if metric in mine[seed] and metric in theirs.get(seed, ())
    ]
    return _cell(row, metric, logs, rival.label) if logs else None


class Score(NamedTuple):
    """A policy over all cells of a part."""

    worst: Ratio
    mean: float
    cells: int
    ahead: int  # lower than all others
    beyond_doubt: int  # of these, with the whole interval


def score(cells: Sequence[Ratio]) -> Score | None:
    """Sum cells up; None of none."""
    if not cells:
        return None
    return Score(
        max(cells, key=lambda cell: cell.value),
        math.fsum(cell.value for cell in cells) / len(cells),
        len(cells),
        sum(cell.value < LEVEL for cell in cells),
        sum(cell.ahead for cell in cells),
    )


def budgets(part: str, found: Score) -> list[Budget]:
    """Return the limits that the recommended policy must keep in a part."""
    name = part.replace("-", "_")
    return [Budget(f"worst_{name}", found.worst.value, WORST), Budget(f"mean_{name}", found.mean, MEAN)]
