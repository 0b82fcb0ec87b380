"""The regret of policies as tables for a terminal and a page, and as a heat map."""

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measure import Budget
from benchmarks.regret.bounds import RowBound, row_bound
from benchmarks.regret.judgement import (
    WORST,
    Ratio,
    Row,
    Score,
    against,
    budgets,
    judge,
    score,
)
from benchmarks.regret.measures import METRICS
from benchmarks.regret.reached import Reached, reached
from benchmarks.regret.replays import PARTS
from benchmarks.regret.world import EXACT, JUDGED, Contender, World, headline
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.plots import canvas, save

MARK = "!"  # beside a cell above the limit
FAR = 4.0  # at which the colours of the heat map end


def worlds_tables(worlds: Sequence[World]) -> list[TextTable]:
    """Show all worlds, and the policies that are left out of some, with the reason."""
    lines = [[world.key, "held out" if world.held_out else "tuned on", world.about] for world in worlds]
    reasons: dict[str, list[str]] = {}
    for world in worlds:
        for policy, reason in {**world.left_out, **EXACT}.items():
            reasons.setdefault(reason, []).append(policy)
    left_out = [[", ".join(dict.fromkeys(policies)), reason] for reason, policies in reasons.items()]
    return [
        TextTable("Worlds", "", ("world", "mix", "what"), lines, words=3),
        TextTable("Policies left out where they make no sense", "", ("policies", "why"), left_out, words=2),
    ]


def cells_table(rows: Sequence[Row], own: Contender, *, rivals: bool = False) -> TextTable:
    """Show a row a world and part: the ratio of each metric, or with `rivals` which policy is the best other.

    What only some worlds judge shares one column.
    """
    lines = []
    for row in rows:
        cells = {cell.metric: cell for cell in judge(row, own)}
        more = [
            f"{METRICS[metric].label} {_entry(cells[metric], rivals=rivals)}"
            for metric in row.world.extra
            if metric in cells
        ]
        entries = [_entry(cells.get(metric), rivals=rivals) for metric in JUDGED]
        lines.append([row.world.key, _seeds(row, own), *entries, ", ".join(more)])
    what = "the best other policy" if rivals else f"{own.label} over the best other policy"
    note = f"less is better; {MARK}: above {WORST}; in brackets the 95 % interval over seeds"
    head = ("world", "seeds", *(METRICS[metric].label for metric in JUDGED), "also judged here")
    return TextTable(f"Regret: {what}", "" if rivals else note, head, lines, words=2)


def _seeds(row: Row, own: Contender) -> str:
    """Return how many seeds of a part the judged policy has."""
    return f"{len(row.measures.get(own, ()))} {row.part}"


def _entry(cell: Ratio | None, *, rivals: bool) -> str:
    if cell is None:
        return MISSING
    if rivals:
        return cell.best
    interval = "" if cell.low is None else f" ({cell.low:.2f}-{cell.high:.2f})"
    return f"{ratio_text(cell.value)}{interval}{MARK if cell.value > WORST else ''}"


def ratio_text(value: float) -> str:
    """Write a ratio in a few characters."""
    return "failed" if math.isinf(value) else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def scores(rows: Sequence[Row], own: Contender) -> dict[str, Score]:
    """Return the score of a policy in each part."""
    by_part = cells_by_part(rows, own)
    return {part: found for part, cells in by_part.items() if (found := score(cells)) is not None}


def cells_by_part(rows: Sequence[Row], own: Contender) -> dict[str, list[Ratio]]:
    """Return all cells of a policy."""
    return {part: [cell for row in rows if row.part == part for cell in judge(row, own)] for part in PARTS}


def scores_table(rows: Sequence[Row], contenders: Iterable[Contender]) -> TextTable:
    """Show a row a policy and part, over the cells that it has."""
    lines = [
        [
            contender.label,
            part,
            f"{ratio_text(found.worst.value)} ({found.worst.name})",
            ratio_text(found.mean),
            f"{found.ahead} of {found.cells}",
            str(found.beyond_doubt),
        ]
        for contender in contenders
        for part, found in scores(rows, contender).items()
    ]
    head = ("policy", "seeds", "worst cell", "mean", "cells ahead", "beyond doubt")
    return TextTable("All policies, each over the best of the others", "", head, lines, words=2)


def verdicts(rows: Sequence[Row], own: Contender) -> list[tuple[Budget, str]]:
    """Return the limits with the words that say whether they are held."""
    found = [budget for part, each in scores(rows, own).items() for budget in budgets(part, each)]
    return [(budget, "held" if budget.ok else "not held") for budget in found]


class _Bracket(NamedTuple):
    """What is known of a world."""

    row: Row
    bound: RowBound
    known: Sequence[Reached]

    def line(self, own: Contender) -> list[str]:
        """Return the worst cell and the mean of the judged policy, of any policy, and of the best schedules."""
        mine = next(each for each in self.known if each.by == own.label)
        worst, mean = (min(self.known, key=attrgetter(of)) for of in ("worst", "mean"))
        return [
            *(self.row.world.key, self.row.part),
            *(ratio_text(mine.worst), ratio_text(self.bound.worst), ratio_text(worst.worst), worst.by),
            *(ratio_text(mine.mean), ratio_text(self.bound.mean), ratio_text(mean.mean), mean.by),
        ]


def bounds_tables(rows: Sequence[Row], own: Contender, traces: Path | None) -> list[TextTable]:
    """Show what no policy can be below, and what some schedule reaches: in all metrics together, and in each."""
    finished = [row for row in rows if any(math.isfinite(cell.value) for cell in judge(row, own))]
    brackets = [_Bracket(row, row_bound(row, own, traces), reached(row, own)) for row in finished]
    note = "bound: no policy is below; reached: by some schedule that is known; all over the best other policies"
    head = ("world", "seeds", "worst cell", "bound", "reached", "by", "mean", "bound", "reached", "by")
    shown = (*JUDGED, "fairness")
    alone = [
        [each.row.world.key, each.row.part, *(_bound_text(each.bound, metric) for metric in shown)]
        for each in brackets
    ]
    lines = [*(each.line(own) for each in brackets), *_all_cells(brackets, own)]
    labels = [METRICS[metric].label for metric in shown]
    title = "What no policy can be below in one metric, whatever the others"
    return [
        TextTable(f"What could be had: {own.label}, and any policy", note, head, lines, words=2),
        TextTable(title, "over the best other policy", ("world", "seeds", *labels), alone, words=2),
    ]


def _bound_text(bound: RowBound, metric: str) -> str:
    return ratio_text(bound.each[metric]) if metric in bound.each else MISSING


def _all_cells(brackets: Sequence[_Bracket], own: Contender) -> list[list[str]]:
    """Return means over all cells of a part: of the judged policy, of any, and of the best schedule of each."""
    lines = []
    for part in PARTS:
        found = [each for each in brackets if each.row.part == part]
        if not found:
            continue
        weights = [len(judge(each.row, own)) for each in found]
        mine = [next(known.mean for known in each.known if known.by == own.label) for each in found]
        least = [min(known.mean for known in each.known) for each in found]
        means = [
            ratio_text(float(np.average(values, weights=weights)))
            for values in (mine, [each.bound.mean for each in found], least)
        ]
        lines.append(["all cells", part, *[""] * 4, *means, ""])
    return lines


def headlines_table(rows: Sequence[Row], own: Contender) -> TextTable:
    """Show the headline metric of each paper in its own worlds, over that of the paper's system."""
    lines = []
    for row in rows:
        rival, metric = headline(row.world)
        cell = against(row, own, Contender(rival), metric) if rival not in ("", own.policy) else None
        if cell is not None:
            doubt = "one seed" if cell.high is None else "ahead beyond doubt" if cell.ahead else "not ahead"
            entry = _entry(cell, rivals=False)
            lines.append([row.world.key, _seeds(row, own), rival, METRICS[metric].label, entry, doubt])
    head = ("world", "seeds", "system", "its headline", own.label, "at 95 %")
    return TextTable(f"{own.label} over each paper's own system", "", head, lines, words=4)


def markdown(sheet: TextTable) -> str:
    """Return a table for a page."""
    lines = [sheet.head, ["---"] * sheet.words + ["---:"] * (len(sheet.head) - sheet.words), *sheet.rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"**{sheet.title}**\n\n{table}\n" + (f"\n{sheet.note}\n" if sheet.note else "")


def ablation_table(rows: Sequence[Row], whole: Contender, switched: Mapping[str, Contender]) -> TextTable:
    """Show what each term is worth in each world: the metrics without it over those with it."""
    lines = []
    for row in rows:
        entries = [_without(row, whole, each) for each in switched.values()]
        lines.append([row.world.key, row.part, *(MISSING if each is None else f"{each:.3f}" for each in entries)])
    note = "geometric mean of all judged metrics without the term over those with it; above 1 the term helps"
    return TextTable(
        f"What each term of {whole.label} is worth", note, ("world", "seeds", *switched), lines, words=2
    )


def _without(row: Row, whole: Contender, other: Contender) -> float | None:
    """Return the metrics of one form of a policy over those of another, on average over metrics and seeds."""
    mine, theirs = row.measures.get(whole, {}), row.measures.get(other, {})
    logs = [
        (-1.0 if METRICS[metric].more_is_better else 1.0) * math.log(theirs[seed][metric] / mine[seed][metric])
        for seed in mine.keys() & theirs.keys()
        for metric in row.world.metrics
        if mine[seed].get(metric) and theirs[seed].get(metric)
    ]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def draw(rows: Sequence[Row], contenders: Sequence[Contender], path: Path) -> Path:
    """Draw a heat map of all policies in all worlds: blue is ahead of all others, red behind the best.

    A cell is the geometric mean over the metrics of its world; policies stand in the order of their means.
    """
    means = np.array([[_mean_log(judge(row, each)) for each in contenders] for row in rows])
    limit = math.log(FAR)
    clipped = np.clip(means, -limit, limit)
    order = np.argsort(np.nanmean(clipped, axis=0), kind="stable")
    figure, (axis,) = canvas(1, (3.0 + 0.34 * len(contenders), 1.6 + 0.19 * len(rows)), across=1)
    image = axis.imshow(clipped[:, order], cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    for at, log in np.ndenumerate(means[:, order]):
        if not math.isnan(log):
            dark = abs(log) > 0.6 * limit
            axis.text(at[1], at[0], _short(math.exp(log)), ha="center", va="center", size=5, color="wk"[not dark])
    axis.set_xticks(range(len(contenders)), [contenders[at].label for at in order], rotation=90, size=7)
    axis.set_yticks(range(len(rows)), [f"{row.world.key}, {row.part}" for row in rows], size=6)
    bar = figure.colorbar(image, ax=axis, ticks=[-limit, 0.0, limit], shrink=0.3, anchor=(0.0, 1.0))
    bar.ax.set_yticklabels([f"{1 / FAR:g}", "1", f"{FAR:g} or more"])
    return save(figure, path)


def _mean_log(cells: Sequence[Ratio]) -> float:
    """Return the mean logarithm of some cells; NaN if there are none."""
    return math.fsum(math.log(cell.value) for cell in cells) / len(cells) if cells else math.nan


def _short(value: float) -> str:
    """Return a ratio in three or four letters."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.0f}" if value < 999.5 else "999+"
