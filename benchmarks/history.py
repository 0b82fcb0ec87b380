"""The history of the benchmarks: one JSON line a case and run, and a page that plots it.

`cranny bench --record` appends to `history.jsonl`; `python -m benchmarks.history PAGE.md` writes the page.
"""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import CASES
from benchmarks.measure import Measured
from cranny.version import VERSION

HISTORY = Path(__file__).with_name("history.jsonl")
Line = dict[str, Any]

ABOUT = (
    "What `cranny bench --record` measured, run by run. A plot shows how many times better than its budget each "
    "value was: below 1 the budget is missed. A line joins runs on one kind of machine."
)

# The plot, in pixels: what is measured against its budget, on a logarithmic scale.
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 720, 200, 56, 12, 24, 200
SVG = (
    f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" style="max-width:100%;height:auto" '
    'font-family="sans-serif" font-size="11" fill="currentColor">'
)
TICKS = (0.1, 1.0, 10.0, 100.0, 1000.0)
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def append(measured: Iterable[Measured]) -> None:
    """Append one line for each case that was measured just now."""
    run = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": VERSION,
        "commit": commit(),
        "machine": machine(),
    }
    with HISTORY.open("a", encoding="utf-8") as file:
        for each in measured:
            facts = each.facts()
            for budget, fact in zip(each.budgets, facts["budgets"], strict=True):
                fact["at_least"] = budget.at_least
            file.write(json.dumps(run | facts) + "\n")


def commit() -> str:
    """Return the commit that is checked out, with a plus if files differ from it; empty outside of a checkout."""
    folder = Path(__file__).parent
    try:
        words = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine() -> str:
    """Return what kind of machine this is, without its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{platform.machine()}, {os.cpu_count()} x {names[0] if names else platform.system()}"


def read() -> list[Line]:
    """Return all lines, oldest first."""
    if not HISTORY.is_file():
        return []
    return [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines() if line]


def page(lines: Sequence[Line]) -> str:
    """Return a page in Markdown: for each case a plot against its budgets, and a table of what was measured."""
    parts = ["# Benchmark history", ABOUT]
    for case in dict.fromkeys(line["case"] for line in lines):
        runs = [line for line in lines if line["case"] == case]
        about = f": {CASES[case].about}" if case in CASES else ""
        parts += [f"## {case}", f"`cranny bench {case}`{about}.", _plot(runs), _table(runs)]
    if not lines:
        parts.append("Nothing has been recorded yet.")
    return "\n\n".join(parts) + "\n"


def headroom(budget: Line) -> float:
    """Return how many times better than its limit a value is, within the scale of the plot."""
    value, limit = float(budget["value"]), float(budget["limit"])
    better, worse = (value, limit) if budget["at_least"] else (limit, value)
    if worse <= 0:  # nothing may be lost, or nothing is: all or nothing
        return TICKS[-1] if budget["ok"] else TICKS[0]
    return min(max(better / worse, TICKS[0]), TICKS[-1])


def _plot(runs: Sequence[Line]) -> str:
    """Return a plot of one case as SVG, in one line, so that Markdown takes it as it is."""

    def down(ratio: float) -> float:
        whole = math.log10(TICKS[-1] / TICKS[0])
        return TOP + (HEIGHT - TOP - BOTTOM) * math.log10(TICKS[-1] / ratio) / whole

    across = (WIDTH - LEFT - RIGHT) / max(len(runs) - 1, 1)
    case = runs[0]["case"]
    shapes = [f"{SVG}<title>{case}: times better than the budget</title>"]
    for tick in TICKS:
        faint, y = "" if tick == 1.0 else ' stroke-opacity="0.2"', f"{down(tick):.1f}"
        shapes.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="currentColor"{faint}/>'
            f'<text x="{LEFT - 8}" y="{down(tick) + 4:.1f}" text-anchor="end">{tick:g}x</text>'
        )
    names = list(dict.fromkeys(budget["name"] for run in runs for budget in run["budgets"]))
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        for kind in dict.fromkeys(run["machine"] for run in runs):
            points = [
                (LEFT + at * across, down(headroom(budget)))
                for at, run in enumerate(runs)
                for budget in run["budgets"]
                if run["machine"] == kind and budget["name"] == name
            ]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            shapes.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            shapes += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        below = TOP + 8 + 15 * number
        shapes.append(f'<text x="{WIDTH - RIGHT + 16}" y="{below}" fill="{colour}">{name}</text>')
    for at, anchor in ((0, "start"), (len(runs) - 1, "end"))[: len(runs)]:
        x = LEFT + at * across
        shapes.append(f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{runs[at]["date"][:10]}</text>')
    return "".join(shapes) + "</svg>"


def _table(runs: Sequence[Line]) -> str:
    """Return a table of the values that have a budget, newest run first."""
    limits = {
        b["name"]: f"{'>=' if b['at_least'] else '<='} {b['limit']:g}" for run in runs for b in run["budgets"]
    }
    rows = [
        ["date", "version", "commit", "machine", *(f"{name} ({limit})" for name, limit in limits.items())],
        ["---"] * (4 + len(limits)),
    ]
    for run in reversed(runs):
        values = {b["name"]: f"{b['value']:,.4g}" + ("" if b["ok"] else " (missed)") for b in run["budgets"]}
        about = [run["date"][:10], run["version"], run["commit"], run["machine"]]
        rows.append(about + [values.get(name, "") for name in limits])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(read()), encoding="utf-8")
