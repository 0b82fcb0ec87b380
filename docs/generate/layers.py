"""The picture of the architecture, from the import contract that the checks enforce."""

import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[2]
# What a box says below its name; a package of the contract that is missing here fails the build.
HOLDS = {
    "agent": ("what runs inside jobs:", "any loop, PyTorch"),
    "analysis": ("what-if on job logs,", "sweeps"),
    "backends": ("where clusters are read", "and jobs started"),
    "call_threads": ("many runs in threads",),
    "channel": ("files between a service and running jobs",),
    "cli": ("the commands",),
    "cluster_import": ("clusters from Slurm,", "Kubernetes or a log"),
    "core": ("engine, queue, state, snapshots, accounting, traffic, protocols, invariants",),
    "exact": ("optimal references for small cases: CP-SAT, MILP, exhaustive search",),
    "model": ("frozen values: cluster, job, profile, collective, placement, plan, events",),
    "network": ("how jobs share links: isolated, steady, phases, interleaving",),
    "policies": ("one file or folder", "a policy"),
    "policy_choice": ("the policy that was chosen, with seed and order",),
    "process_pool": ("many runs in several processes",),
    "report": ("pages, tables, charts",),
    "repro": ("the papers' evaluations,", "rebuilt"),
    "run": ("simulate, compare, explain",),
    "scenario": ("cluster, trace, policy, network, seed: one value",),
    "service": ("scheduler, event log,", "REST, dashboard"),
    "sim": ("replay in virtual time,", "metrics, results"),
    "traces": ("trace schema, readers,", "generators"),
}
WIDTH, GAP, LINE, NAME_W = 920, 14, 17, 24


def layers() -> list[list[str]]:
    """Return the layers of the import contract, the highest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (found,) = [each["layers"] for each in contracts if each["id"] == "layers"]
    return [[name.strip() for name in row.replace(":", "|").split("|")] for row in found]


def svg() -> str:
    """Return the layers as an inline picture: what stands higher may import what stands lower."""
    parts, top = [], 2
    for row in layers():
        lines = max(len(HOLDS[name]) for name in row)
        height = NAME_W + LINE * lines + 12
        each_w = (WIDTH - 4 - GAP * (len(row) - 1)) / len(row)
        for place, name in enumerate(row):
            parts.append(_box(name, 2 + place * (each_w + GAP), top, each_w, height))
        top += height + GAP
    caption = "Packages of cranny in layers; each may import those in layers below it"
    return (
        f'<div class="layers"><svg viewBox="0 0 {WIDTH} {top}" role="img" aria-label="{caption}">'
        f"<title>{caption}</title>{''.join(parts)}</svg></div>"
    )


def _box(name: str, left: float, top: float, width: float, height: float) -> str:
    middle = left + width / 2
    text = "".join(
        f'<text x="{middle:.1f}" y="{top + NAME_W + LINE * (line + 1) - 2:.1f}">{escape(words)}</text>'
        for line, words in enumerate(HOLDS[name])
    )
    return (
        f'<a href="../reference/modules.html#cranny.{name}">'
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"/>'
        f'<text class="name" x="{middle:.1f}" y="{top + NAME_W - 2:.1f}">{name}</text>{text}</a>'
    )
