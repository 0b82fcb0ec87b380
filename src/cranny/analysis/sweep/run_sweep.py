"""Running a sweep: what is finished is taken over, the rest runs, and all of it becomes one table."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cranny.analysis.sweep.cell import Cell, Outcome, run_cell
from cranny.analysis.sweep.cell_store import Store, table
from cranny.analysis.sweep.local_runner import in_processes
from cranny.analysis.sweep.ray_runner import on_ray
from cranny.analysis.sweep.sweep_file import Sweep

Ended = Callable[[Cell, Outcome], None]


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """A sweep that has been run."""

    table: pl.DataFrame
    run: int
    taken_over: int
    failed: int


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    *,
    processes: int | None = None,
    ray: str | None = None,
    again: bool = False,
    ended: Ended | None = None,
) -> Swept:
    """Run the cells of a sweep that are not finished yet; `again` runs all.

    Cells run in `processes` processes (as many as there are cores if not given), or on the Ray cluster at the
    address `ray`. Each is saved in the folder when it ends, and `ended` is told. Where cells run and in which
    order they end does not change a byte of the table.
    """
    store = Store(Path(folder))
    found = {} if again else {cell.key: kept for cell in sweep.cells if (kept := store.load(cell)) is not None}
    taken_over = len(found)
    # By key: two names for one cluster are one cell, which need not run twice.
    todo = list({cell.key: cell for cell in sweep.cells if cell.key not in found}.values())
    if ray is not None and todo:
        outcomes = on_ray(run_cell, todo, sweep.inputs, ray)
    else:
        outcomes = in_processes(run_cell, todo, sweep.inputs, min(len(todo), processes or os.cpu_count() or 1))
    for cell, outcome in outcomes:
        if outcome.summary is not None:
            store.save(cell, outcome.summary)
        found[cell.key] = outcome
        if ended is not None:
            ended(cell, outcome)
    whole = table((cell, found[cell.key]) for cell in sweep.cells)
    store.write_table(whole)
    failed = whole.filter(pl.col("status") == "failed").height
    return Swept(whole, len(todo), taken_over, failed)
