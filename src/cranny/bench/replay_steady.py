"""Jobs replayed in a CPU-second when they share links."""

from cranny.bench.measure import Budget, Measured
from cranny.bench.replay import jobs_per_cpu_s
from cranny.model.cluster import Cluster
from cranny.workload.generate import generate_trace

JOBS = (10_000, 100_000)
LOAD = 0.85
WARM_UP = 100  # jobs, so that compiling is not measured


def run() -> Measured:
    """Replay a Philly-like trace and one ten times as long, under best fit and Titan."""
    cluster = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8)
    metrics = {}
    for jobs in JOBS:
        trace = generate_trace("philly", jobs=jobs, seed=0, load=LOAD, gpus=cluster.gpus)
        jobs_per_cpu_s(cluster, trace.slice(count=WARM_UP), "best-fit", "steady")
        for policy in ("best-fit", "titan"):
            metrics[f"jobs_per_cpu_s_{policy}_{jobs}"] = jobs_per_cpu_s(cluster, trace, policy, "steady")
    budgets = [Budget(name, speed, 1_000, at_least=True) for name, speed in metrics.items()]
    return Measured("replay-steady", metrics, budgets)
