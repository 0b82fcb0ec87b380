"""What became of the claims of several papers: a table, and a page with links to the page of each."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cranny.report.shell import escape, html_page, html_table, write_file
from cranny.report.text_table import TextTable
from cranny.repro.claim import TESTED
from cranny.repro.page import Reproduction


def index_table(found: Sequence[Reproduction]) -> TextTable:
    """Count the verdicts of each paper."""
    rows = []
    for each in found:
        counts = Counter[str](claim.holds for claim in each.judged)
        rows.append([each.of.paper, *(str(counts[verdict]) for verdict in TESTED)])
    return TextTable("Claims of the papers", "", ("", *TESTED), rows)


def write_index(found: Sequence[Reproduction], folder: Path) -> Path:
    """Write the page of reproductions that are in folders of their papers' names below this one."""
    table = index_table(found)
    links = [f'<a href="{each.of.name}/{each.of.name}.html">{escape(each.of.paper)}</a>' for each in found]
    rows = [
        [link, *row[1:], escape(each.finding)] for link, row, each in zip(links, table.rows, found, strict=True)
    ]
    main = html_table([*table.head, "in a sentence"], rows)
    lead = "Which claims of the papers hold when their evaluations are rebuilt on one core."
    return write_file(
        html_page("Evaluations, rebuilt", lead, f'<section><div class="card prose">{main}</div></section>'),
        folder / "index.html",
    )
