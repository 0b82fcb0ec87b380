"""How close policies come to the least mean completion time of small worlds, of all schedules that stop no job.

The optimum knows all jobs in advance; no policy does. CP-SAT proves it, or gives a bound where its time ends: then
ratios are to the bound, so they are too large if anything. Policies that stop jobs may be below 1: `tiresias`, and
`cranny` unless told otherwise. A job that is stopped loses a minute. `bound_with_stops` is what no policy can be
below, whatever it stops; how far above it the best is, is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.measure import Budget, Measured
from benchmarks.regret.one_by_one import one_by_one_s
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.profile import ModelProfile
from cranny.policies import TABLE
from cranny.run import simulate

WORLDS = 300
GPUS_PER_MACHINE = 4
MOST_PER_RACK = 3
JOBS = {5: 0.1, 6: 0.2, 7: 0.25, 8: 0.25, 9: 0.1, 10: 0.1}  # how many worlds have so many
RESTART_S = 60.0
LINK_GBPS = 100.0
TIME_LIMIT_S = 4.0  # of CP-SAT, for each world
# Policies with their queue orders; None for that of their papers.
POLICIES: dict[str, tuple[str, str | None]] = {
    "cranny": ("cranny", None),
    "best-fit-mapped": ("best-fit-mapped", None),
    "titan": ("titan", None),
    "netpack-lean": ("netpack-lean", None),
    "tiresias": ("tiresias", None),
    "shortest-first": ("best-fit-mapped", "sjf"),
}
JUDGED = "cranny"


@dataclass(frozen=True, slots=True)
class World:
    """A cluster and the jobs that come to it."""

    cluster: Cluster
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One world: mean completion times, and whether the optimum is proven."""

    bound_s: float
    proven: bool
    bound_with_stops_s: float
    took_s: dict[str, float]  # by policy


def _model(share: float, gpus: int) -> ModelProfile:
    """Return a model that communicates for a share of its computing time if its ring of ranks leaves a machine."""
    volume = 2 * (gpus - 1) / gpus if gpus > 2 else 1.0  # of K, over each link
    grad_bytes = share * LINK_GBPS * GIGA / BITS_PER_BYTE / volume
    return ModelProfile(f"ring-{share:g}-{gpus}", grad_bytes=grad_bytes, iteration_ms=1000.0)


def random_world(rng: np.random.Generator) -> World:
    """Return up to 6 machines in up to 2 racks, and jobs that come over time and together want about all GPUs.

    All run times are whole seconds: durations are multiples of 20 s, and slowdowns of 1/4.
    """
    racks, per_rack = int(rng.integers(1, 3)), int(rng.integers(1, MOST_PER_RACK + 1))
    slower = float(rng.choice([1.0, 2.0, 4.0]))  # across racks than inside
    cluster = Cluster.fat_tree(racks, per_rack, GPUS_PER_MACHINE, LINK_GBPS, oversubscription=slower * per_rack)
    jobs: list[Job] = []
    now_s = 0.0
    load = rng.uniform(0.7, 1.3)
    for number in range(int(rng.choice(list(JOBS), p=list(JOBS.values())))):
        gpus = min(cluster.gpus, int(rng.choice([1, 2, 3, 4, 6, 8], p=[0.2, 0.2, 0.1, 0.2, 0.15, 0.15])))
        duration_s = 20.0 * round(float(np.clip(rng.lognormal(6.0, 1.0), 60.0, 3600.0)) / 20.0)
        model = _model(float(rng.choice([0.25, 0.5, 1.0])), gpus) if gpus > 1 else "resnet50"
        jobs.append(
            Job(f"job-{number}", gpus, model, "ring", submit_s=now_s, duration_s=duration_s, restart_s=RESTART_S)
        )
        now_s += round(rng.exponential(gpus * duration_s / cluster.gpus / load))
    return World(cluster, tuple(jobs))


def compared() -> dict[str, tuple[str, str | None]]:
    """Return the policies that are compared, those of the table."""
    return {name: chosen for name, chosen in POLICIES.items() if chosen[0] in TABLE}


def judge(world: World) -> Verdict:
    """Solve one world, and replay it under all policies."""
    from cranny.exact.mean_jct import least_mean_jct

    optimum = least_mean_jct(world.cluster, world.jobs, TIME_LIMIT_S)
    took_s = {
        name: float(simulate(world.cluster, world.jobs, policy, order=order).summary["mean_jct_s"])
        for name, (policy, order) in compared().items()
    }
    return Verdict(optimum.bound_s, optimum.proven, bound_with_stops_s(world), took_s)


def bound_with_stops_s(world: World) -> float:
    """Return a mean completion time that no policy is below, even if stops cost nothing.

    No job ends before it has run where it is fastest; and all together end no sooner than if all GPUs worked on
    one job at a time, the one with the least work left first.
    """
    from cranny.exact.mean_jct import run_times

    jobs, gpus = world.jobs, world.cluster.gpus
    fastest_s = {job: min(run_times(world.cluster, job).possible_s) for job in jobs}
    work_s = [job.gpus * seconds / gpus for job, seconds in fastest_s.items()]
    together_s = one_by_one_s([job.submit_s for job in jobs], work_s)
    return max(sum(fastest_s.values()), together_s) / len(jobs)


def ratios(verdicts: Sequence[Verdict], name: str) -> list[float]:
    """Return a policy's mean completion time over the optimum, world by world."""
    return [verdict.took_s[name] / verdict.bound_s for verdict in verdicts]


def run() -> Measured:
    """Judge random worlds; print the ratios of each policy to the optimum."""
    rng = np.random.default_rng(0)
    verdicts = [judge(random_world(rng)) for _ in range(WORLDS)]
    metrics = {
        "worlds": float(len(verdicts)),
        "proven": float(sum(verdict.proven for verdict in verdicts)),
    }
    with_stops = [verdict.bound_with_stops_s / verdict.bound_s for verdict in verdicts]
    metrics["bound_with_stops_mean_ratio"] = float(np.mean(with_stops))
    for name in compared():
        found = ratios(verdicts, name)
        metrics[f"{name}_mean_ratio"] = float(np.mean(found))
        metrics[f"{name}_median_ratio"] = float(np.median(found))
        metrics[f"{name}_worst_ratio"] = max(found)
    others = [metrics[f"{name}_mean_ratio"] for name in compared() if name != JUDGED]
    budgets = [Budget("proven", metrics["proven"], 0.95 * len(verdicts), at_least=True)]
    if JUDGED in TABLE:
        budgets.append(Budget(f"{JUDGED}_mean_ratio", metrics[f"{JUDGED}_mean_ratio"], min(others)))
    return Measured("cranny-optimum", metrics, budgets)
