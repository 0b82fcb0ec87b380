"""A small table of text with a title, which a terminal and a page show alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cranny.report.shell import escape, html_table

if TYPE_CHECKING:
    from rich.console import Group


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
    head = [escape(cell) for cell in sheet.head]
    note = f'<p class="for">{escape(sheet.note)}</p>' if sheet.note else ""
    kind = "plain figures" if sheet.words == 1 else "plain figures worded"
    return f"<div><h3>{escape(sheet.title)}</h3>{note}{html_table(head, rows, kind=kind)}</div>"


def terminal_table(sheet: TextTable) -> "Group":
    """Return a sheet for a terminal: title, table and note below each other."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, show_edge=False, header_style="bold", padding=0)
    for place, (head, *cells) in enumerate(zip(sheet.head, *sheet.rows, strict=True)):
        # Heads and names may break between words; values may not.
        in_words = place < sheet.words
        parts = [word for cell in cells for word in cell.split()] if in_words else cells
        width = max(map(len, [*head.split(), *parts]), default=0)
        made.add_column(Text(head), justify="left" if in_words else "right", vertical="bottom", min_width=width)
    for row in sheet.rows:
        made.add_row(*(Text(cell) for cell in row))
    return Group(Text(sheet.title, style="bold"), made, Text(f"{sheet.note}\n", style="dim"))
