"""A small table of text with a title, which a terminal and a page show alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from cranny.report.fitted_table import FittedColumn, FittedTable
from cranny.report.shell import escape, html_table, unbroken


@dataclass(frozen=True, slots=True)
class TextTable:
    """The first cells of each row are words, its name, the others values; the note says how to read them."""

    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1  # columns that hold words


def text_table_html(sheet: TextTable) -> str:
    """Return a sheet for the page."""
    rows = [[escape(cell) for cell in row] for row in sheet.rows]
    head = [unbroken(cell) for cell in sheet.head]
    note = f'<p class="for">{escape(sheet.note)}</p>' if sheet.note else ""
    return f"<div><h3>{escape(sheet.title)}</h3>{note}{html_table(head, rows, kind=figures_kind(sheet))}</div>"


def figures_kind(sheet: TextTable) -> str:
    """Return the classes by which a page knows the columns that hold words."""
    return "plain figures" if sheet.words == 1 else f"plain figures words-{sheet.words}"


def terminal_table(sheet: TextTable) -> FittedTable:
    """Return a sheet for a terminal of any width: title, table and note below each other."""
    columns = [
        FittedColumn(head, cells, words=place < sheet.words)
        for place, (head, *cells) in enumerate(zip(sheet.head, *sheet.rows, strict=True))
    ]
    return FittedTable(columns, sheet.words, sheet.title, f"{sheet.note}\n")
