"""Jobs replayed in a CPU-second, with all metrics on."""

import time

from benchmarks.measure import Budget, Measured, reference
from cranny.model.cluster import Cluster
from cranny.run import simulate
from cranny.traces.generate import generate_trace
from cranny.traces.trace import Trace

JOBS = 100_000
REFERENCE_JOBS = 1_000
RUNS = 3
COLLECTIVE = "halving-doubling"  # the harder one for Titan, and that of all results so far


def run() -> Measured:
    """Replay a Philly-like trace under Titan and two rivals; then a short one against the slow reference."""
    cluster = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8)
    trace = generate_trace("philly", jobs=JOBS, seed=0)  # at the published rate of arrivals
    metrics = {
        f"jobs_per_cpu_s_{policy}": max(jobs_per_cpu_s(cluster, trace, policy) for _ in range(RUNS))
        for policy in ("titan", "best-fit", "fragments-first")
    }
    slow = reference("replay")
    if slow is not None:
        short = trace.slice(count=REFERENCE_JOBS)
        began = time.process_time()
        slow.replay(cluster, list(short.jobs(0, COLLECTIVE)))
        slow_s = time.process_time() - began
        fast = jobs_per_cpu_s(cluster, short, "best-fit")
        metrics["times_faster_than_reference"] = fast * slow_s / REFERENCE_JOBS
    budget = Budget("jobs_per_cpu_s_titan", metrics["jobs_per_cpu_s_titan"], 50_000, at_least=True)
    return Measured("replay", metrics, [budget])


def jobs_per_cpu_s(cluster: Cluster, trace: Trace, policy: str, network: str = "isolated") -> float:
    """Replay a trace and return how many of its jobs that took a CPU-second."""
    began = time.process_time()
    simulate(cluster, trace, policy, network, collective=COLLECTIVE)
    return len(trace) / (time.process_time() - began)
