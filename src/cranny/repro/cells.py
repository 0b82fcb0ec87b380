"""Replays side by side in processes; of each only a summary and a few hundred points are kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from cranny.model.cluster import Cluster
from cranny.process_pool import run_each
from cranny.report.sampling import arrival_span_s, slice_times_s, slices
from cranny.run import simulate
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

POINTS = 240
LARGE = 200_000  # jobs


@dataclass(frozen=True, slots=True)
class Source:
    """Where the jobs of a trace come from: a file, or a preset to generate from."""

    jobs: int  # no more than these
    file: Path | None = None
    preset: str = ""

    def trace(self, seed: int, gpus: int) -> Trace:
        """Read or generate the jobs; models are left to the seed even where a file names some."""
        if self.file is None:
            return generate_trace(self.preset, jobs=self.jobs, seed=seed, max_gpus=gpus)
        read = read_trace(self.file)
        frame = read.frame.drop("model", strict=False).head(self.jobs)
        return replace(read, frame=frame)


@dataclass(frozen=True, slots=True)
class Cell:
    """One replay."""

    trace: str  # its name among the sources
    policy: str
    network: str
    seed: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a replay: the summary, and columns of its timeline as means of short slices of time."""

    cell: Cell
    jobs: int
    summary: Mapping[str, float]
    times_s: tuple[float, ...]
    lines: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Setting:
    """What all cells of a study share."""

    cluster: Cluster
    sources: Mapping[str, Source]
    columns: tuple[str, ...]  # of the timeline
    order: str = "fifo"
    collective: str = "halving-doubling"


def run_cells(
    cells: Sequence[Cell], setting: Setting, processes: int, progress: Callable[[int], None] | None = None
) -> list[Kept]:
    """Run replays, those of large traces first; return what is kept of them in the order of the cells."""
    large = [cell for cell in cells if setting.sources[cell.trace].jobs > LARGE]
    small = [cell for cell in cells if setting.sources[cell.trace].jobs <= LARGE]

    def later(done: int) -> None:
        if progress is not None:
            progress(len(large) + done)

    # A process keeps much of the memory that a large replay took, so it makes way for a new one after each such.
    calls = [(cell, setting) for cell in large]
    kept = run_each(run_cell, calls, processes, progress, calls_per_process=1)
    kept += run_each(run_cell, [(cell, setting) for cell in small], processes, later)
    by_cell = {one.cell: one for one in kept}
    return [by_cell[cell] for cell in cells]


def run_cell(cell: Cell, setting: Setting) -> Kept:
    """Replay one trace under one policy and keep little of it."""
    trace = _trace(setting.sources[cell.trace], cell.seed, setting.cluster.gpus)
    result = simulate(
        setting.cluster,
        trace,
        cell.policy,
        cell.network,
        cell.seed,
        order=setting.order,
        collective=setting.collective,
    )
    span_s = arrival_span_s([result])
    lines = {name: slices(result.timeline, name, span_s, POINTS).mean for name in setting.columns}
    return Kept(cell, len(trace), dict(result.summary), slice_times_s(span_s, POINTS), lines)


@lru_cache(maxsize=1)
def _trace(source: Source, seed: int, gpus: int) -> Trace:
    """Return a trace; a process mostly runs several policies on one trace in a row."""
    return source.trace(seed, gpus)
