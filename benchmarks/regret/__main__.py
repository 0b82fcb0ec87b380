"""Judge a policy in all worlds: `python -m benchmarks.regret --policies cranny,titan,netpack-lean --seeds 1`.

World by world, and in each seed by seed. Results are kept under `--out`, so that a second run only replays the
judged policy, and one that was interrupted goes on with `--reuse`.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.measure import judged_policy
from benchmarks.regret import judgement, tables
from benchmarks.regret.ablation import other_settings, switched_off
from benchmarks.regret.chance import chance
from benchmarks.regret.named_best import NamedBest, named_best, replay_best
from benchmarks.regret.page import fill, paragraphs
from benchmarks.regret.replays import (
    PARTS,
    SEEDS,
    TUNED,
    Found,
    RegretCell,
    in_folder,
    of_whole_seeds,
    plan,
    replay_all,
)
from benchmarks.regret.run import OUT, default_traces
from benchmarks.regret.screening import replay_world
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
    if asked.list:
        _print(tables.worlds_tables(worlds), markdown=asked.markdown)
        return
    own = Contender.read(asked.judge or judged_policy())
    forms = switched_off(own) if asked.ablations else {}
    if asked.ablations:
        chosen: list[Contender] | None = [own, *forms.values()]
    else:
        chosen = None if asked.policies is None else _contenders([*asked.policies.split(","), own.label])
    named = named_best(asked.best_of) if asked.best_of else None  # before the page is filled in anew
    found: Found = {}
    for world in worlds:
        found |= _replay(asked, world, own, chosen, named)
        if asked.page:  # an interrupted run leaves what is known of whole worlds
            rows = judgement.rows(found)
            _fill(asked, own, rows, _sheets(asked, rows, own, forms))
    rows = judgement.rows(found)
    sheets = _sheets(asked, rows, own, forms)
    bounded = tables.bounds_tables(rows, own, _traces(asked)) if asked.bounds else []
    _print([*sheets, *bounded], markdown=asked.markdown)
    for name, reason in _failed(found).items():
        out.print(f"{name}: {reason}", soft_wrap=True)
    out.print(*_verdicts(rows, own), sep="\n", soft_wrap=True)
    if asked.page:
        _fill(asked, own, rows, sheets, bounded)
    if asked.picture:
        everyone = _rivals_and_own(own, (cell.contender for cell in found))
        out.print(f"written: {tables.draw(rows, everyone, asked.out / 'regret')}", soft_wrap=True)
    if asked.json:
        asked.json.write_text(json.dumps(_facts(rows, found), indent=1) + "\n", encoding="utf-8")


def _replay(
    asked: argparse.Namespace,
    world: World,
    own: Contender,
    chosen: Sequence[Contender] | None,
    named: NamedBest | None,
) -> Found:
    """Replay what is asked for of a world and not known; the judged policy anew."""
    count, parts = 1 if asked.quick else asked.seeds, [TUNED] if asked.tuned else PARTS
    traces = _traces(asked)

    def anew(cell: RegretCell) -> bool:
        return cell.contender.policy == own.policy and not asked.reuse

    def replayed(cells: Sequence[RegretCell]) -> Found:
        if asked.known:
            return of_whole_seeds(cells, in_folder(cells, traces, asked.out))
        with progress(f"replaying {world.key}", len(cells)) as tick:
            return replay_all(cells, traces, asked.out, processes=asked.processes, anew=anew, progress=tick)

    if named is not None:
        found = replay_best(world, count, own, named, replayed, parts)
    elif chosen is None and not asked.unscreened:
        found = replay_world(world, count, own, replayed, parts)
    else:
        found = replayed(plan([world], chosen, count, parts))
    if asked.settings:
        found |= replayed(plan([world], other_settings(own), count, parts))
    return found


def _fill(
    asked: argparse.Namespace,
    own: Contender,
    rows: Sequence[judgement.Row],
    sheets: Sequence[TextTable],
    bounded: Sequence[TextTable] = (),
) -> None:
    """Write tables into the page that is asked for."""
    against = f" --best-of {asked.best_of.name}" if asked.best_of else ""
    seeds = 1 if asked.quick else asked.seeds
    command = f"`python -m benchmarks.regret --judge {own.label} --seeds {seeds}{against}`"
    told = f"{command}: " + "; ".join(_verdicts(rows, own)) + ".\n"
    parts = {
        "worlds": paragraphs(tables.worlds_tables(list(WORLDS.values()))),
        "results": [told, *paragraphs(sheets)],
    }
    if bounded:
        parts["bounds"] = [f"{command.rstrip('`')} --bounds`:\n", *paragraphs(bounded)]
    fill(asked.page, parts)


def _verdicts(rows: Sequence[judgement.Row], own: Contender) -> list[str]:
    """Say which limits are held, and how many cells are above that of the worst, and would be by chance."""
    limits = [
        f"{budget.name} {budget.value:.3f}, at most {budget.limit:g}: {verdict}"
        for budget, verdict in tables.verdicts(rows, own)
    ]
    by_chance = {part: chance(cells) for part, cells in tables.cells_by_part(rows, own).items()}
    return limits + [
        f"{found.above} of {found.cells} {part} cells above {judgement.WORST}, {found.surely_above} beyond doubt;"
        f" if none was truly above 1, {by_chance[part].above:.1f} would be by chance,"
        f" and none with a probability of {by_chance[part].none:.1%}"
        for part, found in tables.scores(rows, own).items()
    ]


def _traces(asked: argparse.Namespace) -> Path | None:
    """Return the folder of real logs, if there is one and it is wanted."""
    chosen: Path | None = asked.traces
    return None if asked.generated else chosen or default_traces()


def _arguments() -> argparse.ArgumentParser:
    """Return what can be asked for."""
    parser = argparse.ArgumentParser("python -m benchmarks.regret", description=__doc__)
    add = parser.add_argument
    add("--worlds", help="names or beginnings of names, with commas; all if not given")
    add("--list", action="store_true", help="list worlds, and policies that are left out of some")
    which = parser.add_mutually_exclusive_group().add_argument
    which("--policies", help="names, also as name@order, with commas; all that make sense if not given")
    which("--best-of", type=Path, help="page; replay only those that it names as the best other policies")
    which("--ablations", action="store_true", help="only the judged policy, and it without each of its terms")
    add("--judge", help="the policy that is judged")
    add("--seeds", type=int, default=SEEDS, help="of each part")
    add("--quick", action="store_true", help="one seed of each part")
    add("--tuned", action="store_true", help="only mixes and seeds that may be tuned on")
    add("--processes", type=int, default=1)
    add("--traces", type=Path, help="folder of real logs; ../shared/traces if it is there")
    add("--generated", action="store_true", help="no real logs")
    add("--reuse", action="store_true", help="take what is known of the judged policy, too")
    add("--known", action="store_true", help="replay nothing: report the seeds that are known in whole")
    add("--unscreened", action="store_true", help="all policies with all seeds, also those far behind")
    add("--settings", action="store_true", help="also replay the judged policy with other settings, for --bounds")
    add("--rivals", action="store_true", help="also say which policy is the best other of each cell")
    add(
        "--bounds",
        action="store_true",
        help="also say what no policy can be below, and what some schedule reaches",
    )
    add("--markdown", action="store_true", help="tables for a page")
    add("--page", type=Path, help="page to fill in")
    add("--picture", action="store_true", help="write a heat map to --out")
    add("--json", type=Path, help="write all cells and measures to a file")
    add("--out", type=Path, default=OUT, help="folder that keeps results")
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
    asked: argparse.Namespace, rows: Sequence[judgement.Row], own: Contender, forms: Mapping[str, Contender]
) -> list[TextTable]:
    """Return all cells of the judged policy, and what all policies come to; or what its terms are worth."""
    if asked.ablations:
        return [tables.ablation_table(rows, own, forms)]
    everyone = _rivals_and_own(own, (each for row in rows for each in row.measures))
    return [
        tables.cells_table(rows, own),
        *([tables.cells_table(rows, own, rivals=True)] if asked.rivals else []),
        tables.headlines_table(rows, own),
        # Those that a page names are not compared with each other: they are replayed only where they are the best.
        tables.scores_table(rows, [own] if asked.best_of else everyone),
    ]


def _rivals_and_own(own: Contender, replayed: Iterable[Contender]) -> list[Contender]:
    """Return all policies once, the judged one first and without its other forms."""
    return list(dict.fromkeys([own, *(each for each in replayed if each.policy != own.policy)]))


def _print(sheets: Sequence[TextTable], *, markdown: bool) -> None:
    for sheet in sheets:
        if markdown:
            out.print(tables.markdown(sheet), soft_wrap=True, highlight=False, markup=False)
        elif sheet.rows:
            out.print(terminal_table(sheet), soft_wrap=True)


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
