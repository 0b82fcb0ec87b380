"""A reproduction as values, and what is written of it: JSON, CSV, plots, and a page that loads nothing else."""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from cranny.report.shell import escape, html_page, html_table, write_file
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable, text_table_html
from cranny.repro.claim import TESTED, Claim, OpenChoice, Reading, Stated, sum_up
from cranny.repro.number_format import plain, spread
from cranny.repro.paper_file import Paper
from cranny.repro.plots import Figure, draw_readings, save
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
    left_open: Sequence[OpenChoice] = ()
    quick: str = ""  # how many jobs and seeds a run had that is too short for verdicts

    @property
    def judged(self) -> Sequence[Claim]:
        """The claims; without verdicts if this was a quick run."""
        return [each.without_verdict() for each in self.claims] if self.quick else self.claims

    @property
    def finding(self) -> str:
        """Sum the claims up in one sentence."""
        if self.quick:
            return f"A quick run ({self.quick}) shows what is measured; it is too short for verdicts."
        return sum_up(self.of.paper.split(", ")[-1], self.claims)

    @property
    def shown(self) -> Sequence[TextTable]:
        """The tables that a terminal shows."""
        every = [sheet for section in self.sections for sheet in section.tables]
        return [*(every if self.brief is None else self.brief), *self._left_open()]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        claims = [{**asdict(claim), "verdict": claim.verdict} for claim in self.judged]
        head = {"paper": self.of.paper, "version": VERSION, "how": self.facts, "quick": self.quick}
        everything = {**head, "claims": claims, "left_open": self.left_open, **self.values}
        plain_values: dict[str, Any] = TypeAdapter(dict[str, Any]).dump_python(everything, mode="json")
        return plain_values

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
            claims="".join(_claim(claim, folder / f"claim-{at:02}") for at, claim in enumerate(self.judged, 1)),
            left_open=_choices(self._left_open()),
            sections="".join(_section(number, each, folder) for number, each in enumerate(self.sections)),
            facts="".join(f"<li>{_prose(fact)}</li>" for fact in self.facts),
        )
        style = _file("claims.css")
        shell = html_page(self.of.title, self.finding, main, style=style, allowed="img-src data:")
        return write_file(shell, folder / f"{self.of.name}.html")

    def _left_open(self) -> list[TextTable]:
        """Return a table for each thing that the paper leaves open: what comes out, a column a reading."""
        tables = []
        for choice in self.left_open:
            labels = dict.fromkeys(label for each in choice.readings for label in each.ours)
            rows = [[label, *(_ours(each, label) for each in choice.readings)] for label in labels]
            if not self.quick and any(each.holds in TESTED for each in choice.readings):
                rows.append(["verdict", *(each.verdict for each in choice.readings)])
            head = ["", *(each.name for each in choice.readings)]
            tables.append(TextTable(f"Left open: {choice.question}", "", head, rows))
        return tables


def _claim(claim: Claim, stem: Path) -> str:
    """Return a claim as a card: verdict, picture, at most two sentences, and its numbers in a table."""
    picture = _picture(draw_readings(claim), stem) if claim.readings else ""
    several = [each for each in claim.readings if each.holds in TESTED and len(claim.readings) > 1]
    readings = "".join(f"<li>{_tag(each.holds, each.verdict)} {escape(each.name)}</li>" for each in several)
    rule = f"Judged by a rule that was made after results were seen: {claim.rule_made_after}"
    words = "".join(
        [
            f'<p class="stated">The paper: {_prose(claim.stated)}.</p>' if claim.stated else "",
            f"<p>{_prose(claim.text)}</p>" if claim.text else "",
            f'<ul class="readings">{readings}</ul>' if readings else "",
            f'<p class="rule">{_prose(rule)}</p>' if claim.rule_made_after else "",
            f"<details><summary>Numbers</summary>{_numbers(claim)}</details>" if claim.readings else "",
        ]
    )
    verdict = claim.holds if several else claim.verdict
    head = f"{_tag(claim.holds, verdict)}<h3>{escape(claim.title)}</h3>"
    return _card(f'{head}<div class="claim">{picture}<div class="words">{words}</div></div>', "article")


def _prose(text: str) -> str:
    """Return sentences for the page, with what is between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _tag(holds: str, words: str) -> str:
    return f'<span class="tag {TESTED.get(holds, "other")}">{escape(words)}</span>'


def _numbers(claim: Claim) -> str:
    """Return the table of a claim: the paper's values, and ours under each reading."""

    def stated(value: Stated | None) -> str:
        return " to ".join(map(plain, value)) if isinstance(value, tuple) else plain(value)

    head = [claim.unit, "paper", *(each.name for each in claim.readings)]
    rows = [
        [label, stated(claim.paper.get(label)), *(_ours(each, label) for each in claim.readings)]
        for label in claim.labels
    ]
    return html_table(list(map(escape, head)), [list(map(escape, row)) for row in rows], kind="plain figures")


def _ours(reading: Reading, label: str) -> str:
    return spread(reading.ours[label]) if label in reading.ours else MISSING


def _choices(tables: Sequence[TextTable]) -> str:
    """Return what the paper leaves open as a section, if any of it was run."""
    shown = _card("".join(map(text_table_html, tables)), kind="card prose choices")
    return Template(_file("choices.html")).substitute(tables=shown) if tables else ""


def _card(content: str, element: str = "div", kind: str = "card") -> str:
    return f'<{element} class="{kind}">{content}</{element}>'


def _picture(figure: Figure, stem: Path) -> str:
    """Save a figure, and return it for the page."""
    data = base64.b64encode(save(figure, stem).read_bytes()).decode("ascii")
    image = f'<img alt="{escape(stem.name)}" src="data:image/svg+xml;base64,{data}">'
    return _card(f'<div class="scroll">{image}</div>', "figure")


def _section(number: int, section: Section, folder: Path) -> str:
    plots = "".join(_picture(plot(), folder / stem) for stem, plot in section.plots.items())
    tables = "".join(map(text_table_html, section.tables))
    shown = _card(tables, kind="card prose") if tables else ""
    return (
        f'<section aria-labelledby="part-{number}"><h2 id="part-{number}">{escape(section.title)}</h2>'
        f"{plots}{shown}</section>"
    )
