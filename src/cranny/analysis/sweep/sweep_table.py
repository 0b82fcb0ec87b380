"""Means of a sweep over its seeds, and on a terminal a row a policy, a block for each trace, cluster and load."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl

from cranny.analysis.sweep.cell import AXES, ENDED, SETTINGS
from cranny.report.confidence import Estimate, estimate
from cranny.report.fitted_table import FittedColumn, FittedTable
from cranny.report.table import MISSING, Metric, ValueScale, column, format_value, scale_for

# The measures with room on a terminal; the files have all of them.
CHIEF = ("mean_used_machines", "mean_fragmentation", "machine_hours", "mean_jct_s", "mean_wait_s")
HEAD = "policy"


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """The cells that differ in nothing but the seed."""

    axes: dict[str, Any]
    done: int
    failed: int
    measures: dict[str, Estimate]


def groups(table: pl.DataFrame) -> list[SeedGroup]:
    """Gather the rows of a sweep's table over their seeds; cells that failed are only counted."""
    axes = [name for name in AXES if name != "seed"]
    measured = [name for name in table.columns if name not in {**AXES, **SETTINGS, **ENDED}]
    gathered = []
    for part in table.partition_by(axes, maintain_order=True):
        done = part.filter(pl.col("status") == "done")
        measures = {name: estimate(done[name].to_list()) for name in measured} if done.height else {}
        gathered.append(
            SeedGroup(dict(part.select(axes).row(0, named=True)), done.height, part.height - done.height, measures)
        )
    return gathered


def blocks(groups: Sequence[SeedGroup]) -> list[FittedTable]:
    """Return a table for each block, with columns of the same width in all of them."""
    columns = [column(key) for key in CHIEF]
    scales = [
        scale_for(about, [group.measures[about.key].mean for group in groups if group.measures])
        for about in columns
    ]
    heads = [
        HEAD,
        *("\n".join(about.head_words(scale.unit)) for about, scale in zip(columns, scales, strict=True)),
    ]
    rows = [_row(group, columns, scales) for group in groups]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    shown: list[FittedTable] = []

    def named_block(number: int) -> str:
        return ", ".join(
            f"{name} {named(value)}" for name, value in groups[number].axes.items() if name != "policy"
        )

    for about_block, numbers in groupby(range(len(groups)), key=named_block):
        cells = zip(*(rows[number] for number in numbers), strict=True)
        made = [
            FittedColumn(head, below, right=place > 0, least=max(width, *map(len, head.split())))
            for place, (head, below, width) in enumerate(zip(heads, cells, widths, strict=True))
        ]
        shown.append(FittedTable(made, title=about_block, note="\n", heads=not shown))
    return shown


def _row(group: SeedGroup, columns: Sequence[Metric], scales: Sequence[ValueScale]) -> list[str]:
    """Write the means of a group, each with what it may be off by."""
    failed = f", {group.failed} of {group.done + group.failed} failed" if group.failed else ""
    cells = [group.axes["policy"] + failed]
    for about, scale in zip(columns, scales, strict=True):
        known = group.measures.get(about.key)
        half = known.half if known is not None else None
        spread = "" if half is None else f" ±{format_value(about, half, scale)}"
        cells.append(MISSING if known is None else format_value(about, known.mean, scale) + spread)
    return cells


def named(value: object) -> str:
    """Write the value of an axis; a file without a load is replayed unchanged."""
    return "as logged" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
