"""Running a sweep: finished cells are reused, the rest runs here or on Ray, and all of it becomes one table."""

import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from cranny.analysis.sweep.cell import CellOutcome, CellStore, SweepCell, table
from cranny.analysis.sweep.sweep_file import Sweep
from cranny.model.errors import CrannyError, MissingExtraError
from cranny.run import run_many

RETRIES = 5  # how often Ray runs a cell again whose machine or process has died
CONNECT_S = 10.0
T = TypeVar("T")
Ended = Callable[[SweepCell, CellOutcome], None]


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult:
    """A sweep that has been run."""

    table: pl.DataFrame
    run: int
    taken_over: int
    failed: int


@dataclass(frozen=True, slots=True)
class RayPool:
    """The Ray cluster at an address; to `run_many` it is a pool like that of this machine.

    What cells need and what they find travels through Ray, so the machines need no common folder; each needs the
    same version of cranny. A cell on a machine that dies is run again on another.
    """

    address: str
    shared: Sequence[Any]

    def ended(
        self, work: Callable[..., T], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, T | CrannyError]]:
        """Call `work` with each of the arguments; yield the number of a call and its result as they end."""
        try:
            import ray
        except ModuleNotFoundError:
            raise MissingExtraError("a sweep on Ray", "ray") from None
        self._check_reachable()
        with redirect_stdout(sys.stderr):  # Ray reports there machines that died; our output is for results
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except Exception as error:  # noqa: BLE001 - Ray raises many kinds where it cannot be used
                raise CrannyError(f"Ray at {self.address} cannot be used: {_line(error)}") from None
            try:
                task = ray.remote(max_retries=RETRIES)(work)
                held = [ray.put(value) for value in self.shared]
                under_way = {task.remote(*arguments, *held): number for number, arguments in enumerate(calls)}
                while under_way:
                    (ended, *_), _ = ray.wait(list(under_way), num_returns=1)
                    try:
                        result = ray.get(ended)
                    except ray.exceptions.RayError as error:
                        result = CrannyError(f"Ray: {_line(error)}")
                    yield under_way.pop(ended), result
            finally:
                ray.shutdown()

    def _check_reachable(self) -> None:
        """Refuse an address HOST:PORT that does not answer: Ray itself would try for minutes."""
        found = re.fullmatch(r"(?:ray://)?(.+):(\d{1,5})", self.address)
        if found is None:
            return
        try:
            socket.create_connection((found[1].strip("[]"), int(found[2])), CONNECT_S).close()
        except (OSError, OverflowError) as error:
            raise CrannyError(f"Ray at {self.address} cannot be reached: {_line(error)}") from None


def _line(error: Exception) -> str:
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

    def keep(number: int, outcome: CellOutcome) -> None:
        cell = todo[number]
        if outcome.summary is not None:
            store.save(cell, outcome.summary)
        found[cell.key] = outcome
        if ended is not None:
            ended(cell, outcome)

    shared = (sweep.inputs,)
    run_many(
        [cell.scenario for cell in todo],
        keep=CellOutcome.of,
        failed=CellOutcome.failed,
        processes=processes,
        shared=shared,
        pool=RayPool(ray, shared) if ray is not None and todo else None,
        ended=keep,
    )
    whole = table((cell, found[cell.key]) for cell in sweep.cells)
    store.write_table(whole)
    failed = whole.filter(pl.col("status") == "failed").height
    return SweepResult(whole, len(todo), taken_over, failed)
