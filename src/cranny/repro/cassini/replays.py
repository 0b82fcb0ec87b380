"""Figs. 11 to 14 and 16: traces replayed under every policy, with the times of all iterations recorded."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.network.networks import RECORDED_PHASES, recorded_phases
from cranny.network.phases.iteration_log import IterationStats
from cranny.repro.cassini.paper import ALIKE, DATA_PARALLEL, MODEL_PARALLEL, OPEN, TRACES, VARIANTS, CassiniTrace
from cranny.repro.cassini.setups import GPUS, JITTER, LINK_GBPS, alone_s, dynamic, poisson, testbed
from cranny.repro.experiment import Cell, Results, run_cells
from cranny.run import Progress, Result
from cranny.scenario import Scenario
from cranny.sim.record import DONE

POISSON_JOBS, QUICK_JOBS = 40, 8
LEASE_S = 60.0  # Sec. 5.1 has ten minutes; with the 200 to 1,000 iterations that it gives, jobs are done before
ALIKE_S = 0.4  # of an iteration where all jobs have the same
SCALES, CLOSE = (0.01, 100.0), 1e-5  # of computing times to search between, and how closely
SHARES = tuple(np.linspace(0.01, 1.0, 100).tolist())
PAIRS = {host: f"{host}+cassini" for host in ("themis", "pollux", "titan", "netpack")}
SHOWN = ("themis", "themis+cassini")  # of which the iterations over time are plotted


def cluster(trace: CassiniTrace) -> Cluster:
    """Return the 24 servers, or six with two GPUs each (Fig. 16(a))."""
    if trace.key == "dynamic-2":
        return Cluster.fat_tree(3, 2, 2, LINK_GBPS, oversubscription=2.0)
    return Cluster.fat_tree(GPUS // 4, 4, 1, LINK_GBPS, oversubscription=4.0) if trace.fours else testbed()


def jobs(trace: CassiniTrace, seed: int, *, quick: bool = False) -> list[Job]:
    """Draw the jobs of a trace."""
    mixed = (*DATA_PARALLEL, "dlrm")  # Sec. 5.2: DLRM is model parallel, all others data parallel
    if trace.key.startswith("poisson"):
        models = mixed if trace.key == "poisson" else MODEL_PARALLEL
        return poisson(seed, QUICK_JOBS if quick else POISSON_JOBS, models=models)
    if trace.key in ("dynamic", OPEN):
        return dynamic(seed, rigid=trace.rigid, measured=trace.measured, replicated=trace.replicated)
    if trace.key == "dynamic-mp":
        return dynamic(seed, MODEL_PARALLEL, MODEL_PARALLEL)
    if trace.key == ALIKE:
        return [alike(job) for job in dynamic(seed, arriving=("vgg16", "resnet50"))]
    return dynamic(seed, mixed, gpus=cluster(trace).gpus)


def alike(job: Job) -> Job:
    """Return a data-parallel job whose iteration takes `ALIKE_S` alone, and which keeps its workers.

    Not in the paper. Its computing takes longer or shorter, as with another batch; it does as many iterations.
    """
    iterations = (job.duration_s or 0.0) / job.profile.iteration_s

    def stretched(factor: float) -> Job:
        made = job.profile.stretched(factor)
        return Job(job.id, job.gpus, made, job.collective, job.submit_s, iterations * made.iteration_s)

    low, high = SCALES
    while high - low > CLOSE:
        middle = (low + high) / 2
        low, high = (middle, high) if alone_s(stretched(middle)) / iterations < ALIKE_S else (low, middle)
    return stretched(low)


class CassiniRun(NamedTuple):
    """What remains of a replay.

    Measures: `mean_s` and `p99_s` of iterations, the same over those of the same jobs there alone (`over_alone`),
    the number of `iterations`, and `mean_jct_s` and `p99_jct_s` of jobs.
    """

    measures: Mapping[str, float]
    quantiles_s: tuple[float, ...]  # at `SHARES`
    quantiles_over_alone: tuple[float, ...]
    marks: Mapping[str, tuple[float, float]]  # by model: gigabits above capacity in all, and iterations
    outcomes: tuple[tuple[str, float, float, float], ...]  # (model, from_s, to_s, mean_s), if it is plotted

    @classmethod
    def of(cls, result: Result) -> Self:
        """Keep what figures show."""
        found = IterationStats(result.intervals)
        models: dict[str, str] = dict(result.jobs.sort("job_id").select("job_id", "model").iter_rows())
        marks = {}
        for model in dict.fromkeys(models.values()):
            mine = IterationStats(each for each in result.intervals if models[each.job_id] == model)
            if mine.count:
                marks[model] = mine.above_gbit * mine.count, mine.count
        jct_s = result.jobs.filter(result.jobs["status"] == DONE)["jct_s"].to_numpy()
        settings = result.settings
        plain_form = not any(settings["options"].keys() & options.keys() for _, options in VARIANTS.values())
        shown = settings["policy"] in SHOWN and plain_form and not settings["seed"]
        return cls(
            {
                "mean_s": found.mean_s,
                "p99_s": found.quantiles_s([0.99])[0],
                "over_alone": found.over_alone,
                "p99_over_alone": found.quantiles_over_alone([0.99])[0],
                "iterations": found.count,
                "mean_jct_s": float(np.mean(jct_s)),
                "p99_jct_s": float(np.quantile(jct_s, 0.99)),
            },
            tuple(found.quantiles_s(SHARES)),
            tuple(found.quantiles_over_alone(SHARES)),
            marks,
            tuple(
                (models[each.job_id], each.start_s, each.end_s, each.outcome.mean_s)
                for each in (result.intervals if shown else ())
            ),
        )


class CassiniReplays(Results[CassiniTrace, CassiniRun]):
    """All replays of some traces."""

    __slots__ = ()

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


def plan(keys: Sequence[str], seeds: int) -> list[Cell[CassiniTrace]]:
    """Return all replays of some figures."""
    return [
        Cell(trace, scheme, seed)
        for trace in TRACES
        if trace.figure in keys
        for seed in range(seeds)
        for scheme in trace.schemes
    ]


def run_replays(
    keys: Sequence[str], seeds: int, processes: int, progress: Progress | None = None, *, quick: bool = False
) -> CassiniReplays:
    """Replay the traces of some figures."""
    work = partial(scenario, quick=quick)
    return CassiniReplays(run_cells(work, plan(keys, seeds), processes, progress, keep=CassiniRun.of), seeds)


def scenario(cell: Cell[CassiniTrace], *, quick: bool = False) -> Scenario:
    """Return a trace under a policy."""
    trace, scheme, seed = cell
    policy, given = VARIANTS.get(scheme, (scheme, {}))
    host = policy.partition("+")[0]
    options: dict[str, Any] = dict(given)
    if trace.drawn:
        options["ties"] = seed
    if trace.epochs:
        options["epochs"] = True
    if trace.fair:
        options["objective"] = "paper"
    if host == "themis" and not trace.rigid:
        options["lease_s"] = LEASE_S
    work = sorted(jobs(trace, seed, quick=quick), key=lambda job: job.submit_s)
    network = RECORDED_PHASES if trace.steady else recorded_phases(JITTER, seed)
    return Scenario(cluster(trace), work, policy, network, seed, options=options)
