"""What goes to the folder: tables as CSV and JSON, pictures, and the page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from cranny.report.text_table import TextTable
from cranny.repro.claim import Claim, sum_up
from cranny.repro.figure import Group, Line, draw_bars, draw_lines
from cranny.repro.files import write_csv, write_json
from cranny.repro.netpack.claims import claims
from cranny.repro.netpack.method import facts
from cranny.repro.netpack.study import Study
from cranny.repro.netpack.tables import Table, heading, name, sheet, speed_sheet, tables, watch_sheet
from cranny.repro.netpack.values import NETPACK, PAPER
from cranny.repro.netpack.watch import Watched
from cranny.repro.page import Section, write_page
from cranny.version import VERSION

STEEP = 6.0  # factors from which an axis is logarithmic


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was found: the tables, and what they say."""

    tables: Sequence[Table]
    seconds: Mapping[int, float]  # to place a job, by servers
    watched: Sequence[Watched]
    claims: Sequence[Claim]
    facts: Sequence[str]

    def told(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "paper": "NetPack, ASPLOS 2024",
            "version": VERSION,
            "how": list(self.facts),
            "claims": [asdict(claim) for claim in self.claims],
            "said": {key: {"text": said.text, **said.numbers} for key, said in PAPER.items()},
            "figures": [row for table in self.tables for row in table.records()],
            "seconds_per_job": {str(servers): value for servers, value in self.seconds.items()},
            "rates": [asdict(each) for each in self.watched],
        }

    def sheets(self) -> list[TextTable]:
        """Return all tables, figure after figure."""
        found = [sheet(table) for table in self.tables]
        if self.seconds:
            found.append(speed_sheet(self.seconds, PAPER["10"].numbers))
        if self.watched:
            found.append(watch_sheet(self.watched))
        return found


def find(study: Study | None, seconds: Mapping[int, float], watched: Sequence[Watched]) -> Findings:
    """Make tables and claims of what was run."""
    made = tables(study) if study is not None else []
    return Findings(made, seconds, watched, claims(made, seconds, watched), facts(study, seconds, watched))


def write(found: Findings, folder: Path) -> Path:
    """Write all files; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    told = found.told()
    write_json(told, folder / "netpack.json")
    sections = []
    for key, group in groupby(found.tables, lambda table: table.experiment.key):
        mine = list(group)
        stem = f"fig{key}" if key.isdigit() else key
        write_csv([row for table in mine for row in table.records()], folder / f"{stem}.csv")
        sections.append(Section(heading(mine[0].experiment), [*map(sheet, mine)], [_bars(mine, folder / stem)]))
    if found.seconds:
        sections.append(Section("Fig. 10: time to place a job", [speed_sheet(found.seconds, PAPER["10"].numbers)]))
    if found.watched:
        write_csv(told["rates"], folder / "fig15.csv")
        picture = _rates(found.watched, folder / "fig15")
        sections.append(Section("Fig. 15: estimate and rates", [watch_sheet(found.watched)], [picture]))
    return write_page(
        folder / "netpack.html",
        "NetPack's evaluation, rebuilt",
        sum_up("ASPLOS 2024", found.claims),
        [claim.told() for claim in found.claims],
        sections,
        found.facts,
    )


def _bars(mine: Sequence[Table], path: Path) -> Path:
    """Draw JCT over NetPack's, or DE as it is."""
    experiment = mine[0].experiment
    jct = experiment.measure == "jct"
    panels = {
        table.panel.title: [
            Group(
                point,
                {scheme: entry.advantage if jct else entry.value for scheme, entry in table.at(point).items()},
            )
            for point in table.points
        ]
        for table in mine
    }
    steep = any(entry.advantage.mean > STEEP for table in mine for entry in table.entries)
    ylabel = f"mean JCT, {NETPACK} = 1" if jct else "distribution efficiency"
    names = {scheme: name(scheme) for scheme in experiment.schemes}
    drawn = draw_bars(panels, ylabel, names, path, xlabel=experiment.axis, wide=True, log=jct and steep)
    return drawn[-1]


def _rates(watched: Sequence[Watched], path: Path) -> Path:
    """Draw the mean rates of each job over time."""
    names = {"estimate": "NetPack's estimate", "steady": "network steady", "phases": "network phases"}
    panels: dict[str, list[Line]] = {}
    for job in dict.fromkeys(each.job for each in watched):
        mine = [each for each in watched if each.job == job]
        times_s = [at_s for each in mine for at_s in (each.from_s, each.to_s)]
        panels[job] = [
            Line(kind, times_s, [value for each in mine for value in (getattr(each, f"{kind}_gbps"),) * 2])
            for kind in names
        ]
    drawn = draw_lines(panels, "mean rate over an iteration, Gbps", names, path, xlabel="seconds", unit_s=1.0)
    return drawn[-1]
