"""What cranny costs a Slurm with many pending jobs: rounds of the service, and calls of Slurm's commands."""

import importlib

from benchmarks.measure import Budget, Measured

JOBS = 10_000
NODES = 64  # with 8 GPUs each
SECONDS = 60.0  # that calls are counted for
INTERVAL_S = 5.0  # of cranny serve --slurm-interval


def run() -> Measured:
    """Start a real Slurm with jobs that wait, and serve it; without Slurm or root there is nothing to measure."""
    if not importlib.import_module("tests.slurm.real_slurm").installed():
        return Measured("slurm-pending", {}, [])
    measure = importlib.import_module("tests.slurm.pending").measure
    found = measure(JOBS, SECONDS, INTERVAL_S, NODES)
    limits = {"mean round (s)": 1.0, "rounds over 1 s": 0.0, "squeue a minute": 60 / INTERVAL_S + 60 / SECONDS}
    return Measured("slurm-pending", found, [Budget(name, found[name], limit) for name, limit in limits.items()])
