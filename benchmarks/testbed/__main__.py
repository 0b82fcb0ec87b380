"""Measure what shifts gain on a real network: `python -m benchmarks.testbed --seconds 300`.

It needs root, for network namespaces, and PyTorch. Nothing else should run on the machine.
"""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.testbed.interleaving import Course, course
from benchmarks.testbed.network import why_not

LEAST_GAIN = 1.2
WITHOUT, WITH = "themis", ("themis+cassini", "cranny")


def main() -> int:
    """Measure two jobs, three, and two of which one becomes slower; return 1 if shifts gain too little."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.testbed")
    parser.add_argument("--seconds", type=float, default=300.0, help="that are measured of each run")
    parser.add_argument("--joined-s", type=float, default=120.0, help="that are measured with a third job")
    parser.add_argument("--policies", nargs="*", default=WITH, help="that shift jobs")
    asked = parser.parse_args()
    reason = why_not()
    if reason is not None:
        sys.exit(reason)
    table = Table("policy", "two jobs", "gain", "three jobs", "gain", "one drifts", "gain", box=None)
    before = _measure(WITHOUT, asked.seconds, asked.joined_s)
    _add(table, WITHOUT, before, before)
    gains = []
    for policy in asked.policies:
        found = _measure(policy, asked.seconds, asked.joined_s)
        _add(table, policy, found, before)
        steady, drifting = (old.mean_s / new.mean_s for old, new in zip(before, found, strict=True))
        joined = before[0].mean_of_three_s / found[0].mean_of_three_s
        gains.append(steady >= LEAST_GAIN and drifting >= LEAST_GAIN and joined >= 1.0)
    Console().print("mean seconds of an iteration, waits included", table)
    return 0 if all(gains) else 1


def _measure(policy: str, seconds: float, joined_s: float) -> tuple[Course, Course]:
    """Return how jobs train under a policy: with a third one in the end, and with one that drifts."""
    found = course(policy, seconds, joined_s=joined_s), course(policy, seconds, drifts=True)
    for each in found:
        Console(stderr=True).print(policy, each)
    return found


def _add(table: Table, policy: str, found: tuple[Course, Course], before: tuple[Course, Course]) -> None:
    """Add a row for a policy."""
    pairs = (
        (found[0].mean_s, before[0].mean_s),
        (found[0].mean_of_three_s, before[0].mean_of_three_s),
        (found[1].mean_s, before[1].mean_s),
    )
    cells = [text for new, old in pairs for text in (f"{new:.3f}", f"{old / new:.2f}x")]
    table.add_row(policy, *cells)


if __name__ == "__main__":
    sys.exit(main())
