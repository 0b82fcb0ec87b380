"""A reproduction as values, and what is written of it: JSON, CSV, plots, and a page that loads nothing else."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import polars as pl

from cranny.report.shell import escape, html_page, write_file
from cranny.report.text_table import TextTable, text_table_html
from cranny.repro.claim import TESTED, Claim, sum_up
from cranny.repro.paper_file import Paper
from cranny.repro.plots import Figure, save
from cranny.version import VERSION


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


Plot = Callable[[], Figure]
Record = Mapping[str, Any]  # a row of a CSV file


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with tables, plots or both; plots and rows of CSV files by the stem of their files."""

    title: str
    tables: Sequence[TextTable] = ()
    plots: Mapping[str, Plot] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    claims: Sequence[Claim] = ()


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A paper's evaluation, rebuilt: what became of its claims, and the values that show it."""

    of: Paper
    facts: Sequence[str]  # how it was done
    claims: Sequence[Claim]
    sections: Sequence[Section]
    values: Mapping[str, Any]  # what else goes to JSON
    brief: Sequence[TextTable] | None = None  # tables that a terminal shows, if not all

    @property
    def shown(self) -> Sequence[TextTable]:
        """The tables that a terminal shows."""
        every = [sheet for section in self.sections for sheet in section.tables]
        return every if self.brief is None else self.brief

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        claims = [asdict(claim) for claim in self.claims]
        head = {"paper": self.of.paper, "version": VERSION, "how": list(self.facts)}
        return {**head, "claims": claims, **self.values}

    def write(self, folder: Path) -> Path:
        """Write all files; return the page."""
        folder.mkdir(parents=True, exist_ok=True)
        values = json.dumps(self.as_json(), indent=1) + "\n"
        (folder / f"{self.of.name}.json").write_text(values, encoding="utf-8")
        for stem, rows in (each for section in self.sections for each in section.rows.items()):
            frame = pl.DataFrame(list(rows), infer_schema_length=None)
            lists = pl.selectors.list()  # CSV has none
            frame.with_columns(lists.cast(pl.List(pl.String)).list.join(" ")).write_csv(folder / f"{stem}.csv")
        main = Template(_file("claims.html")).substitute(
            claims="".join(map(_claim, self.claims)),
            sections="".join(_section(number, each, folder) for number, each in enumerate(self.sections)),
            facts="".join(f"<li>{escape(fact)}</li>" for fact in self.facts),
        )
        lead = sum_up(self.of.paper.split(", ")[-1], self.claims)
        shell = html_page(self.of.title, lead, main, style=_file("claims.css"), allowed="img-src data:")
        return write_file(shell, folder / f"{self.of.name}.html")


def _claim(claim: Claim) -> str:
    return (
        f'<article class="card"><span class="tag {TESTED.get(claim.holds, "other")}">{escape(claim.holds)}</span>'
        f"<h3>{escape(claim.title)}</h3><p>{escape(claim.text)}</p></article>"
    )


def _section(number: int, section: Section, folder: Path) -> str:
    plots = ""
    for stem, plot in section.plots.items():
        data = base64.b64encode(save(plot(), folder / stem).read_bytes()).decode("ascii")
        image = f'<img alt="{escape(stem)}" src="data:image/svg+xml;base64,{data}">'
        plots += f'<figure class="card"><div class="scroll">{image}</div></figure>'
    tables = "".join(map(text_table_html, section.tables))
    shown = f'<div class="card prose">{tables}</div>' if tables else ""
    return (
        f'<section aria-labelledby="part-{number}"><h2 id="part-{number}">{escape(section.title)}</h2>'
        f"{plots}{shown}</section>"
    )
