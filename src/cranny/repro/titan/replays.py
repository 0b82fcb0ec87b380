"""Experiments 1 to 4: traces replayed under every policy; a summary and a few hundred points of each remain."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Self

from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.report.sampling import arrival_span_s, slice_times_s, slices
from cranny.repro.experiment import Cell, Results, run_cells
from cranny.repro.titan.paper import POLICIES, READINGS, TEXT, TitanTrace
from cranny.run import Progress, Result
from cranny.scenario import Scenario
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

POINTS = 240
QUICK_JOBS, LARGE = 500, 200_000  # of a trace
MORE_SEEDS = 3  # of further policies and other readings
SLOW = ("titan-literal",)  # one seed: it takes minutes


class Setup(NamedTuple):
    """A trace by its key, a network, and the reading of what the paper leaves open; none is ours."""

    trace: str
    network: str
    reading: str = ""


class TraceRun(NamedTuple):
    """What remains of a replay: the summary, and columns of its timeline as means of short slices of time."""

    jobs: int
    measures: Mapping[str, float]
    times_s: tuple[float, ...]
    lines: Mapping[str, tuple[float | None, ...]]

    @classmethod
    def of(cls, result: Result) -> Self:
        """Keep what figures show."""
        span_s = arrival_span_s([result])
        names = [figure.column for figure in TEXT.figures]
        lines = {name: slices(result.timeline, name, span_s, POINTS).mean for name in names}
        return cls(result.jobs.height, dict(result.summary), slice_times_s(span_s, POINTS), lines)


def sources(traces: Path | None, *, quick: bool) -> dict[str, TitanTrace]:
    """Return the traces with the files that they come from, if there is a folder, which must hold all of them."""
    if traces is not None:
        missing = [each.file for each in TEXT.traces if each.file and not (traces / each.file).is_file()]
        if missing:
            raise InputError(f"--traces: {traces}: no {' and no '.join(missing)} in this folder")
    found = {}
    for each in TEXT.traces:
        jobs = min(each.jobs, QUICK_JOBS) if quick else each.jobs
        file = str(traces / each.file) if traces is not None and each.file else ""
        found[each.key] = each.model_copy(update={"jobs": jobs, "file": file})
    return found


def plan(seeds: int) -> list[Cell[Setup]]:
    """Return all replays: ours, further policies on some traces, and other readings."""
    cells = [
        Cell(Setup(trace.key, network), policy, seed)
        for trace in TEXT.traces
        for seed in range(seeds)
        for network in trace.networks
        for policy in POLICIES
        if seed == 0 or policy not in trace.once
    ]
    few = range(min(seeds, MORE_SEEDS))
    cells += [
        Cell(Setup(trace.key, network), policy, seed)
        for trace in TEXT.traces
        for policy, networks in trace.more
        for network in networks
        for seed in few[: 1 if policy in SLOW else None]
    ]
    cells += [
        Cell(Setup(*where, reading.key), scheme, seed)
        for reading in TEXT.readings
        for where in reading.setups
        for scheme in reading.schemes((*TEXT.names, *reading.beside))
        for seed in few
    ]
    return cells


def run_replays(
    where: Mapping[str, TitanTrace], seeds: int, processes: int, progress: Progress | None = None
) -> Results[Setup, TraceRun]:
    """Replay everything."""
    runs = run_cells(
        partial(scenario, where),
        plan(seeds),
        processes,
        progress,
        keep=TraceRun.of,
        large=lambda cell: where[cell.setup.trace].jobs > LARGE,
    )
    return Results(runs, seeds, not any(source.file for source in where.values()))


def scenario(where: Mapping[str, TitanTrace], cell: Cell[Setup]) -> Scenario:
    """Return a trace under a policy on the paper's cluster: 64 racks of 8 machines of 8 GPUs."""
    cluster = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8, link_gbps=100.0)
    setup, policy, seed = cell
    trace = _trace(where[setup.trace], seed, cluster.gpus)
    reading = READINGS.get(setup.reading)
    collective = reading.collective if reading else "halving-doubling"
    options = reading.options.get(policy, {}) if reading else {}
    return Scenario(
        cluster, trace, policy, setup.network, seed, order="fifo", collective=collective, options=options
    )


@lru_cache(maxsize=1)
def _trace(source: TitanTrace, seed: int, gpus: int) -> Trace:
    """Read or generate jobs, once for the policies that a process mostly runs on one trace in a row.

    Models are drawn by the seed even where a file names some.
    """
    if not source.file:
        return generate_trace(source.preset, jobs=source.jobs, seed=seed, max_gpus=gpus)
    read = read_trace(source.file)
    return replace(read, frame=read.frame.drop("model", strict=False).head(source.jobs))
