"""Experiments 1 to 4: which traces, policies, networks and seeds, and the replays of them all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.report.confidence import Estimate, estimate
from cranny.repro.cells import Cell, Kept, Setting, Source, run_cells
from cranny.repro.titan.values import FIGURES, PAPER_JOBS

# As the paper has them, and as their own papers or textbooks do.
PAPER_POLICIES = ("titan", "consolidate-idle", "fragments-first", "tiresias")
REAL_POLICIES = ("best-fit", "elasticflow", "hived", "best-fit-mapped")
POLICIES = (*PAPER_POLICIES, *REAL_POLICIES)
NETWORKS = ("instant", "isolated")
QUICK_JOBS = 500


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace of the study, and what the paper calls it."""

    key: str
    label: str
    preset: str
    jobs: int
    file: str = ""  # in the folder of traces; none: always generated
    paper: str = ""  # which trace of the paper it stands for
    networks: tuple[str, ...] = NETWORKS
    once: tuple[str, ...] = ()  # policies that are run with one seed only, for they take long


# Where communication takes time, jobs of 512 and 1,024 GPUs run for many times as long and the queue of a whole
# Acme trace never empties: every policy would be measured on a full cluster. So a part of it stands for that.
WORKLOADS = (
    Workload("itp", "Microsoft ITP", "itp", 69_351, "elasticflow_itp.parquet", paper="itp"),
    Workload(
        "acme",
        "Shanghai Acme, whole",
        "acme",
        PAPER_JOBS["acme"],
        paper="acme",
        networks=("instant",),
        once=("elasticflow", "hived", "best-fit-mapped"),
    ),
    Workload("acme-part", "Shanghai Acme, a part", "acme", 20_000, paper="acme"),
    Workload("philly", "Microsoft Philly", "philly", 111_430, "philly.parquet"),
)


@dataclass(frozen=True, slots=True)
class Study:
    """What the replays of experiments 1 to 4 found."""

    workloads: tuple[Workload, ...]
    kept: tuple[Kept, ...]
    seeds: int
    generated: bool  # whether no real log was there

    def estimates(self, trace: str, network: str, metric: str) -> dict[str, Estimate]:
        """Return a measure of every policy, over the seeds."""
        found = self._values(trace, network, metric)
        return {policy: estimate(list(by_seed.values())) for policy, by_seed in found.items()}

    def ratios(self, trace: str, network: str, metric: str) -> dict[str, Estimate]:
        """Return a measure over Titan's, seed by seed: both saw the same jobs, so much of the spread goes away."""
        found = self._values(trace, network, metric)
        titan = found.get("titan", {})
        if not titan or not all(titan.values()):
            return {}
        return {
            policy: estimate([value / titan[seed] for seed, value in by_seed.items()])
            for policy, by_seed in found.items()
        }

    def _values(self, trace: str, network: str, metric: str) -> dict[str, dict[int, float]]:
        """Return a measure by policy and seed; empty if that was not run."""
        values: dict[str, dict[int, float]] = {}
        for one in self.kept:
            if (one.cell.trace, one.cell.network) == (trace, network):
                values.setdefault(one.cell.policy, {})[one.cell.seed] = one.summary[metric]
        return values

    def lines(self, trace: str, network: str) -> list[Kept]:
        """Return the runs of the first seed, for drawing."""
        return [
            one for one in self.kept if (one.cell.trace, one.cell.network, one.cell.seed) == (trace, network, 0)
        ]

    def jobs(self, trace: str) -> int:
        """Return how many jobs a trace had."""
        return next(one.jobs for one in self.kept if one.cell.trace == trace)


def sources(traces: Path | None, *, quick: bool) -> dict[str, Source]:
    """Return where the jobs of each workload come from; a folder must hold all files."""
    if traces is not None:
        missing = [work.file for work in WORKLOADS if work.file and not (traces / work.file).is_file()]
        if missing:
            raise InputError(f"--traces: {traces}: no {' and no '.join(missing)} in this folder")
    found = {}
    for work in WORKLOADS:
        jobs = min(work.jobs, QUICK_JOBS) if quick else work.jobs
        file = traces / work.file if traces is not None and work.file else None
        found[work.key] = Source(jobs, file, work.preset)
    return found


def plan(seeds: int) -> list[Cell]:
    """Return all replays."""
    return [
        Cell(work.key, policy, network, seed)
        for work in WORKLOADS
        for seed in range(seeds)
        for network in work.networks
        for policy in POLICIES
        if seed == 0 or policy not in work.once
    ]


def run_study(
    where: Mapping[str, Source],
    seeds: int,
    processes: int,
    progress: Callable[[int], None] | None = None,
) -> Study:
    """Replay everything on the paper's cluster: 64 racks of 8 machines of 8 GPUs, links of 100 Gbps."""
    cluster = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8, link_gbps=100.0)
    setting = Setting(cluster, where, tuple(figure.column for figure in FIGURES))
    kept = run_cells(plan(seeds), setting, processes, progress)
    return Study(WORKLOADS, tuple(kept), seeds, all(source.file is None for source in where.values()))
