"""The columns of the comparison: what they mean, which way is better, and how their values are written."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from cranny.network.networks import NETWORKS
from cranny.policies import DEFAULT_POLICY
from cranny.report.fitted_table import FittedColumn, FittedTable
from cranny.report.scales import TIME_UNITS
from cranny.report.shell import file_text
from cranny.report.styles import labels, policy_of
from cranny.sim.result import Result

Kind = Literal["count", "mean", "percent", "time", "ms", "hours", "gb", "money", "ratio"]
MARK = "*"  # plain, so that it shows on every terminal
MISSING = "–"  # noqa: RUF001 - a dash, because a minus would read as a sign
SIZES_GB = (("PB", 1e6), ("TB", 1e3), ("GB", 1.0), ("MB", 1e-3), ("kB", 1e-6))


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the comparison; `metrics.json` has them all, in the order of their columns."""

    key: str
    label: str
    kind: Kind
    group: str
    explanation: str
    unit: str = ""
    better: Literal["lower", "higher", ""] = ""
    head: str = ""  # the label with blanks where it breaks, if it breaks elsewhere than between words
    brief: bool = False  # shown on a terminal too, where there is little space
    brief_if_shared: bool = False  # the same for runs in which jobs share links
    quiet: bool = False  # hidden while it is zero for every run
    # Counted at arrivals, with its mean over time if there is one. A policy that decides in rounds has not placed
    # the arriving job yet, so what it holds at arrivals says little: then the mean over time is shown.
    at_arrivals: bool = False
    over_time: str = ""
    if_rounds: bool = False  # shown for rounds only

    def head_words(self, unit: str) -> list[str]:
        """Return the words of the column's head, one a line, the unit last."""
        return [word for word in [*(self.head or self.label).split(), unit] if word]


@dataclass(frozen=True, slots=True)
class ValueScale:
    """The unit and the decimals that all values of one column share, so that they can be compared."""

    unit: str
    size: float
    decimals: int


COLUMNS: tuple[Metric, ...] = tuple(Metric(**entry) for entry in json.loads(file_text("metrics.json")))


def column(key: str) -> Metric:
    """Return the column of this name."""
    return next(column for column in COLUMNS if column.key == key)


def number(result: Result, column: Metric) -> float | None:
    """Return a run's value, or None where it has none."""
    value = result.summary.get(column.key)
    return float(value) if value is not None and math.isfinite(value) else None


def shown_columns(results: Sequence[Result], *, brief: bool = False) -> tuple[Metric, ...]:
    """Return the columns with something to say about these runs."""
    shown = []
    rounds, shared = bool(in_rounds(results)), share_links(results)
    chosen = [column for column in COLUMNS if (column.brief_if_shared if shared else column.brief)]
    # With rounds, means over time stand for those at arrivals.
    brief_keys = {column.key for column in chosen} | {column.over_time for column in chosen if rounds}
    for column in COLUMNS:
        values = [value for result in results if (value := number(result, column)) is not None]
        if (
            not values
            or (column.quiet and not any(values))
            or (column.at_arrivals if rounds else column.if_rounds)
        ):
            continue
        # With little space, job counts are worth a column only where they differ.
        if not brief or (column.key in brief_keys and (column.kind != "count" or len(set(values)) > 1)):
            shown.append(column)
    return tuple(shown)


def in_rounds(results: Sequence[Result]) -> tuple[str, ...]:
    """Name the runs with a policy that decides periodically, and not when a job arrives."""
    return tuple(
        name
        for name, result in zip(labels(results), results, strict=True)
        if isinstance(period_s := result.settings.get("period_s"), int | float) and period_s > 0
    )


def share_links(results: Sequence[Result]) -> bool:
    """Say whether jobs that share a link slow each other in some of these runs."""
    models = (NETWORKS.get(str(result.settings.get("network"))) for result in results)
    return any(model is not None and model.shared is not None for model in models)


def scale_for(column: Metric, values: Iterable[float | None]) -> ValueScale:
    """Choose the unit and the decimals that suit the greatest of the values."""
    greatest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    if column.kind == "count":
        return ValueScale(column.unit, 1.0, 0)
    if column.kind == "percent":
        return ValueScale("%", 0.01, 1)
    if column.kind == "ms":
        return ValueScale("ms", 1e-3, 0 if greatest >= 0.1 else 1)
    unit, size = column.unit, 1.0
    if column.kind == "time":
        # Up to two days read well in hours, up to two hours in minutes.
        unit, size = next((entry for entry in TIME_UNITS if greatest >= 2 * entry[1]), ("s", 1.0))
    elif column.kind == "gb":
        unit, size = next((entry for entry in SIZES_GB if greatest >= entry[1]), ("GB", 1.0))
    elif column.kind in ("hours", "money") and greatest >= 1e6:
        unit, size = f"M {column.unit}", 1e6
    greatest /= size
    if column.kind == "ratio":
        return ValueScale(unit, size, 3 if greatest < 2 else 2)
    decimals = 0 if greatest >= 1000 else 1 if greatest >= 10 else 2 if greatest >= 1 or greatest == 0 else 3
    return ValueScale(unit, size, decimals)


def format_value(column: Metric, value: float | None, scale: ValueScale | None = None) -> str:
    """Write a value without its unit; give the column's scale so that all its values have the same unit."""
    if value is None or not math.isfinite(value):
        return MISSING
    scale = scale if scale is not None else scale_for(column, [value])
    text = f"{value / scale.size:,.{scale.decimals}f}"
    if value > 0 and float(text.replace(",", "")) == 0:
        return f"<{10.0**-scale.decimals:.{scale.decimals}f}"
    return "0" if value == 0 else text


def with_unit(column: Metric, value: float | None) -> str:
    """Write one value by itself, with its unit."""
    scale = scale_for(column, [value])
    text = format_value(column, value, scale)
    return f"{text} {scale.unit}" if scale.unit and text != MISSING else text


def skipping(results: Sequence[Result]) -> frozenset[int]:
    """Return the runs that skip more jobs than others: who does less has it easier, and is never best."""
    skipped = [result.summary.get("jobs_skipped") or 0 for result in results]
    return frozenset(run for run, count in enumerate(skipped) if count > min(skipped))


def best(results: Sequence[Result], column: Metric) -> frozenset[int]:
    """Return which runs have the best value; none where all are equal or no value is better than another."""
    barred = skipping(results)
    values = {
        run: value
        for run, result in enumerate(results)
        if run not in barred and (value := number(result, column)) is not None
    }
    if not column.better or len(values) < 2:
        return frozenset()
    scale = scale_for(column, values.values())
    top = min(values.values()) if column.better == "lower" else max(values.values())
    # Runs that read the same are the same: a difference too small to print does not count.
    winner = format_value(column, top, scale)
    winners = frozenset(run for run, value in values.items() if format_value(column, value, scale) == winner)
    return winners if len(winners) < len(values) else frozenset()


def fitted_table(results: Sequence[Result], *, brief: bool = True) -> FittedTable:
    """Return the comparison for a terminal, the best value of each column bold, green and marked with `*`."""
    bold = ["bold" if policy_of(result) == DEFAULT_POLICY else "" for result in results]
    columns = [FittedColumn("policy", labels(results), right=False, styles=bold)]
    for column in shown_columns(results, brief=brief):
        values = [number(result, column) for result in results]
        scale = scale_for(column, values)
        winners = best(results, column)
        # One word a line: columns as narrow as their numbers fit an ordinary terminal. The blank keeps the digits
        # of the others in line with the marked one.
        columns.append(
            FittedColumn(
                "\n".join(f"{word} " for word in column.head_words(scale.unit)),
                [
                    format_value(column, value, scale) + (MARK if run in winners else " ")
                    for run, value in enumerate(values)
                ],
                styles=["bold green" if run in winners else "" for run in range(len(values))],
                name=f"{column.label} {scale.unit}".strip(),
            )
        )
    apart = " among runs that skip no more jobs than others" if skipping(results) else ""
    note = f"{MARK} best of its metric{apart}" if len(results) > 1 else ""
    return FittedTable(columns, note=note)
