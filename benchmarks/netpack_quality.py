"""How close policies come to the optimum of NetPack's Table 3 on small clusters, and to the best under max-min."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.measure import Budget, Measured
from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies import TABLE, policy

CASES = 60
POLICIES = (
    "netpack",
    "netpack-lean",
    "gpu-balance",
    "flow-balance",
    "least-fragmentation",
    "optimus",
    "tetris",
    "comb",
    "best-fit",
    "random",
)
RACKS, MACHINES_PER_RACK, GPUS_PER_MACHINE = 2, 2, 4
JOBS = 3
PATS_GBPS = (None, 50.0, 100.0, 1000.0)
MODELS = ("alexnet", "vgg16", "resnet50", "resnet101")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case: seconds of communication in an iteration of each job, all jobs together."""

    optimum_s: float  # of Table 3
    proven: bool
    best_s: float  # of all placements with max-min fair rates
    took_s: dict[str, float]  # by policy, with max-min fair rates
    central_s: dict[str, float]  # by policy, with its machines and servers but rates as Table 3 would have them


def random_case(rng: np.random.Generator) -> tuple[ClusterState, list[Job]]:
    """Return a cluster with some GPUs taken, and jobs that fit together."""
    pat_gbps = PATS_GBPS[rng.integers(len(PATS_GBPS))]
    state = ClusterState(Cluster.fat_tree(RACKS, MACHINES_PER_RACK, GPUS_PER_MACHINE, pat_gbps=pat_gbps))
    for machine in range(len(state.cluster.machines)):
        taken = int(rng.integers(0, 3))
        if taken:
            state.place(Job(id=f"on-{machine}", gpus=taken), Placement((machine,) * taken))
    left = int(state.free.sum())
    jobs = []
    for index in range(JOBS):
        most = left - 2 * (JOBS - 1 - index)  # two for each that comes after
        gpus = int(rng.integers(2, min(6, most) + 1))
        left -= gpus
        jobs.append(Job(f"job-{index}", gpus, str(rng.choice(MODELS)), "ina"))
    return state, jobs


def placed_by(name: str, jobs: Sequence[Job], view: Snapshot) -> list[Placement] | None:
    """Return where a policy places jobs, small ones first as in a batch; None if it lets one wait."""
    placer = policy(name)
    placements: dict[str, Placement] = {}
    for job in sorted(jobs, key=lambda job: job.gpus):
        placement = placer.place(job, view)
        if placement is None:
            return None
        placements[job.id] = placement
        view = view.after(placement, job)
    return [placements[job.id] for job in jobs]


def judge(state: ClusterState, jobs: Sequence[Job]) -> Verdict:
    """Solve one case in all ways."""
    from cranny.exact.max_min import best, comm_s
    from cranny.exact.netpack import Table3

    view, table = state.snapshot(), Table3()
    optimum, fair = table.solve(jobs, view), best(jobs, view)
    if optimum is None or fair is None:
        raise CrannyError("the jobs of a case do not fit together")
    took_s, central_s = {}, {}
    for name in POLICIES:
        placements = placed_by(name, jobs, view) if name in TABLE else None
        if placements is None:
            continue
        took_s[name] = comm_s(state.cluster, jobs, placements)
        central = table.solve(jobs, view, placements)
        central_s[name] = central.comm_s if central is not None else np.inf
    return Verdict(optimum.comm_s, optimum.proven, fair.comm_s, took_s, central_s)


def run() -> Measured:
    """Judge random cases; report how much longer than necessary the jobs of each policy communicate.

    A ratio is of a case. Cases in which no job needs to send have none; `needless` counts those in which one does.
    """
    rng = np.random.default_rng(0)
    verdicts = [judge(*random_case(rng)) for _ in range(CASES)]
    metrics = {
        "cases": float(len(verdicts)),
        "silent_cases": float(sum(verdict.optimum_s == 0 for verdict in verdicts)),
        "proven_share": float(np.mean([verdict.proven for verdict in verdicts])),
    }
    _spread(metrics, "max-min", ratios([(v.best_s, v.optimum_s) for v in verdicts]))
    for name in POLICIES:
        seen = [v for v in verdicts if name in v.took_s]
        if not seen:
            continue
        metrics[f"{name}_cases"] = float(len(seen))
        _spread(metrics, name, ratios([(v.took_s[name], v.optimum_s) for v in seen]))
        metrics[f"{name}_mean_to_best"] = _mean(ratios([(v.took_s[name], v.best_s) for v in seen]))
        metrics[f"{name}_mean_central"] = _mean(ratios([(v.central_s[name], v.optimum_s) for v in seen]))
        metrics[f"{name}_needless"] = float(sum(v.took_s[name] > 0 and v.optimum_s == 0 for v in seen))
    budgets = [Budget("proven_share", metrics["proven_share"], 1.0, at_least=True)]
    return Measured("netpack-quality", metrics, budgets)


def ratios(values: Sequence[tuple[float, float]]) -> list[float]:
    """Return what was reached over the least, where that is not nothing."""
    return [value / least for value, least in values if least > 0]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 1.0


def _spread(metrics: dict[str, float], name: str, values: Sequence[float]) -> None:
    metrics[f"{name}_mean"] = _mean(values)
    metrics[f"{name}_p95"] = float(np.quantile(values, 0.95)) if values else 1.0
    metrics[f"{name}_worst"] = max(values, default=1.0)
