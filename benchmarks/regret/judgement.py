"""Regret: each judged metric of a policy over that of the best other policy of the same world and seeds.

The best other policy of a cell is the one with the lowest geometric mean over the seeds, whatever its queue order.
Ratios are taken seed by seed, since both had the same jobs; intervals are Student's t of their logarithms, 95 %.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.measure import Budget
from benchmarks.regret.measures import METRICS, Measures, may_be_best
from benchmarks.regret.replays import Found, part_of
from benchmarks.regret.world import ITERATIONS, Contender, World
from cranny.report.confidence import estimate

WORST, MEAN = 1.03, 0.95  # at most
LATEST = 1.1 + 1e-9  # mean JCT over the lowest at which iteration times still count
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
    failed: Collection[Contender] = ()  # with an error, for some seed


def rows(found: Found) -> list[Row]:
    """Sort what was found by world and part."""
    made: dict[tuple[str, str], Row] = {}
    by_policy: dict[tuple[str, str], dict[Contender, dict[int, Measures]]] = {}
    failed: dict[tuple[str, str], set[Contender]] = {}
    for cell, outcome in found.items():
        key = cell.world.key, part_of(cell)
        there, not_there = by_policy.setdefault(key, {}), failed.setdefault(key, set())
        made.setdefault(key, Row(cell.world, key[1], there, not_there))
        if outcome.summary is not None:
            there.setdefault(cell.contender, {})[cell.seed] = outcome.summary
        else:
            not_there.add(cell.contender)
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
    if not others or (not mine and own not in row.failed):
        return None
    if metric in ITERATIONS:
        others = _prompt(others, mine)
    best = min(others, key=lambda rival: _mean_log(others[rival], metric, mine))
    logs = [_log(cost(each, metric)) - _log(cost(others[best][seed], metric)) for seed, each in mine.items()]
    if own in row.failed or not all(may_be_best(each, "") for each in mine.values()):
        logs = [math.inf]  # it failed or left jobs unfinished, which nothing makes good
    return _cell(row, metric, logs, best.label)


def _prompt(others: Mapping[Contender, BySeed], seeds: Iterable[int]) -> dict[Contender, BySeed]:
    """Return the policies whose jobs complete about as early: those that wait for idle links iterate faster."""
    jct = {rival: _mean_log(values, "mean_jct_s", seeds) for rival, values in others.items()}
    latest = min(jct.values()) + math.log(LATEST)
    return {rival: others[rival] for rival, each in jct.items() if each <= latest}


def _mean_log(values: BySeed, metric: str, seeds: Iterable[int]) -> float:
    """Return the logarithm of the geometric mean over some seeds."""
    logs = [_log(cost(values[seed], metric)) for seed in seeds]
    return math.fsum(logs) / len(logs) if logs else 0.0


def _cell(row: Row, metric: str, logs: Sequence[float], best: str) -> Ratio:
    if not all(map(math.isfinite, logs)):
        return Ratio(row.world.key, row.part, metric, math.inf, None, None, best, len(logs))
    mean, half = (found := estimate(logs)).mean, found.half
    low = None if half is None else math.exp(mean - half)
    high = None if half is None else math.exp(mean + half)
    return Ratio(row.world.key, row.part, metric, math.exp(mean), low, high, best, len(logs))


def cost(measures: Measures, metric: str) -> float:
    """Return a metric so that less is better."""
    value = measures[metric]
    return 1.0 / value if METRICS[metric].more_is_better and value else value


def best_costs(row: Row, own: Contender, seed: int) -> dict[str, float]:
    """Return what the best other policy of each cell has with a seed, so that less is better."""
    best = {cell.metric: row.measures[Contender.read(cell.best)][seed] for cell in judge(row, own)}
    return {metric: cost(measures, metric) for metric, measures in best.items()}


def _log(value: float) -> float:
    """Return the logarithm; values of 0 are all equally good."""
    return math.log(max(value, 1e-12))


def against(row: Row, own: Contender, rival: Contender, metric: str) -> Ratio | None:
    """Return a metric of a policy over that of another, seed by seed; None if they have no seeds in common."""
    mine, theirs = row.measures.get(own, {}), row.measures.get(rival, {})
    logs = [
        _log(cost(mine[seed], metric)) - _log(cost(theirs[seed], metric))
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
    above: int  # the limit of the worst cell
    surely_above: int  # of these, with the whole interval


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
        sum(cell.value > WORST for cell in cells),
        sum(cell.low is not None and cell.low > WORST for cell in cells),
    )


def budgets(part: str, found: Score) -> list[Budget]:
    """Return the limits that the recommended policy must keep in a part."""
    name = part.replace("-", "_")
    return [Budget(f"worst_{name}", found.worst.value, WORST), Budget(f"mean_{name}", found.mean, MEAN)]
