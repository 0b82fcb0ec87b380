"""A reproduction as values, and what is written of it: JSON, CSV, plots, and a page that loads nothing else."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import polars as pl

from cranny.report.shell import escape, html_page, write_file
from cranny.report.text_table import TextTable, text_table_html
from cranny.repro.claim import TESTED, Claim, sum_up
from cranny.repro.paper_file import Paper
from cranny.version import VERSION

STYLE = """
.claims { display: grid; gap: 14px; margin-top: 12px; }
.claims article { padding: 14px 18px; }
.claims h3 { margin: 0 0 4px; }
.claims p { max-width: 78em; }
.tag { float: right; margin-left: 16px; padding: 1px 10px; border: 1px solid; border-radius: 99px; }
.tag { color: var(--soft); font-size: 13px; }
.tag.good { color: #008a60; } .tag.part { color: #b07800; } .tag.bad { color: #c8392f; }
figure.card { margin-bottom: 16px; padding: 14px 16px; }
/* narrower than this their letters cannot be read: small screens scroll sideways within the card */
figure img { display: block; width: 100%; min-width: 760px; max-width: 980px; height: auto; background: #fff; }
@media (prefers-color-scheme: dark) {
  .tag.good { color: #27b88c; } .tag.part { color: #f0b93a; } .tag.bad { color: #ff7f6b; }
  /* white becomes the colour of the card, and colours keep their hue */
  figure img { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; }
}
.facts { margin: 0; padding-left: 20px; } .facts li { max-width: 78em; }
"""

MAIN = """<section aria-labelledby="claims"><h2 id="claims">What holds and what does not</h2>
<div class="claims">$claims</div></section>
$sections
<section aria-labelledby="facts"><h2 id="facts">How this was done</h2>
<div class="card prose"><ul class="facts">$facts</ul></div></section>
"""

Plot = Callable[[Path], Path]  # draws to a path without suffix and returns the SVG
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
        return {
            "paper": self.of.paper,
            "version": VERSION,
            "how": list(self.facts),
            "claims": claims,
            **self.values,
        }

    def write(self, folder: Path) -> Path:
        """Write all files; return the page."""
        folder.mkdir(parents=True, exist_ok=True)
        values = json.dumps(self.as_json(), indent=1) + "\n"
        (folder / f"{self.of.name}.json").write_text(values, encoding="utf-8")
        for stem, rows in (each for section in self.sections for each in section.rows.items()):
            frame = pl.DataFrame(list(rows), infer_schema_length=None)
            lists = pl.selectors.list()  # CSV has none
            frame.with_columns(lists.cast(pl.List(pl.String)).list.join(" ")).write_csv(folder / f"{stem}.csv")
        main = Template(MAIN).substitute(
            claims="".join(map(_claim, self.claims)),
            sections="".join(_section(number, each, folder) for number, each in enumerate(self.sections)),
            facts="".join(f"<li>{escape(fact)}</li>" for fact in self.facts),
        )
        lead = sum_up(self.of.paper.split(", ")[-1], self.claims)
        shell = html_page(self.of.title, lead, main, style=STYLE, allowed="img-src data:")
        return write_file(shell, folder / f"{self.of.name}.html")


def _claim(claim: Claim) -> str:
    return (
        f'<article class="card"><span class="tag {TESTED.get(claim.holds, "other")}">{escape(claim.holds)}</span>'
        f"<h3>{escape(claim.title)}</h3><p>{escape(claim.text)}</p></article>"
    )


def _section(number: int, section: Section, folder: Path) -> str:
    plots = "".join(_image(plot(folder / stem)) for stem, plot in section.plots.items())
    tables = "".join(map(text_table_html, section.tables))
    shown = f'<div class="card prose">{tables}</div>' if tables else ""
    return (
        f'<section aria-labelledby="part-{number}"><h2 id="part-{number}">{escape(section.title)}</h2>'
        f"{plots}{shown}</section>"
    )


def _image(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    image = f'<img alt="{escape(path.stem)}" src="data:image/svg+xml;base64,{data}">'
    return f'<figure class="card"><div class="scroll">{image}</div></figure>'
