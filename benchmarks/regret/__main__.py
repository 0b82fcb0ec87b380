"""Judge a policy in all worlds: `python -m benchmarks.regret --policies cranny,titan,netpack-lean --seeds 1`.

Results of the other policies are kept under `--out`, so that a second run only replays the judged one.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure import judged_policy
from benchmarks.regret import judgement, tables
from benchmarks.regret.ablation import switched_off
from benchmarks.regret.replays import PARTS, SEEDS, TUNED, Found, RegretCell, plan, replay_all
from benchmarks.regret.run import OUT, default_traces
from benchmarks.regret.world import Contender, World
from benchmarks.regret.worlds import WORLDS
from cranny.cli.console import out, progress
from cranny.model.errors import unknown
from cranny.policies import TABLE
from cranny.report.text_table import TextTable, terminal_table


def main(words: Sequence[str] | None = None) -> None:
    """Replay, judge and print."""
    asked = _arguments().parse_args(words)
    worlds = _worlds(asked.worlds)
    own = Contender.read(asked.judge or judged_policy())
    chosen = None if asked.policies is None else _contenders([*asked.policies.split(","), own.label])
    forms = switched_off(own) if asked.ablations else {}
    if asked.ablations:
        chosen = [*(chosen or []), *forms.values()]
    parts = [TUNED] if asked.tuned else list(PARTS)
    cells = plan(worlds, chosen, 1 if asked.quick else asked.seeds, parts)
    traces = None if asked.generated else asked.traces or default_traces()

    def anew(cell: RegretCell) -> bool:
        return cell.contender.policy == own.policy and not asked.reuse

    with progress("replaying", len(cells)) as tick:
        found = replay_all(cells, traces, asked.out, processes=asked.processes, anew=anew, progress=tick)
    rows = judgement.rows(found)
    sheets = _sheets(rows, own, chosen, rivals=asked.rivals)
    for sheet in [tables.ablation_table(rows, own, forms)] if asked.ablations else sheets:
        if asked.markdown:
            out.print(tables.markdown(sheet), soft_wrap=True, highlight=False, markup=False)
        else:
            out.print(terminal_table(sheet), soft_wrap=True)
    for name, reason in _failed(found).items():
        out.print(f"{name}: {reason}", soft_wrap=True)
    for budget, verdict in tables.verdicts(rows, own):
        out.print(f"{budget.name} {budget.value:.3f}, at most {budget.limit:g}: {verdict}", soft_wrap=True)
    if asked.picture:
        out.print(f"written: {tables.draw(rows, _in_order(found), asked.out / 'regret')}", soft_wrap=True)
    if asked.json:
        asked.json.write_text(json.dumps(_facts(rows, found), indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.ArgumentParser:
    """Return what can be asked for."""
    parser = argparse.ArgumentParser("python -m benchmarks.regret", description=__doc__)
    parser.add_argument("--worlds", help="names or beginnings of names, with commas; all if not given")
    parser.add_argument(
        "--policies", help="names, also as name@order, with commas; all that make sense if not given"
    )
    parser.add_argument("--judge", help="the policy that is judged")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each part")
    parser.add_argument("--quick", action="store_true", help="one seed of each part")
    parser.add_argument("--tuned", action="store_true", help="only mixes and seeds that may be tuned on")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--traces", type=Path, help="folder of real logs; ../shared/traces if it is there")
    parser.add_argument("--generated", action="store_true", help="no real logs")
    parser.add_argument("--reuse", action="store_true", help="take what is known of the judged policy, too")
    parser.add_argument("--ablations", action="store_true", help="switch off each term of the judged policy")
    parser.add_argument(
        "--rivals", action="store_true", help="also say which policy is the best other of each cell"
    )
    parser.add_argument("--markdown", action="store_true", help="tables for a page")
    parser.add_argument("--picture", action="store_true", help="write a heat map to --out")
    parser.add_argument("--json", type=Path, help="write all cells and measures to a file")
    parser.add_argument("--out", type=Path, default=OUT, help="folder that keeps results")
    return parser


def _worlds(asked: str | None) -> list[World]:
    """Return worlds by the beginnings of their names."""
    if asked is None:
        return list(WORLDS.values())
    found: dict[str, World] = {}
    for name in asked.split(","):
        there = {key: world for key, world in WORLDS.items() if key.startswith(name)}
        if not there:
            raise unknown("world", name, WORLDS)
        found |= there
    return list(found.values())


def _contenders(names: Sequence[str]) -> list[Contender]:
    """Return policies by name, each once; one that is not in the table yet is passed over."""
    read = [Contender.read(name) for name in dict.fromkeys(names)]
    return [each for each in read if each.policy in TABLE]


def _sheets(
    rows: Sequence[judgement.Row], own: Contender, chosen: Sequence[Contender] | None, *, rivals: bool
) -> list[TextTable]:
    """Return all cells of the judged policy, and what all policies come to."""
    everyone = list(dict.fromkeys(each for row in rows for each in row.measures)) if chosen is None else chosen
    return [
        tables.cells_table(rows, own),
        *([tables.cells_table(rows, own, rivals=True)] if rivals else []),
        tables.scores_table(rows, dict.fromkeys([own, *everyone])),
    ]


def _in_order(found: Found) -> list[Contender]:
    return list(dict.fromkeys(cell.contender for cell in found))


def _failed(found: Found) -> dict[str, str]:
    """Return replays that failed, and why."""
    return {
        f"{cell.world.key}, {cell.contender.label}, seed {cell.seed}": outcome.reason
        for cell, outcome in found.items()
        if outcome.reason is not None
    }


def _facts(rows: Sequence[judgement.Row], found: Found) -> dict[str, object]:
    """Return everything as plain values."""
    return {
        "cells": [
            {"policy": each.label, **cell._asdict()}
            for row in rows
            for each in row.measures
            for cell in judgement.judge(row, each)
        ],
        "replays": [
            {"world": cell.world.key, "policy": cell.contender.label, "seed": cell.seed, **(outcome.summary or {})}
            for cell, outcome in found.items()
        ],
        "failed": _failed(found),
    }


if __name__ == "__main__":
    main()
