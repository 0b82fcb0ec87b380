"""Cells of an experiment, run side by side in processes, and what they come to over the seeds."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from cranny.process_pool import WorkerPool
from cranny.report.confidence import Estimate, estimate
from cranny.run import Progress, Result, run_many

C = TypeVar("C", bound=Hashable)
S = TypeVar("S", bound=Hashable)


class Cell(NamedTuple, Generic[S]):
    """One replay: a set-up, what is compared on it (a policy, or a form of one), and a seed."""

    setup: S
    scheme: str
    seed: int


class CellRun(Protocol):
    """What remains of a cell."""

    @property
    def measures(self) -> Mapping[str, float]:
        """Numbers by their names."""


R = TypeVar("R", bound=CellRun)


@dataclass(frozen=True, slots=True)
class Results(Generic[S, R]):
    """What remains of all cells, and its values over the seeds."""

    runs: Mapping[Cell[S], R]
    seeds: int
    generated: bool = True  # whether no real log was given

    @property
    def setups(self) -> list[S]:
        """All set-ups, in their order."""
        return list(dict.fromkeys(cell.setup for cell in self.runs))

    def of(self, setup: S, scheme: str) -> list[R]:
        """Return what remains of a scheme, seed by seed; nothing if that was not run."""
        cells = (Cell(setup, scheme, seed) for seed in range(self.seeds))
        return [self.runs[cell] for cell in cells if cell in self.runs]

    def values(self, setup: S, scheme: str, measure: str) -> list[float]:
        """Return a measure, seed by seed."""
        return [run.measures[measure] for run in self.of(setup, scheme)]

    def value(self, setup: S, scheme: str, measure: str) -> Estimate:
        """Return a measure over the seeds."""
        return estimate(self.values(setup, scheme, measure))

    def ratio(self, setup: S, scheme: str, base: str, measure: str) -> Estimate:
        """Return a measure over that of another scheme, for the seeds that both have.

        Seed by seed: both had the same jobs, so much of the spread cancels.
        """
        found = self.paired(setup, scheme, setup, base, measure)
        return estimate([value / other for value, other in found])

    def paired(self, setup: S, scheme: str, other: S, base: str, measure: str) -> list[tuple[float, float]]:
        """Return a measure of two schemes, perhaps of two set-ups, for each seed that both have."""
        both = ((Cell(setup, scheme, seed), Cell(other, base, seed)) for seed in range(self.seeds))
        return [
            (self.runs[mine].measures[measure], self.runs[theirs].measures[measure])
            for mine, theirs in both
            if mine in self.runs and theirs in self.runs
        ]


def run_cells(
    work: Callable[[C], Any],
    cells: Sequence[C],
    processes: int,
    progress: Progress | None = None,
    *,
    keep: Callable[[Result], Any] | None = None,
    large: Callable[[C], bool] = lambda _: False,
) -> dict[C, Any]:
    """Run the scenario that `work` makes of each cell, and return what `keep` makes of the results, by cell.

    Where there is nothing to simulate, `work` returns what is found itself. Large cells run first, each in a new
    process: a process keeps much of the memory that such a cell took.
    """
    found: dict[C, Any] = {}

    def tick(done: int, more: int) -> None:
        if progress is not None:
            progress(done + more)

    for first in (True, False):
        mine = [cell for cell in cells if large(cell) == first]
        with WorkerPool(min(len(mine), processes) or 1, calls_per_process=1 if first else None) as pool:
            calls = [partial(work, cell) for cell in mine]
            results = run_many(calls, keep=keep, pool=pool, progress=partial(tick, len(found)))
        found |= zip(mine, results, strict=True)
    return {cell: found[cell] for cell in cells}


def scaled(value: Estimate, factor: float) -> Estimate:
    """Return an estimate in another unit."""
    return Estimate(value.mean * factor, None if value.half is None else value.half * factor)
