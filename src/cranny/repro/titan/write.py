"""What goes to the folder: tables as CSV and JSON, pictures, and the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cranny.repro.claim import Claim, sum_up
from cranny.repro.figure import LOOKS, Group, Line, Seats, draw_bars, draw_lines, draw_seats
from cranny.repro.files import write_csv, write_json
from cranny.repro.page import Section, write_page
from cranny.repro.titan.claims import claims
from cranny.repro.titan.method import facts
from cranny.repro.titan.study import Study
from cranny.repro.titan.tables import (
    BarTable,
    Table,
    bar_sheet,
    bar_tables,
    by_figure_and_trace,
    figure_sheet,
    tables,
    verdict_sheet,
)
from cranny.repro.titan.testbed import GPUS, MODELS, SCHEMES, SHOWN, WORKERS, Outcome
from cranny.repro.titan.values import FIGURES, PAPER_NAMES
from cranny.version import VERSION

NAMES = {
    policy: f'{policy} ("{name}")' if name.lower() != policy else name for policy, name in PAPER_NAMES.items()
}


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was found: what ran, the tables, and what they say."""

    study: Study | None
    outcomes: Sequence[Outcome]
    tables: Sequence[Table]
    bars: Sequence[BarTable]
    claims: Sequence[Claim]
    facts: Sequence[str]

    def told(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "paper": "Titan, ICNP 2024",
            "version": VERSION,
            "how": list(self.facts),
            "claims": [{"title": each.title, "holds": each.holds, "text": each.text} for each in self.claims],
            "figures": [row for table in self.tables for row in table.records()],
            "testbed": [row for table in self.bars for row in table.records()],
        }


def find(study: Study | None, outcomes: Sequence[Outcome], experiments: Sequence[int]) -> Findings:
    """Make tables and claims of what was run."""
    made = tables(study, experiments) if study is not None else []
    bars = bar_tables(outcomes, experiments)
    return Findings(study, outcomes, made, bars, claims(study, made, bars), facts(study, outcomes))


def write(found: Findings, folder: Path) -> Path:
    """Write all files; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(found.told(), folder / "titan.json")
    sections = []
    for figure in FIGURES:
        mine = [table for table in found.tables if table.figure == figure]
        if mine:
            write_csv([row for table in mine for row in table.records()], folder / f"fig{figure.number}.csv")
            sheets = [figure_sheet(both) for both in by_figure_and_trace(mine)]
            picture = _lines(found, mine, folder / f"fig{figure.number}")
            sections.append(Section(f"Fig. {figure.number}: {figure.title}", sheets, [picture]))
    if found.bars:
        sections.append(Section("Fig. 8: placements on the testbed", (), [_seats(found, folder / "fig8")]))
    for bars in found.bars:
        number = bars.bars.number
        write_csv(bars.records(), folder / f"fig{number}.csv")
        picture = _bars(bars, folder / f"fig{number}")
        sections.append(Section(f"Fig. {number}: {bars.bars.title}", [bar_sheet(bars)], [picture]))
    sections.insert(0, Section("Verdicts", [verdict_sheet(found.tables, found.bars)]))
    told = [each.told() for each in found.claims]
    return write_page(
        folder / "titan.html",
        "Titan's evaluation, rebuilt",
        sum_up("ICNP 2024", found.claims),
        told,
        sections,
        found.facts,
    )


def _lines(found: Findings, mine: Sequence[Table], path: Path) -> Path:
    """Draw a figure with the network that it is compared with first."""
    figure = mine[0].figure
    panels = {}
    for table in mine:
        if table.first and found.study is not None:
            runs = found.study.lines(table.workload.key, table.network)
            panels[table.workload.label] = [
                Line(
                    one.cell.policy,
                    one.times_s,
                    [None if value is None else value * figure.factor for value in one.lines[figure.column]],
                    None
                    if figure.number in (3, 7)
                    else table.ours[one.cell.policy].mean,  # sums have no mean line
                )
                for one in runs
                if one.cell.policy in LOOKS
            ]
    unit = f", {figure.unit}" if figure.unit else ""
    return draw_lines(panels, f"{figure.title}{unit}", NAMES, path)[-1]


def _bars(table: BarTable, path: Path) -> Path:
    panels = {model: [Group(str(workers), table.all[model, workers]) for workers in WORKERS] for model in MODELS}
    return draw_bars(panels, f"{table.bars.title}, {table.bars.unit}", NAMES, path)[-1]


def _seats(found: Findings, path: Path) -> Path:
    """Draw one layout with 6 to 12 workers of VGG-16 under every scheme, and ResNet-50 where Tiresias differs."""
    kinds = [(scheme, "vgg16") for scheme in SCHEMES]
    kinds.insert(kinds.index(("tiresias", "vgg16")), ("tiresias", "resnet50"))
    by = {(one.policy, one.model, one.workers): one for one in found.outcomes if one.free == SHOWN}
    rows = [
        [
            Seats(
                scheme, f"{scheme}, {model}, {workers} workers", SHOWN, GPUS, by[scheme, model, workers].machines
            )
            for workers in WORKERS[1:]
        ]
        for scheme, model in kinds
    ]
    return draw_seats(rows, path)[-1]
