"""Where commands print: tables and text on standard output, progress on standard error."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(*lines: str, style: str | None = None) -> None:
    """Print lines as they are: not wrapped, and without markup."""
    for line in lines:
        out.print(line, style=style, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """Print a message to the user on standard error."""
    err.print(f"cranny: {text}", soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print one JSON value."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, allow_nan=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> None:
    """Print rows under their names, or without if there are none; `numbers` are in all columns but the first."""
    table = Table(*columns, box=None, header_style="bold", show_header=bool(columns))
    for column in table.columns[1:] if numbers else ():
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    out.print(table)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a bar while work goes on, on a terminal.

    Yield a function that gets how much is done, and what to show beside the bar if that has changed.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, what=None: bar.update(task, completed=done, description=what)
