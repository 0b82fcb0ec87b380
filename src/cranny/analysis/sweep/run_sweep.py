"""Running a sweep: finished cells are reused, the rest runs here or on Ray, and all of it becomes one table."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cranny.analysis.sweep.cell import CellOutcome, CellStore, SweepCell, table
from cranny.analysis.sweep.ray_pool import RayPool
from cranny.analysis.sweep.sweep_file import Sweep
from cranny.process_pool import WorkerPool
from cranny.run import run_many

Ended = Callable[[SweepCell, CellOutcome], None]


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult:
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
) -> SweepResult:
    """Run the cells of a sweep that are not finished yet; `again` runs all.

    Cells run in `processes` processes (as many as there are cores if not given), or on the Ray cluster at the
    address `ray`. Each is saved in the folder when it ends, and `ended` is called. Where cells run and in which
    order they end does not change a byte of the table.
    """
    store = CellStore(Path(folder))
    found = {} if again else {cell.key: kept for cell in sweep.cells if (kept := store.load(cell)) is not None}
    taken_over = len(found)
    # By key: two names for one cluster are one cell, which need not run twice.
    todo = list({cell.key: cell for cell in sweep.cells if cell.key not in found}.values())

    def keep(number: int, outcome: CellOutcome) -> None:
        cell = todo[number]
        if outcome.summary is not None:
            store.save(cell, outcome.summary)
        found[cell.key] = outcome
        if ended is not None:
            ended(cell, outcome)

    shared = (sweep.inputs,)
    with RayPool(ray, shared) if ray is not None and todo else WorkerPool(processes, shared=shared) as pool:
        scenarios = [cell.scenario for cell in todo]
        run_many(scenarios, keep=CellOutcome.of, failed=CellOutcome.failed, pool=pool, ended=keep)
    whole = table((cell, found[cell.key]) for cell in sweep.cells)
    store.write_table(whole)
    failed = whole.filter(pl.col("status") == "failed").height
    return SweepResult(whole, len(todo), taken_over, failed)
