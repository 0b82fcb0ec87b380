"""Cells of an experiment, each one call, run side by side in processes; and values over seeds."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from cranny.process_pool import run_each
from cranny.report.confidence import Estimate, estimate

C = TypeVar("C", bound=Hashable)
R = TypeVar("R")
Progress = Callable[[int], None]


def run_cells(
    work: Callable[..., R],
    cells: Sequence[C],
    shared: tuple[Any, ...],
    processes: int,
    progress: Progress | None = None,
    *,
    large: Callable[[C], bool] = lambda _: False,
) -> dict[C, R]:
    """Call `work` with each cell and what all share; return the results by cell, in the order of the cells.

    Large cells run first, each in a new process: a process keeps much of the memory that such a cell took.
    """
    first = [cell for cell in cells if large(cell)]
    others = [cell for cell in cells if not large(cell)]

    def later(done: int) -> None:
        if progress is not None:
            progress(len(first) + done)

    found = run_each(work, [(cell, *shared) for cell in first], processes, progress, calls_per_process=1)
    found += run_each(work, [(cell, *shared) for cell in others], processes, later)
    by_cell = dict(zip([*first, *others], found, strict=True))
    return {cell: by_cell[cell] for cell in cells}


def select(results: Mapping[C, R], **fields: object) -> dict[C, R]:
    """Return the results of the cells with these values of their fields."""
    return {
        cell: result
        for cell, result in results.items()
        if all(getattr(cell, name) == value for name, value in fields.items())
    }


def paired_ratio(values: Iterable[float], base: Iterable[float]) -> Estimate:
    """Return values over those of a base, seed by seed: both had the same jobs, so much of the spread cancels."""
    return estimate([value / other for value, other in zip(values, base, strict=True)])


def scaled(value: Estimate, factor: float) -> Estimate:
    """Return an estimate in another unit."""
    return Estimate(value.mean * factor, None if value.half is None else value.half * factor)
