"""Gathering the cells that differ in nothing but the seed."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from cranny.analysis.sweep.cell_store import AXES, ENDED, SETTINGS
from cranny.report.confidence import Estimate, estimate


@dataclass(frozen=True, slots=True)
class Group:
    """The cells that differ in nothing but the seed."""

    axes: dict[str, Any]
    done: int
    failed: int
    measures: dict[str, Estimate]


def groups(table: pl.DataFrame) -> list[Group]:
    """Gather the rows of a sweep's table over their seeds; cells that failed are counted and left out."""
    axes = [name for name in AXES if name != "seed"]
    measured = [name for name in table.columns if name not in {**AXES, **SETTINGS, **ENDED}]
    gathered = []
    for part in table.partition_by(axes, maintain_order=True):
        done = part.filter(pl.col("status") == "done")
        measures = {name: estimate(done[name].to_list()) for name in measured} if done.height else {}
        gathered.append(
            Group(dict(part.select(axes).row(0, named=True)), done.height, part.height - done.height, measures)
        )
    return gathered
