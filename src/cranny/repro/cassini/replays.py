"""Figs. 11 to 14 and 16: traces replayed under every policy, with the times of all iterations recorded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.network.phases.iteration_log import IterationInterval, IterationLog, IterationStats
from cranny.network.phases.phases_network import Phases
from cranny.report.confidence import Estimate, estimate
from cranny.repro.cassini.setups import (
    DATA_PARALLEL,
    GPUS,
    LINK_GBPS,
    MODEL_PARALLEL,
    alone_s,
    dynamic,
    poisson,
    testbed,
    two_gpus,
)
from cranny.repro.experiment import Progress, paired_ratio, run_cells, select
from cranny.scenario import resolve_policy
from cranny.sim.record import DONE, ReplayRecord
from cranny.sim.replay import Replay, no_garbage_collection

POISSON_JOBS = 40
ALIKE, GAP = "alike", "gap"
LEASE_S = 60.0  # of a lease in `GAP`; Sec. 5.1 has ten minutes, and jobs that are done before
ALIKE_S = 0.4  # of an iteration where all jobs have the same
SCALES, CLOSE = (0.01, 100.0), 1e-5  # of computing times to search between, and how closely
QUICK_JOBS = 8
SHARES = tuple(np.linspace(0.01, 1.0, 100).tolist())
PAIRS = {host: f"{host}+cassini" for host in ("themis", "pollux", "titan", "netpack")}
SCHEMES = ("themis", "themis+cassini", "pollux", "pollux+cassini", "random", "ideal")
BEYOND = ("titan", "titan+cassini", "netpack", "netpack+cassini")
# Forms of a policy for single questions: its name, and its options.
DROP, SHIFTS_ONLY = "themis+cassini, loops dropped", "themis+cassini, one candidate"
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    DROP: ("themis+cassini", {"loops": "drop"}),
    SHIFTS_ONLY: ("themis+cassini", {"candidates": 1}),
}
SHOWN = ("themis", "themis+cassini")  # of which the iterations over time are plotted


@dataclass(frozen=True, slots=True)
class CassiniTrace:
    """A trace of the paper, and the cluster that it is replayed on."""

    key: str
    figure: str
    title: str
    fours: bool = False  # servers are below switches in fours, not in pairs
    # Steps of `GAP`:
    drawn: bool = False  # hosts draw among placements that are equal to them
    leased: bool = False  # leases of a minute, and jobs that may have half of their workers
    measured: bool = False  # computing times as on an H200

    @property
    def schemes(self) -> tuple[str, ...]:
        """The policies that run on it."""
        return SCHEMES if self.figure == GAP else (*SCHEMES, *BEYOND, *VARIANTS)

    def options(self, policy: str, seed: int) -> dict[str, Any]:
        """Return the options of a policy there."""
        host = policy.partition("+")[0]
        made: dict[str, Any] = {}
        if self.drawn and host in ("themis", "pollux"):
            made["ties"] = seed
        if self.leased and host == "themis":
            made["lease_s"] = LEASE_S
        return made

    def cluster(self) -> Cluster:
        """Return the 24 servers, or six with two GPUs each."""
        if self.key == "dynamic-2":
            return two_gpus()
        return Cluster.fat_tree(GPUS // 4, 4, 1, LINK_GBPS, oversubscription=4.0) if self.fours else testbed()

    def jobs(self, seed: int, *, quick: bool) -> list[Job]:
        """Draw the jobs."""
        mixed = (*DATA_PARALLEL, "dlrm")  # Sec. 5.2: DLRM is model parallel, all others data parallel
        if self.key.startswith("poisson"):
            models = mixed if self.key == "poisson" else tuple(MODEL_PARALLEL)
            return poisson(seed, QUICK_JOBS if quick else POISSON_JOBS, models=models)
        if self.key in ("dynamic", GAP):
            return dynamic(seed, elastic=self.leased, measured=self.measured)
        if self.key == "dynamic-mp":
            return dynamic(seed, tuple(MODEL_PARALLEL), tuple(MODEL_PARALLEL))
        if self.key == ALIKE:
            return [alike(job) for job in dynamic(seed, arriving=("vgg16", "resnet50"))]
        return dynamic(seed, mixed, gpus=self.cluster().gpus)


# The paper's 13 switches and 48 links fit six switches of four servers with two uplinks each, six switches above
# them and one on top. A tree has one uplink for a switch: we give one to each pair of servers, and try a single
# one for all four as well.
FOURS = "switches of four"
TRACES = (
    CassiniTrace("poisson", "11", "Poisson trace"),
    CassiniTrace("poisson-mp", "12", "Poisson trace, model parallel"),
    CassiniTrace("poisson-mp", "12", f"Poisson trace, model parallel, {FOURS}", fours=True),
    CassiniTrace("dynamic", "13", "dynamic trace"),
    CassiniTrace("dynamic", "13", f"dynamic trace, {FOURS}", fours=True),
    CassiniTrace("dynamic-mp", "14", "dynamic trace, model parallel"),
    CassiniTrace("dynamic-mp", "14", f"dynamic trace, model parallel, {FOURS}", fours=True),
    CassiniTrace("dynamic-2", "16", "servers with two GPUs"),
    CassiniTrace(ALIKE, ALIKE, "dynamic trace, iterations alike"),
    # What else might be as on the paper's testbed, one thing after the other: from how often jobs share links to
    # how much they communicate.
    CassiniTrace(GAP, GAP, "placements drawn", fours=True, drawn=True),
    CassiniTrace(GAP, GAP, "also leases of a minute", fours=True, drawn=True, leased=True),
    CassiniTrace(GAP, GAP, "also computing as on an H200", fours=True, drawn=True, leased=True, measured=True),
)


def alike(job: Job) -> Job:
    """Return a data-parallel job whose iteration takes `ALIKE_S` alone, and which keeps its workers.

    Not in the paper. Its computing takes longer or shorter, as with another batch; it does as many iterations.
    """
    iterations = (job.duration_s or 0.0) / job.profile.iteration_s
    low, high = SCALES
    while high - low > CLOSE:
        middle = (low + high) / 2
        low, high = (middle, high) if _scaled(job, middle, iterations) < ALIKE_S else (low, middle)
    return _stretched(job, low, iterations)


def _stretched(job: Job, factor: float, iterations: float) -> Job:
    made = job.profile.stretched(factor)
    duration_s = iterations * made.iteration_s
    return Job(job.id, job.gpus, made, job.collective, job.submit_s, duration_s)


def _scaled(job: Job, factor: float, iterations: float) -> float:
    """Return how long an iteration of a job takes alone if it computes so many times longer."""
    return alone_s(_stretched(job, factor, iterations)) / iterations


@dataclass(frozen=True, slots=True)
class CassiniCell:
    """One replay: a trace, a policy or a form of it, and a seed."""

    trace: CassiniTrace
    scheme: str
    seed: int
    quick: bool = False


@dataclass(frozen=True, slots=True)
class CassiniRun:
    """What remains of a replay."""

    iterations: float
    mean_s: float
    p99_s: float
    over_alone: float  # mean of iteration times over those of the same jobs there alone
    p99_over_alone: float
    quantiles_s: tuple[float, ...]  # at `SHARES`
    quantiles_over_alone: tuple[float, ...]
    marks: Mapping[str, tuple[float, float]]  # by model: gigabits above capacity in all, and iterations
    mean_jct_s: float
    outcomes: tuple[tuple[str, float, float, float], ...]  # (model, from_s, to_s, mean_s), if it is plotted


@dataclass(frozen=True, slots=True)
class CassiniReplays:
    """All replays of some traces."""

    traces: tuple[CassiniTrace, ...]
    runs: Mapping[CassiniCell, CassiniRun]
    seeds: int

    def of(self, trace: CassiniTrace, scheme: str) -> list[CassiniRun]:
        """Return the replays of a scheme, seed by seed."""
        return list(select(self.runs, trace=trace, scheme=scheme).values())

    def schemes(self, trace: CassiniTrace) -> list[str]:
        """Return the schemes that ran on a trace."""
        return list(dict.fromkeys(cell.scheme for cell in select(self.runs, trace=trace)))

    def values(self, trace: CassiniTrace, scheme: str, name: str) -> list[float]:
        """Return a measure, seed by seed."""
        return [getattr(run, name) for run in self.of(trace, scheme)]

    def value(self, trace: CassiniTrace, scheme: str, name: str) -> Estimate:
        """Return a measure over the seeds."""
        return estimate(self.values(trace, scheme, name))

    def gain(self, trace: CassiniTrace, before: str, after: str, name: str) -> Estimate:
        """Return by what factor a measure is lower, seed by seed."""
        return paired_ratio(self.values(trace, before, name), self.values(trace, after, name))

    def pooled(self, trace: CassiniTrace, scheme: str, name: str) -> list[float]:
        """Return the quantiles of all seeds in order, each seed as heavy as the next."""
        return sorted(each for run in self.of(trace, scheme) for each in getattr(run, name))

    def marks(self, trace: CassiniTrace, scheme: str) -> dict[str, float]:
        """Return gigabits above capacity in an iteration of each model, over all seeds; of all as ''."""
        sums: dict[str, tuple[float, float]] = {}
        for run in self.of(trace, scheme):
            for model, (gbit, count) in run.marks.items():
                for name in (model, ""):
                    before = sums.get(name, (0.0, 0.0))
                    sums[name] = before[0] + gbit, before[1] + count
        return {name: gbit / count for name, (gbit, count) in sorted(sums.items())}


def chosen(keys: Sequence[str]) -> tuple[CassiniTrace, ...]:
    """Return the traces of some figures."""
    return tuple(trace for trace in TRACES if trace.figure in keys)


def plan(traces: Sequence[CassiniTrace], seeds: int, *, quick: bool) -> list[CassiniCell]:
    """Return all replays."""
    return [
        CassiniCell(trace, scheme, seed, quick)
        for trace in traces
        for seed in range(seeds)
        for scheme in trace.schemes
    ]


def run_replays(
    traces: Sequence[CassiniTrace],
    seeds: int,
    processes: int,
    progress: Progress | None = None,
    *,
    quick: bool = False,
) -> CassiniReplays:
    """Replay everything."""
    runs = run_cells(replay, plan(traces, seeds, quick=quick), (), processes, progress)
    return CassiniReplays(tuple(traces), runs, seeds)


def replay(cell: CassiniCell) -> CassiniRun:
    """Replay one trace under one policy."""
    policy, options = VARIANTS.get(cell.scheme, (cell.scheme, {}))
    jobs = cell.trace.jobs(cell.seed, quick=cell.quick)
    options = {**options, **cell.trace.options(policy, cell.seed)}
    found = recorded(cell.trace.cluster(), jobs, policy, seed=cell.seed, options=options)
    models: dict[str, list[str]] = {}
    for job in jobs:
        models.setdefault(job.profile.name, []).append(job.id)
    marks = {}
    for model, job_ids in models.items():
        mine = found.of(job_ids)
        if mine.count:
            marks[model] = mine.above_gbit * mine.count, mine.count
    outcomes: tuple[tuple[str, float, float, float], ...] = ()
    if cell.seed == 0 and cell.scheme in SHOWN:
        names = {job.id: job.profile.name for job in jobs}
        outcomes = tuple(
            (names[each.job_id], each.start_s, each.end_s, each.outcome.mean_s) for each in found.intervals
        )
    done = found.record.jobs.filter(found.record.jobs["status"] == DONE)
    return CassiniRun(
        found.count,
        found.mean_s,
        found.quantiles_s([0.99])[0],
        found.over_alone,
        found.quantiles_over_alone([0.99])[0],
        tuple(found.quantiles_s(SHARES)),
        tuple(found.quantiles_over_alone(SHARES)),
        marks,
        float(np.mean(done["jct_s"].to_numpy())),
        outcomes,
    )


class RecordedReplay(IterationStats):
    """The iterations of a replay, with the intervals of time that they are made of."""

    def __init__(self, intervals: Sequence[IterationInterval], record: ReplayRecord) -> None:
        super().__init__(intervals)
        self.intervals, self.record = intervals, record

    def of(self, job_ids: Iterable[str]) -> IterationStats:
        """Return the iterations of some jobs only."""
        wanted = set(job_ids)
        return IterationStats(each for each in self.intervals if each.job_id in wanted)


def recorded(
    cluster: Cluster,
    jobs: Iterable[Job],
    policy: str,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    jitter: float = 0.0,
    period_s: float = 0.0,
) -> RecordedReplay:
    """Replay jobs under a policy, with links shared in phases, and return their iterations."""
    _, chosen, _ = resolve_policy(policy, None, options, seed, isolated)
    iteration_log = IterationLog()
    rng = np.random.default_rng([seed, 2]) if jitter else None
    replay = Replay(
        cluster,
        chosen,
        network=Phases(cluster, jitter=jitter, rng=rng, iteration_log=iteration_log),
        period_s=period_s,
    )
    with no_garbage_collection():
        record = replay.run(sorted(jobs, key=lambda job: job.submit_s))
    return RecordedReplay(iteration_log.intervals, record)
