"""Figs. 11 to 14 and 16: traces, policies and seeds, and the iterations of all jobs under each of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.process_pool import run_each
from cranny.report.confidence import Estimate, estimate
from cranny.repro.cassini.setup import (
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
from cranny.repro.cassini.watch import watch
from cranny.sim.record import DONE

POISSON_JOBS = 40
ALIKE, GAP = "alike", "gap"
LEASE_S = 60.0  # of a lease in `GAP`; Sec. 5.1 has ten minutes, and jobs that are done before
ALIKE_S = 0.4  # of an iteration where all jobs have the same
SCALES, CLOSE = (0.01, 100.0), 1e-5  # between which paces are looked for, and how closely
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
SHOWN = ("themis", "themis+cassini")  # of which the iterations over time are drawn


def _poisson(seed: int, models: Sequence[str], *, quick: bool) -> list[Job]:
    return poisson(seed, QUICK_JOBS if quick else POISSON_JOBS, models=models)


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace of the paper, and the cluster that it runs on."""

    key: str
    figure: str
    title: str
    fours: bool = False  # servers are below switches in fours, not in pairs
    # Steps of `GAP`:
    lot: bool = False  # hosts draw among places that are equal to them
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
        if self.lot and host in ("themis", "pollux"):
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
        if self.key == "poisson":
            return _poisson(seed, mixed, quick=quick)
        if self.key == "poisson-mp":
            return _poisson(seed, tuple(MODEL_PARALLEL), quick=quick)
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
WORKLOADS = (
    Workload("poisson", "11", "Poisson trace"),
    Workload("poisson-mp", "12", "Poisson trace, model parallel"),
    Workload("poisson-mp", "12", f"Poisson trace, model parallel, {FOURS}", fours=True),
    Workload("dynamic", "13", "dynamic trace"),
    Workload("dynamic", "13", f"dynamic trace, {FOURS}", fours=True),
    Workload("dynamic-mp", "14", "dynamic trace, model parallel"),
    Workload("dynamic-mp", "14", f"dynamic trace, model parallel, {FOURS}", fours=True),
    Workload("dynamic-2", "16", "servers with two GPUs"),
    Workload(ALIKE, ALIKE, "dynamic trace, iterations alike"),
    # What else might be as on the paper's testbed, one thing after the other: from how much jobs meet to how much
    # they talk.
    Workload(GAP, GAP, "places drawn", fours=True, lot=True),
    Workload(GAP, GAP, "also leases of a minute", fours=True, lot=True, leased=True),
    Workload(GAP, GAP, "also computing as on an H200", fours=True, lot=True, leased=True, measured=True),
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
    return _with_pace(job, low, iterations)


def _with_pace(job: Job, pace: float, iterations: float) -> Job:
    made = job.profile.stretched(pace)
    duration_s = iterations * made.iteration_s
    return Job(job.id, job.gpus, made, job.collective, job.submit_s, duration_s)


def _scaled(job: Job, pace: float, iterations: float) -> float:
    """Return how long an iteration of a job takes alone if it computes so many times longer."""
    return alone_s(_with_pace(job, pace, iterations)) / iterations


@dataclass(frozen=True, slots=True)
class Cell:
    """One replay."""

    workload: Workload
    scheme: str
    seed: int
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a replay."""

    iterations: float
    mean_s: float
    p99_s: float
    over_alone: float  # mean of iteration times over those of the same jobs there alone
    p99_over_alone: float
    quantiles_s: tuple[float, ...]  # at `SHARES`
    quantiles_over_alone: tuple[float, ...]
    marks: Mapping[str, tuple[float, float]]  # by model: gigabits above capacity in all, and iterations
    mean_jct_s: float
    courses: tuple[tuple[str, float, float, float], ...]  # (model, from_s, to_s, mean_s), if it is drawn


@dataclass(frozen=True, slots=True)
class Study:
    """What the replays found."""

    workloads: tuple[Workload, ...]
    kept: Mapping[Cell, Kept]
    seeds: int

    def of(self, workload: Workload, scheme: str) -> list[Kept]:
        """Return the replays of a scheme, seed by seed."""
        return [kept for cell, kept in self.kept.items() if (cell.workload, cell.scheme) == (workload, scheme)]

    def schemes(self, workload: Workload) -> list[str]:
        """Return the schemes that ran on a trace."""
        return list(dict.fromkeys(cell.scheme for cell in self.kept if cell.workload == workload))

    def value(self, workload: Workload, scheme: str, name: str) -> Estimate:
        """Return a measure over the seeds."""
        return estimate([getattr(kept, name) for kept in self.of(workload, scheme)])

    def gain(self, workload: Workload, before: str, after: str, name: str) -> Estimate:
        """Return by what factor a measure is lower, seed by seed: both saw the same jobs."""
        pairs = zip(self.of(workload, before), self.of(workload, after), strict=True)
        return estimate([getattr(one, name) / getattr(other, name) for one, other in pairs])

    def pooled(self, workload: Workload, scheme: str, name: str) -> list[float]:
        """Return the quantiles of all seeds in order, each seed as heavy as the next."""
        return sorted(each for kept in self.of(workload, scheme) for each in getattr(kept, name))

    def marks(self, workload: Workload, scheme: str) -> dict[str, float]:
        """Return gigabits above capacity in an iteration of each model, over all seeds; of all as ''."""
        sums: dict[str, tuple[float, float]] = {}
        for kept in self.of(workload, scheme):
            for model, (gbit, count) in kept.marks.items():
                for name in (model, ""):
                    before = sums.get(name, (0.0, 0.0))
                    sums[name] = before[0] + gbit, before[1] + count
        return {name: gbit / count for name, (gbit, count) in sorted(sums.items())}


def chosen(keys: Sequence[str]) -> tuple[Workload, ...]:
    """Return the workloads of some figures."""
    return tuple(work for work in WORKLOADS if work.figure in keys)


def plan(workloads: Sequence[Workload], seeds: int, *, quick: bool) -> list[Cell]:
    """Return all replays."""
    return [
        Cell(work, scheme, seed, quick) for work in workloads for seed in range(seeds) for scheme in work.schemes
    ]


def run_study(
    workloads: Sequence[Workload],
    seeds: int,
    processes: int,
    progress: Callable[[int], None] | None = None,
    *,
    quick: bool = False,
) -> Study:
    """Replay everything."""
    cells = plan(workloads, seeds, quick=quick)
    kept = run_each(run_cell, [(cell,) for cell in cells], processes, progress)
    return Study(tuple(workloads), dict(zip(cells, kept, strict=True)), seeds)


def run_cell(cell: Cell) -> Kept:
    """Replay one trace under one policy, and keep little of it."""
    policy, options = VARIANTS.get(cell.scheme, (cell.scheme, {}))
    jobs = cell.workload.jobs(cell.seed, quick=cell.quick)
    options = {**options, **cell.workload.options(policy, cell.seed)}
    found = watch(cell.workload.cluster(), jobs, policy, seed=cell.seed, options=options)
    models: dict[str, list[str]] = {}
    for job in jobs:
        models.setdefault(job.profile.name, []).append(job.id)
    marks = {}
    for model, job_ids in models.items():
        mine = found.of(job_ids)
        if mine.count:
            marks[model] = mine.above_gbit * mine.count, mine.count
    courses: tuple[tuple[str, float, float, float], ...] = ()
    if cell.seed == 0 and cell.scheme in SHOWN:
        names = {job.id: job.profile.name for job in jobs}
        courses = tuple(
            (names[each.job_id], each.start_s, each.end_s, each.course.mean_s) for each in found.stretches
        )
    done = found.record.jobs.filter(found.record.jobs["status"] == DONE)
    return Kept(
        found.count,
        found.mean_s,
        found.quantiles_s([0.99])[0],
        found.over_alone,
        found.quantiles_over_alone([0.99])[0],
        tuple(found.quantiles_s(SHARES)),
        tuple(found.quantiles_over_alone(SHARES)),
        marks,
        float(np.mean(done["jct_s"].to_numpy())),
        courses,
    )
