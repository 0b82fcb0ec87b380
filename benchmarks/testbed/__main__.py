"""Measure what shifts gain on a real network: `python -m benchmarks.testbed --seconds 300`.

It needs root, for network namespaces, and PyTorch. A policy that shifts jobs is measured beside one that does not,
at the same time, so that what else the machine does meets both.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.testbed.interleaving import Course, Gain, courses, gain, mean_s, overlap
from benchmarks.testbed.network import FIFO, Links, why_not
from benchmarks.testbed.served import Measured

LEAST_GAIN = 1.2
WITHOUT, WITH = "themis", ("themis+cassini", "cranny")


def main() -> int:
    """Measure two jobs, three, and two of which one becomes slower; return 1 if shifts gain too little."""
    asked = _arguments()
    reason = why_not()
    if reason is not None:
        sys.exit(reason)
    links = Links(asked.queue_ms / 1e3, asked.congestion, asked.fair_queues, not asked.plain_restarts)
    table = Table("seconds of an iteration, waits included", "without", "with", "gain (95 %)", box=None)
    enough = True
    for policy in asked.policies:
        steady = _rounds(policy, asked, links, drifts=False)
        gains = [_add(table, f"{policy}, two jobs", [(a.two, b.two) for a, b in steady])]
        if asked.joined_s:
            joined = _add(table, f"{policy}, a third one joins", [(a.three, b.three) for a, b in steady])
            enough &= joined.times >= 1.0
        if asked.drift:
            drifting = _rounds(policy, asked, links, drifts=True)
            gains.append(_add(table, f"{policy}, one drifts", [(a.two, b.two) for a, b in drifting]))
        enough &= all(each.times >= LEAST_GAIN for each in gains)
    Console(width=120).print(table)
    return 0 if enough else 1


def _arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.testbed")
    parser.add_argument("--seconds", type=float, default=300.0, help="that are measured of each run")
    parser.add_argument("--joined-s", type=float, default=120.0, help="that are measured with a third job")
    parser.add_argument("--policies", nargs="*", default=WITH, help="that shift jobs")
    parser.add_argument("--rounds", type=int, default=1, help="how often all is measured")
    parser.add_argument("--no-drift", dest="drift", action="store_false", help="do not measure a job that drifts")
    parser.add_argument("--together", action="store_true", help="both jobs start at the same time")
    parser.add_argument(
        "--queue-ms", type=float, default=1e3 * FIFO.queue_s, help="what the queue of a link holds"
    )
    parser.add_argument(
        "--congestion", default=FIFO.congestion, help="congestion control of TCP: cubic, reno, bbr"
    )
    parser.add_argument("--fair-queues", action="store_true", help="a queue for each machine, instead of one FIFO")
    parser.add_argument("--plain-restarts", action="store_true", help="TCP restarts as Linux does by itself")
    return parser.parse_args()


def _rounds(policy: str, asked: argparse.Namespace, links: Links, *, drifts: bool) -> list[tuple[Course, Course]]:
    """Return how jobs train without shifts and with them, in every round."""
    found = []
    for _ in range(asked.rounds):
        joined_s = 0.0 if drifts else asked.joined_s
        options = {"joined_s": joined_s, "drifts": drifts, "together": asked.together, "links": links}
        before, after = courses((WITHOUT, policy), asked.seconds, **options)
        found.append((before, after))
        for name, course in ((WITHOUT, before), (policy, after)):
            _show(name, course)
    return found


def _show(policy: str, course: Course) -> None:
    """Print what was measured, and how busy the machine is."""
    console = Console(stderr=True, width=120)
    load = os.getloadavg()[0]
    console.print(f"{policy}: both exchange {overlap(*course.two):.0%} of the time (load {load:.1f})")
    for job in (*course.two, *course.three):
        console.print(f"  {job}")


def _add(table: Table, name: str, rounds: Sequence[tuple[tuple[Measured, ...], tuple[Measured, ...]]]) -> Gain:
    """Add a row, and return the gain."""
    before, after = zip(*rounds, strict=True)
    found = gain(before, after)
    means = [sum(mean_s(jobs) for jobs in each) / len(each) for each in (before, after)]
    table.add_row(name, *[f"{each:.3f}" for each in means], str(found))
    return found


if __name__ == "__main__":
    sys.exit(main())
