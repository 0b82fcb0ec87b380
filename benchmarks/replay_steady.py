"""Jobs replayed in a CPU-second when they share links, and whether more jobs take more time each.

At this load the cluster fills up in the course of some 20,000 jobs. Till then few jobs wait and hardly any share
links, so a short trace says little about a long one. From then on some 650 jobs run, two thirds of them on links
that they share, and each of these that starts or ends changes the speed of 50 to 100 others. So growth is measured
between two traces that both spend most of their jobs on a full cluster.
"""

from benchmarks.measure import Budget, Measured
from benchmarks.replay import jobs_per_cpu_s
from cranny.model.cluster import Cluster
from cranny.traces.generate import generate_trace

JOBS = (10_000, 50_000, 100_000)
POLICIES = ("best-fit", "titan")
LOAD = 0.85
WARM_UP = 100  # jobs, so that compiling is not measured


def run() -> Measured:
    """Replay a Philly-like trace, and longer ones, under best fit and Titan."""
    cluster = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8)
    speeds: dict[str, float] = {}
    for jobs in JOBS:
        trace = generate_trace("philly", jobs=jobs, seed=0, load=LOAD, gpus=cluster.gpus)
        for policy in POLICIES:
            jobs_per_cpu_s(cluster, trace.slice(count=WARM_UP), policy, "steady")
            speeds[f"jobs_per_cpu_s_{policy}_{jobs}"] = jobs_per_cpu_s(cluster, trace, policy, "steady")
    budgets = [Budget(name, speed, 1_000, at_least=True) for name, speed in speeds.items()]
    half, whole = JOBS[-2:]
    growth = {
        f"time_per_job_growth_{policy}": speeds[f"jobs_per_cpu_s_{policy}_{half}"]
        / speeds[f"jobs_per_cpu_s_{policy}_{whole}"]
        for policy in POLICIES
    }
    budgets += [Budget(name, times, 1.5) for name, times in growth.items()]
    return Measured("replay-steady", speeds | growth, budgets)
