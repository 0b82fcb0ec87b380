"""Running a sweep: finished cells are reused, the rest runs here or on Ray, and all of it becomes one table."""

import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cranny.analysis.sweep.cell import CellOutcome, CellStore, SweepCell, SweepInputs, run_cell, table
from cranny.analysis.sweep.sweep_file import Sweep
from cranny.model.errors import CrannyError
from cranny.process_pool import DiedError, WorkerPool

DIED = CellOutcome(reason="its process died, perhaps for lack of memory")
RETRIES = 5  # how often Ray runs a cell again whose machine or process has died
CONNECT_S = 10.0
Work = Callable[[SweepCell, SweepInputs], CellOutcome]
Ended = Callable[[SweepCell, CellOutcome], None]


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult:
    """A sweep that has been run."""

    table: pl.DataFrame
    run: int
    taken_over: int
    failed: int


def in_processes(
    work: Work, cells: Sequence[SweepCell], inputs: SweepInputs, processes: int | None
) -> Iterator[tuple[SweepCell, CellOutcome]]:
    """Run cells in processes of this machine, as many as there are cores if not given; yield them as they end."""
    with WorkerPool(processes, shared=(inputs,)) as pool:
        for number, outcome in pool.ended(work, [(cell,) for cell in cells]):
            yield cells[number], DIED if isinstance(outcome, DiedError) else outcome


def on_ray(
    work: Work, cells: Sequence[SweepCell], inputs: SweepInputs, address: str
) -> Iterator[tuple[SweepCell, CellOutcome]]:
    """Run cells as tasks of the Ray cluster at an address, and yield them as they end.

    What cells need and what they find travels through Ray, so the machines need no common folder; each needs the
    same version of cranny. A cell on a machine that dies is run again on another.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise CrannyError("a sweep on Ray needs 'ray': install cranny with its extra 'ray'") from None
    _check_reachable(address)
    with redirect_stdout(sys.stderr):  # Ray reports there machines that died; our output is for results
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds where it cannot be used
            raise CrannyError(f"Ray at {address} cannot be used: {_line(error)}") from None
        try:
            task = ray.remote(max_retries=RETRIES)(work)
            held = ray.put(inputs)
            under_way = {task.remote(cell, held): cell for cell in cells}
            while under_way:
                (ended, *_), _ = ray.wait(list(under_way), num_returns=1)
                cell = under_way.pop(ended)
                try:
                    outcome = ray.get(ended)
                except ray.exceptions.RayError as error:
                    outcome = CellOutcome(reason=f"Ray: {_line(error)}")
                yield cell, outcome
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Refuse an address HOST:PORT that does not answer: Ray itself would try for minutes."""
    found = re.fullmatch(r"(?:ray://)?(.+):(\d{1,5})", address)
    if found is None:
        return
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise CrannyError(f"Ray at {address} cannot be reached: {_line(error)}") from None


def _line(error: Exception) -> str:
    """Return an error in one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


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
