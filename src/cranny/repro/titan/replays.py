"""Experiments 1 to 4: traces replayed under every policy; a summary and a few hundred points of each remain."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.report.confidence import Estimate, estimate
from cranny.report.sampling import arrival_span_s, slice_times_s, slices
from cranny.repro.experiment import Progress, paired_ratio, run_cells, select
from cranny.repro.titan.paper import FIGURES, POLICIES, QUICK_JOBS, TRACES
from cranny.run import simulate
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

POINTS = 240
LARGE = 200_000  # jobs
COLUMNS = tuple(figure.column for figure in FIGURES)  # of the timeline


@dataclass(frozen=True, slots=True)
class JobSource:
    """Where the jobs of a trace come from: a file, or a preset to generate from."""

    jobs: int  # no more than these
    file: Path | None = None
    preset: str = ""

    def trace(self, seed: int, gpus: int) -> Trace:
        """Read or generate the jobs; models are drawn by the seed even where a file names some."""
        if self.file is None:
            return generate_trace(self.preset, jobs=self.jobs, seed=seed, max_gpus=gpus)
        read = read_trace(self.file)
        return replace(read, frame=read.frame.drop("model", strict=False).head(self.jobs))


@dataclass(frozen=True, slots=True)
class TraceCell:
    """One replay: a trace by its key, a policy, a network and a seed."""

    trace: str
    policy: str
    network: str
    seed: int


@dataclass(frozen=True, slots=True)
class TraceRun:
    """What remains of a replay: the summary, and columns of its timeline as means of short slices of time."""

    jobs: int
    summary: Mapping[str, float]
    times_s: tuple[float, ...]
    lines: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class TitanReplays:
    """The replays of experiments 1 to 4."""

    runs: Mapping[TraceCell, TraceRun]
    seeds: int
    generated: bool  # whether no real log was given

    def estimates(self, trace: str, network: str, metric: str) -> dict[str, Estimate]:
        """Return a metric of every policy, over the seeds."""
        found = self._values(trace, network, metric)
        return {policy: estimate(list(by_seed.values())) for policy, by_seed in found.items()}

    def ratios(self, trace: str, network: str, metric: str) -> dict[str, Estimate]:
        """Return a metric over Titan's, seed by seed."""
        found = self._values(trace, network, metric)
        titan = found.get("titan", {})
        if not titan or not all(titan.values()):
            return {}
        return {
            policy: paired_ratio(by_seed.values(), [titan[seed] for seed in by_seed])
            for policy, by_seed in found.items()
        }

    def _values(self, trace: str, network: str, metric: str) -> dict[str, dict[int, float]]:
        """Return a metric by policy and seed; empty if that was not run."""
        values: dict[str, dict[int, float]] = {}
        for cell, run in select(self.runs, trace=trace, network=network).items():
            values.setdefault(cell.policy, {})[cell.seed] = run.summary[metric]
        return values

    def jobs(self, trace: str) -> int:
        """Return how many jobs a trace had."""
        return next(run.jobs for cell, run in self.runs.items() if cell.trace == trace)


def sources(traces: Path | None, *, quick: bool) -> dict[str, JobSource]:
    """Return where the jobs of each trace come from; a folder must hold all files."""
    if traces is not None:
        missing = [each.file for each in TRACES if each.file and not (traces / each.file).is_file()]
        if missing:
            raise InputError(f"--traces: {traces}: no {' and no '.join(missing)} in this folder")
    found = {}
    for each in TRACES:
        jobs = min(each.jobs, QUICK_JOBS) if quick else each.jobs
        file = traces / each.file if traces is not None and each.file else None
        found[each.key] = JobSource(jobs, file, each.preset)
    return found


def plan(seeds: int) -> list[TraceCell]:
    """Return all replays."""
    return [
        TraceCell(trace.key, policy, network, seed)
        for trace in TRACES
        for seed in range(seeds)
        for network in trace.networks
        for policy in POLICIES
        if seed == 0 or policy not in trace.once
    ]


def run_replays(
    where: Mapping[str, JobSource], seeds: int, processes: int, progress: Progress | None = None
) -> TitanReplays:
    """Replay everything on the paper's cluster: 64 racks of 8 machines of 8 GPUs, links of 100 Gbps."""
    cluster = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8, link_gbps=100.0)
    runs = run_cells(
        replay,
        plan(seeds),
        (cluster, where),
        processes,
        progress,
        large=lambda cell: where[cell.trace].jobs > LARGE,
    )
    return TitanReplays(runs, seeds, all(source.file is None for source in where.values()))


def replay(cell: TraceCell, cluster: Cluster, where: Mapping[str, JobSource]) -> TraceRun:
    """Replay one trace under one policy."""
    trace = _trace(where[cell.trace], cell.seed, cluster.gpus)
    result = simulate(
        cluster, trace, cell.policy, cell.network, cell.seed, order="fifo", collective="halving-doubling"
    )
    span_s = arrival_span_s([result])
    lines = {name: slices(result.timeline, name, span_s, POINTS).mean for name in COLUMNS}
    return TraceRun(len(trace), dict(result.summary), slice_times_s(span_s, POINTS), lines)


@lru_cache(maxsize=1)
def _trace(source: JobSource, seed: int, gpus: int) -> Trace:
    """Return a trace; a process mostly runs several policies on one trace in a row."""
    return source.trace(seed, gpus)
