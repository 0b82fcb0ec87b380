"""Running a sweep: finished cells are reused, the rest runs, and all of it becomes one table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cranny.analysis.sweep.cell import CellOutcome, SweepCell, SweepInputs, run_cell
from cranny.analysis.sweep.cell_store import CellStore, table
from cranny.analysis.sweep.ray_runner import on_ray
from cranny.analysis.sweep.sweep_file import Sweep
from cranny.process_pool import DiedError, WorkerPool

DIED = CellOutcome(reason="its process died, perhaps for lack of memory")
Ended = Callable[[SweepCell, CellOutcome], None]


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult:
    """A sweep that has been run."""

    table: pl.DataFrame
    run: int
    taken_over: int
    failed: int


def in_processes(
    work: Callable[[SweepCell, SweepInputs], CellOutcome],
    cells: Sequence[SweepCell],
    inputs: SweepInputs,
    processes: int | None,
) -> Iterator[tuple[SweepCell, CellOutcome]]:
    """Run cells in processes of this machine, as many as there are cores if not given; yield them as they end."""
    with WorkerPool(processes, shared=(inputs,)) as pool:
        for number, outcome in pool.ended(work, [(cell,) for cell in cells]):
            yield cells[number], DIED if isinstance(outcome, DiedError) else outcome


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
    if ray is not None and todo:
        outcomes = on_ray(run_cell, todo, sweep.inputs, ray)
    else:
        outcomes = in_processes(run_cell, todo, sweep.inputs, processes)
    for cell, outcome in outcomes:
        if outcome.summary is not None:
            store.save(cell, outcome.summary)
        found[cell.key] = outcome
        if ended is not None:
            ended(cell, outcome)
    whole = table((cell, found[cell.key]) for cell in sweep.cells)
    store.write_table(whole)
    failed = whole.filter(pl.col("status") == "failed").height
    return SweepResult(whole, len(todo), taken_over, failed)
