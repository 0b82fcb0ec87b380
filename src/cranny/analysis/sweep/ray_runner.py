"""Running cells on a Ray cluster, with the extra `ray`."""

import logging
import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout

from cranny.analysis.sweep.cell import CellOutcome, SweepCell, SweepInputs
from cranny.model.errors import CrannyError

# How often Ray runs a cell again whose machine or process has died.
RETRIES = 5
CONNECT_S = 10.0


def on_ray(
    work: Callable[[SweepCell, SweepInputs], CellOutcome],
    cells: Iterable[SweepCell],
    inputs: SweepInputs,
    address: str,
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
