"""Where commands print: tables and text on standard output, progress on standard error."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cranny.report.fitted_table import FittedColumn, FittedTable

PIPED_WIDTH = 1000  # letters of a line where no terminal limits them

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
# Control characters, and those that change the direction of text.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def _width() -> int | None:
    """Return how wide tables and text may be if they do not go to a terminal, and the user says nothing else."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH


out = Console(highlight=False, width=_width())
err = Console(stderr=True, highlight=False)


def printable(text: str) -> str:
    """Return text in which nothing can command a terminal: colours are removed, other control characters shown.

    Tabs, ends of lines and the carriage returns of progress bars stay.
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), _COLOURS.sub("", text))


class PrintableFormatter(logging.Formatter):
    """Formats log messages, which may quote requests and jobs, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a message."""
        return printable(super().format(record))


def say(*lines: str, style: str | None = None) -> None:
    """Print lines as they are: not wrapped, and without markup."""
    for line in lines:
        out.print(printable(line), style=style, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """Print a message to the user on standard error."""
    err.print(f"cranny: {printable(text)}", soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print one JSON value."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, allow_nan=False) + "\n")
    sys.stdout.flush()  # `cranny serve --json` goes on, and a program waits for what it says


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[str] = (),
    words: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print rows under the names of their columns.

    Columns of `numbers` stand at the right, those of `words` may be broken, and those that are `spare` are left
    out where they do not fit, the last first.
    """
    cells = list(zip(*rows, strict=True)) or [()] * len(columns)
    made = [
        FittedColumn(
            name,
            list(below),
            words=name in words,
            right=name in numbers,
            spare=spare.index(name) + 1 if name in spare else 0,
        )
        for name, below in zip(columns, cells, strict=True)
    ]
    out.print(FittedTable(made, gap=2))


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a bar while work goes on, on a terminal.

    Yield a function that gets how much is done, and what to show beside the bar if that has changed.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, what=None: bar.update(task, completed=done, description=what)
