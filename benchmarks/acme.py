"""Jobs replayed in a CPU-second on a trace of Acme's size, with its many jobs of a whole machine and more."""

from benchmarks.measure import Budget, Measured
from benchmarks.replay import jobs_per_cpu_s
from cranny.model.cluster import Cluster
from cranny.traces.generate import generate_trace

JOBS = 470_497  # those of the release that ran on GPUs
WARM_UP = 50_000  # jobs: enough to be compiled


def run() -> Measured:
    """Replay an Acme-like trace where communication takes no time, as the packing figures of Titan's paper do."""
    cluster = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8)
    trace = generate_trace("acme", jobs=JOBS, seed=0)
    metrics = {}
    for policy in ("best-fit", "consolidate-idle", "fragments-first", "titan"):
        jobs_per_cpu_s(cluster, trace.slice(count=WARM_UP), policy, "instant")
        metrics[f"jobs_per_cpu_s_{policy}"] = jobs_per_cpu_s(cluster, trace, policy, "instant")
    budgets = [Budget(name, speed, 50_000, at_least=True) for name, speed in metrics.items()]
    return Measured("acme", metrics, budgets)
