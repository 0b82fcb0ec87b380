"""Benchmarks: each case measures something that the design promises and compares it with its budget."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from cranny.bench.measure import Measured


@dataclass(frozen=True, slots=True)
class Case:
    """Where a case is found and what it measures."""

    path: str  # module:function, imported when asked for
    about: str


CASES: dict[str, Case] = {
    "decide": Case("cranny.bench.decide:run", "Titan's time for one decision at 1,000 to 100,000 GPUs"),
    "replay": Case("cranny.bench.replay:run", "jobs replayed in a CPU-second, 512 x 8 cluster, 100,000 jobs"),
    "acme": Case("cranny.bench.acme:run", "jobs replayed in a CPU-second on 470,497 jobs like Acme's"),
    "replay-steady": Case("cranny.bench.replay_steady:run", "the same with jobs that share links, at load 0.85"),
    "steady": Case("cranny.bench.steady:run", "rates of 10,000 jobs on 10,000 machines, and one job more or less"),
    "netpack": Case("cranny.bench.netpack:run", "NetPack's time to place a job on 100 to 10,000 servers"),
    "netpack-quality": Case(
        "cranny.bench.netpack_quality:run",
        "NetPack and others against the optimum of Table 3 on 60 small clusters",
    ),
    "phases": Case("cranny.bench.phases:run", "hours of training played phase by phase in a CPU-second"),
    "cassini": Case(
        "cranny.bench.cassini:run", "best rotations of jobs on one link, ten candidates on 1,024 GPUs"
    ),
    "has": Case("cranny.bench.has:run", "has-exact and JPS on mixed clusters of 15 to 1,000 workers"),
    "import": Case("cranny.bench.importing:run", "seconds to import cranny and to print its help"),
    "titan-quality": Case("cranny.bench.titan_quality:run", "Titan against CP-SAT on 500 small clusters"),
}


def run_case(name: str) -> Measured:
    """Run one case."""
    module, _, function = CASES[name].path.partition(":")
    run: Callable[[], Measured] = getattr(import_module(module), function)
    return run()
