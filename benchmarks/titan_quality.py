"""How close Titan comes to the optimum on small clusters, CP-SAT being the judge."""

from dataclasses import dataclass

import numpy as np

from benchmarks.measure import Budget, Measured
from cranny.core.state import ClusterState
from cranny.core.traffic import traffic
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies.titan import Titan
from cranny.policies.titan.bandwidth import WAIVED

CASES = 500
MAX_MACHINES = 8
GPUS_PER_MACHINE = 4
MAX_WORKERS = 12
COLLECTIVES = ("halving-doubling", "ring", "tree", "parameter-server", "all-to-all")
MODELS = ("resnet50", "vgg16", "bert-large", "gpt2-xl")


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case: Titan's objectives and traffic beside the optimum; None where nothing fits."""

    titan: tuple[int, int, float] | None
    optimum: tuple[int, int, float] | None
    proven: bool
    bound: bool  # whether the bandwidth constraint forbids the unconstrained optimum

    @property
    def agrees(self) -> bool:
        """Whether (O1, O2) are the same."""
        return (self.titan and self.titan[:2]) == (self.optimum and self.optimum[:2])

    @property
    def gap(self) -> float:
        """Traffic above the optimum, as a share of it."""
        if not self.agrees or self.titan is None or self.optimum is None or not self.optimum[2]:
            return 0.0
        return self.titan[2] / self.optimum[2] - 1.0


def random_case(rng: np.random.Generator) -> tuple[ClusterState, Job]:
    """Return a cluster with some GPUs taken and some links busy, and a job for it."""
    machines = int(rng.integers(2, MAX_MACHINES + 1))
    link_gbps = float(rng.choice([2.0, 10.0, 25.0, 100.0]))
    state = ClusterState(Cluster.single_rack(machines, GPUS_PER_MACHINE, link_gbps))
    for machine in range(machines):
        taken = int(rng.integers(0, GPUS_PER_MACHINE + 1))
        if taken:
            state.place(Job(id=f"on-{machine}", gpus=taken), Placement((machine,) * taken))
    free = np.repeat(np.arange(machines), state.free)
    if len(free) >= 4 and rng.random() < 0.5:  # a job across machines, so that links are busy
        seats = rng.choice(free, size=2, replace=False)
        model = str(rng.choice(MODELS))
        state.place(Job(id="across", gpus=2, model=model), Placement(tuple(int(seat) for seat in seats)))
    left = max(2, min(MAX_WORKERS, int(state.free.sum())))
    job = Job(
        id="job",
        gpus=int(rng.integers(2, left + 1)),
        model=str(rng.choice(MODELS)),
        collective=str(rng.choice(COLLECTIVES)),
    )
    return state, job


def judge(state: ClusterState, job: Job) -> Verdict:
    """Solve one case both ways."""
    from cranny.exact.titan import Exact

    view = state.snapshot()
    placement = Titan().place(job, view)
    if placement is not None and placement.facts["note"] == WAIVED:
        placement = None
    titan = None
    if placement is not None:
        distinct = placement.counts
        opened = sum(view.is_idle(machine) for machine in distinct)
        titan = (opened, len(distinct), traffic(job, placement.machines).cross_machine_bytes)
    solution = Exact().solve(job, view)
    optimum = (
        (solution.idle_opened, solution.machines_used, solution.cross_bytes) if solution is not None else None
    )
    bound = bool(placement and placement.facts["note"]) or (
        placement is None and int(state.free.sum()) >= job.gpus
    )
    return Verdict(titan, optimum, solution is None or solution.proven, bound)


def run() -> Measured:
    """Judge random cases; print how often (O1, O2) agree and how much more traffic Titan has."""
    rng = np.random.default_rng(0)
    verdicts = [judge(*random_case(rng)) for _ in range(CASES)]
    crossing = [v for v in verdicts if v.titan and v.optimum and v.optimum[2]]
    gaps = [verdict.gap for verdict in crossing]
    metrics = {
        "cases": float(len(verdicts)),
        "proven": float(sum(verdict.proven for verdict in verdicts)),
        "agree_in_o1_o2": float(sum(verdict.agrees for verdict in verdicts)),
        "disagree_in_o1_o2": float(sum(not verdict.agrees for verdict in verdicts)),
        "bandwidth_bound": float(sum(verdict.bound for verdict in verdicts)),
        "across_machines": float(len(crossing)),
        "mean_traffic_gap": float(np.mean(gaps)) if gaps else 0.0,
        "p95_traffic_gap": float(np.quantile(gaps, 0.95)) if gaps else 0.0,
        "worst_traffic_gap": max(gaps, default=0.0),
    }
    budgets = [
        Budget("disagree_in_o1_o2", metrics["disagree_in_o1_o2"], 0),
        Budget("mean_traffic_gap", metrics["mean_traffic_gap"], 0.10),
    ]
    return Measured("titan-quality", metrics, budgets)
