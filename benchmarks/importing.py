"""Seconds that a user waits before anything happens."""

import subprocess
import sys
import time

from benchmarks.measure import Budget, Measured

RUNS = 7


def run() -> Measured:
    """Time fresh interpreters; the least of several runs, since the machine's noise only ever adds."""
    bare_s = _least_s("pass")
    metrics = {
        "import_s": _least_s("import cranny") - bare_s,
        "front_door_s": _least_s("import cranny; cranny.Cluster, cranny.ClusterState, cranny.Job") - bare_s,
        "help_s": _least_s("import sys; sys.argv = ['cranny', '--help']; from cranny.cli import main; main()"),
        "python_s": bare_s,
    }
    budgets = [Budget("import_s", metrics["import_s"], 0.3), Budget("help_s", metrics["help_s"], 0.5)]
    return Measured("import", metrics, budgets)


def _least_s(code: str) -> float:
    times_s = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        times_s.append(time.perf_counter() - began)
    return min(times_s)
