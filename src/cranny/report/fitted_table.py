"""A table for a terminal of any width that never cuts a word or a number.

Where the columns do not fit, their heads and the cells that hold words are broken between words. Where that is not
enough, columns that may be dropped are dropped and named below the table; then rows become columns, if there are
few; then columns follow below others; and at last every value has a line of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

MOST_TURNED = 8  # rows that may become columns
LEAST_WORDS = 16  # letters that a column of words has at least, if it has such long cells
RULE, PLAIN_RULE = "─", "-"
Span = tuple[str, str]  # letters, and their style
Line = list[Span]


@dataclass(frozen=True, slots=True)
class FittedColumn:
    """A column: words that may be broken between them, or values that stay whole."""

    head: str
    cells: Sequence[str]
    words: bool = False
    right: bool = True  # where values stand
    spare: int = 0  # columns that may be dropped are dropped in this order, the greatest first; 0 never
    styles: Sequence[str] = ()  # of the cells, if they have any
    least: int = 0  # letters, so that columns of several tables stand below each other
    name: str = ""  # the head on one line, if that reads otherwise

    @property
    def one_line_head(self) -> str:
        """The head, on one line."""
        return self.name or " ".join(self.head.split())

    def style(self, row: int) -> str:
        """Return the style of a cell."""
        return self.styles[row] if self.styles else ""

    @property
    def narrow(self) -> int:
        """The least width that breaks no word and no value."""
        cells = [word for cell in self.cells for word in cell.split()] if self.words else self.cells
        width = max(map(len, [*self.head.split(), *cells]), default=0)
        if self.words:
            width = max(width, min(LEAST_WORDS, max(map(len, self.cells), default=0)))
        return max(width, self.least)

    @property
    def wide(self) -> int:
        """The width at which nothing is broken but the head, at its line ends."""
        return max(self.narrow, *map(len, self.cells), *map(len, self.head.split("\n")))


@dataclass(frozen=True)
class FittedTable:
    """Columns, of which the first ones name the rows, with a title above and a note below."""

    columns: Sequence[FittedColumn]
    names: int = 1
    title: str = ""
    note: str = ""
    heads: bool = True  # shown above columns that stand side by side
    gap: int = 1  # blanks between columns
    below: Sequence[Span] = field(default=())  # lines below the table

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Text]":
        """Yield what Rich prints on a terminal."""
        from rich.text import Text

        for line in self.lines(options.max_width, rule=PLAIN_RULE if options.ascii_only else RULE):
            yield Text.assemble(*line, no_wrap=True, overflow="ignore")

    def lines(self, width: int, *, rule: str = RULE) -> Iterator[Line]:
        """Yield the lines of the table for a terminal so many letters wide."""
        if self.title:
            yield from _words([(self.title, "bold")], width)
        shown, left_out = self._without_spare(width)
        if shown.rows and self.columns:
            yield from shown.arranged(width, rule)
        elif self.columns and self.heads:
            yield from _side_by_side(self.columns, [column.narrow for column in self.columns], self.gap, rule)
        if left_out:
            names = ", ".join(column.one_line_head for column in left_out)
            text = f"dropped for lack of space: {names} (wider terminal, `| less -S`, or --json shows them)"
            yield from _words([(text, "dim")], width)
        yield from _words([*self.below, *([(self.note, "dim")] if self.note else [])], width)

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.columns[0].cells) if self.columns else 0

    def least_width(self) -> int:
        """Return the letters of a line with all columns side by side, as narrow as they may be."""
        return sum(column.narrow for column in self.columns) + self.gap * (len(self.columns) - 1)

    def _without_spare(self, width: int) -> "tuple[FittedTable, list[FittedColumn]]":
        """Leave out columns until the others fit, and return those too; none if that does not help."""
        shown, left_out = self, list[FittedColumn]()
        while shown.least_width() > width and any(column.spare for column in shown.columns):
            last = max(shown.columns, key=lambda column: column.spare)
            left_out.insert(0, last)
            shown = replace(shown, columns=[column for column in shown.columns if column is not last])
        return (shown, left_out) if shown.least_width() <= width else (self, [])

    def arranged(self, width: int, rule: str) -> Iterator[Line]:
        """Yield the lines of the first arrangement that fits; the last one always does."""
        turned = self._turned() if self.rows <= MOST_TURNED else None
        parts = self._parts(width)
        if self.least_width() <= width:
            yield from _side_by_side(self.columns, self.widths(width), self.gap, rule if self.heads else "")
        elif turned is not None and turned.least_width() <= width:
            yield from _side_by_side(turned.columns, turned.widths(width), self.gap, rule)
        elif parts:
            for number, part in enumerate(parts):
                if number:
                    yield []
                yield from _side_by_side(part.columns, part.widths(width), self.gap, rule)
        else:
            yield from self._records(width)

    def widths(self, width: int) -> list[int]:
        """Share the letters that are left among the columns, so that as little as possible is broken."""
        widths = [column.narrow for column in self.columns]
        left = width - self.least_width()
        wants = [column.wide for column in self.columns]
        while left > 0 and any(has < want for has, want in zip(widths, wants, strict=True)):
            for place, want in enumerate(wants):
                if widths[place] < want and left > 0:
                    widths[place] += 1
                    left -= 1
        return widths

    def _turned(self) -> "FittedTable":
        """Return the table with rows as columns."""
        named, values = self.columns[: self.names], self.columns[self.names :]
        heads = [column.one_line_head for column in values]
        own = " ".join(part for column in named for part in column.head.split())
        columns = [FittedColumn(own, heads, words=True)]
        for row in range(self.rows):
            name = " ".join(column.cells[row] for column in named if column.cells[row])
            styles = [column.style(row) for column in values]
            cells = [column.cells[row] for column in values]
            columns.append(FittedColumn(name, cells, styles=styles, words=any(column.words for column in values)))
        return replace(self, columns=columns, names=1)

    def _parts(self, width: int) -> "list[FittedTable]":
        """Return tables with some of the columns each, all with the names of the rows; none if that is no help."""
        named, values = list(self.columns[: self.names]), self.columns[self.names :]
        parts: list[list[FittedColumn]] = []
        for column in values:
            if not parts or replace(self, columns=[*parts[-1], column]).least_width() > width:
                parts.append([*named])
            parts[-1].append(column)
        made = [replace(self, columns=part) for part in parts]
        return made if all(part.least_width() <= width for part in made) else []

    def _records(self, width: int) -> Iterator[Line]:
        """Yield every value on a line of its own, below the name of its row."""
        named, values = self.columns[: self.names], self.columns[self.names :]
        for row in range(self.rows):
            name = " ".join(column.cells[row] for column in named if column.cells[row])
            yield from _words([(name, "bold")], width)
            for column in values:
                text = f"{column.one_line_head}: {column.cells[row]}".strip()
                for place, part in enumerate(_broken(text, max(1, width - 2))):
                    yield [("  " if place == 0 else "    ", ""), (part, column.style(row))]


def _side_by_side(columns: Sequence[FittedColumn], widths: Sequence[int], gap: int, rule: str) -> Iterator[Line]:
    """Yield the lines of columns beside each other; with their heads, if they are to be ruled off."""
    if rule:
        heads = [_broken(column.head, width) for column, width in zip(columns, widths, strict=True)]
        depth = max(map(len, heads), default=0)
        for level in range(depth):
            cells = [head[level - depth + len(head)] if level >= depth - len(head) else "" for head in heads]
            yield _line(columns, widths, gap, cells, ["bold"] * len(columns))
        yield [(rule * (sum(widths) + gap * (len(widths) - 1)), "")]
    for row in range(len(columns[0].cells)):
        parts = [
            _broken(column.cells[row], width) if column.words else [column.cells[row]]
            for column, width in zip(columns, widths, strict=True)
        ]
        styles = [column.style(row) for column in columns]
        for level in range(max(map(len, parts), default=0)):
            yield _line(columns, widths, gap, [part[level] if level < len(part) else "" for part in parts], styles)


def _line(
    columns: Sequence[FittedColumn], widths: Sequence[int], gap: int, cells: Sequence[str], styles: Sequence[str]
) -> Line:
    """Return one line of cells, each at its side of its column."""
    line: Line = []
    for place, (column, width, cell) in enumerate(zip(columns, widths, cells, strict=True)):
        blanks = " " * max(0, width - len(cell))
        line.append((" " * gap if place else "", ""))
        line += (
            [(blanks, ""), (cell, styles[place])] if _at_right(column) else [(cell, styles[place]), (blanks, "")]
        )
    while line and not line[-1][0].strip():
        line.pop()
    return line


def _at_right(column: FittedColumn) -> bool:
    return column.right and not column.words


def _broken(text: str, width: int) -> list[str]:
    """Break text between words; a word that is wider stays whole."""
    return [
        part
        for line in text.split("\n")
        for part in (wrap(line, max(1, width), break_long_words=False, break_on_hyphens=False) or [""])
    ]


def _words(spans: Sequence[Span], width: int) -> Iterator[Line]:
    """Yield sentences, broken between words."""
    for text, style in spans:
        for part in _broken(text, width):
            yield [(part, style)]
