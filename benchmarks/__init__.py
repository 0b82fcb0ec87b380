"""Benchmarks: each case measures something that the design promises and compares it with its budget."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from benchmarks.measure import Measured


@dataclass(frozen=True, slots=True)
class Case:
    """Where a case is found and what it measures."""

    path: str  # module:function, imported when asked for
    about: str


CASES: dict[str, Case] = {
    "decide": Case("benchmarks.decide:run", "Titan's time for one decision at 1,000 to 100,000 GPUs"),
    "replay": Case("benchmarks.replay:run", "jobs replayed in a CPU-second, 512 x 8 cluster, 100,000 jobs"),
    "acme": Case("benchmarks.acme:run", "jobs replayed in a CPU-second on 470,497 jobs like Acme's"),
    "replay-steady": Case("benchmarks.replay_steady:run", "the same with jobs that share links, at load 0.85"),
    "steady": Case("benchmarks.steady:run", "rates of 10,000 jobs on 10,000 machines, and one job more or less"),
    "netpack": Case("benchmarks.netpack:run", "NetPack's time to place a job on 100 to 10,000 servers"),
    "netpack-quality": Case(
        "benchmarks.netpack_quality:run",
        "NetPack and others against the optimum of Table 3 on 60 small clusters",
    ),
    "phases": Case("benchmarks.phases:run", "hours of training played phase by phase in a CPU-second"),
    "cassini": Case("benchmarks.cassini:run", "best rotations of jobs on one link, ten candidates on 1,024 GPUs"),
    "has": Case("benchmarks.has:run", "has-exact and JPS on mixed clusters of 15 to 1,000 workers"),
    "what-if-million": Case(
        "benchmarks.what_if_million:run",
        "seconds and memory of a what-if on a made-up sacct log of a million rows",
    ),
    "service-decision": Case(
        "benchmarks.service_decision:run",
        "one decision of the service: a job of 10,000 ranks, and 50,000 jobs that wait",
    ),
    "service-log": Case(
        "benchmarks.service_log:run", "seconds until a service is ready, and its memory, after a million jobs"
    ),
    "service-takeover": Case(
        "benchmarks.service_takeover:run", "seconds from the death of a service to the first answer of its standby"
    ),
    "slurm-pending": Case(
        "benchmarks.slurm_pending:run",
        "rounds and calls of Slurm's commands, with 10,000 pending jobs on a real Slurm of 64 nodes",
    ),
    "traces": Case("benchmarks.traces:run", "CPU-seconds to read a table of 100,000 jobs"),
    "import": Case("benchmarks.importing:run", "seconds to import cranny and to print its help"),
    "agent": Case("benchmarks.agent:run", "CPU-seconds that the agent inside a job takes of an iteration"),
    "durations": Case("benchmarks.durations:run", "estimates of durations on seven real logs, with simple rivals"),
    "regret": Case("benchmarks.regret.run:run", "every policy in the papers' worlds, over the best of the others"),
    "cranny-speed": Case(
        "benchmarks.cranny_speed:run", "cranny's decisions at 1,024 and 100,000 GPUs, and replays"
    ),
    "cranny-optimum": Case(
        "benchmarks.cranny_optimum:run", "mean JCT of policies over the least without stops, on 300 small worlds"
    ),
    "moves": Case("benchmarks.moves:run", "CPU-seconds of one search for moves at 1,000 to 100,000 GPUs"),
    "titan-quality": Case("benchmarks.titan_quality:run", "Titan against CP-SAT on 500 small clusters"),
}


def run_case(name: str) -> Measured:
    """Run one case."""
    module, _, function = CASES[name].path.partition(":")
    run: Callable[[], Measured] = getattr(import_module(module), function)
    return run()
