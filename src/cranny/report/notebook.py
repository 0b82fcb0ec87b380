"""What a notebook shows of results: tables of HTML without a page around them."""

from collections.abc import Sequence

from cranny.report.fitted_table import FittedTable
from cranny.report.headline import finding
from cranny.report.shell import escape
from cranny.report.table import fitted_table
from cranny.report.text_table import TextTable
from cranny.sim.result import Result

REPR_WIDTH = 100  # letters of a line


def plain_text(table: FittedTable) -> str:
    """Write a table as text."""
    return "\n".join("".join(part for part, _ in line).rstrip() for line in table.lines(REPR_WIDTH)).rstrip()


def results_text(results: Sequence[Result]) -> str:
    """Describe results in a few lines."""
    if not results:
        return "no results"
    settings = results[0].settings
    about = f"{settings['trace']} on {results[0].cluster.describe()}, {settings['network']} network"
    return f"{about}\n{plain_text(fitted_table(results))}"


def results_html(results: Sequence[Result]) -> str:
    """Describe results as HTML: a row for each, and what was found."""
    if not results:
        return "<p>no results</p>"
    table = fitted_table(results)
    heads = [column.one_line_head for column in table.columns]
    rows = [
        [(column.cells[run].strip(), "b" if "bold" in column.style(run) else "span") for column in table.columns]
        for run in range(len(results))
    ]
    return f"{_table(heads, rows)}<p>{escape(finding(results))}</p>"


def sheets_html(sheets: Sequence[TextTable]) -> str:
    """Write sheets as HTML, each with its title and note."""
    return "".join(
        f"<h4>{escape(sheet.title)}</h4>"
        f"{_table(sheet.head, [[(cell, 'span') for cell in row] for row in sheet.rows])}"
        f"<p><small>{escape(sheet.note)}</small></p>"
        for sheet in sheets
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    cells = "".join(
        f"<tr>{''.join(_cell(*cell, name=place == 0) for place, cell in enumerate(row))}</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{cells}</tbody></table>"


def _cell(text: str, tag: str, *, name: bool) -> str:
    side = "left" if name else "right"
    shown = f"<{tag}>{escape(text)}</{tag}>"
    return f'<td style="text-align:{side}">{shown}</td>'
