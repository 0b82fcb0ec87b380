"""Where commands print: tables and text on standard output, progress on standard error."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


class Tick(Protocol):
    """Says how far work is, and what to show beside the bar if that has changed."""

    def __call__(self, done: int, what: str | None = None) -> None:
        """Move the bar."""


def say(*lines: str) -> None:
    """Print lines as they are: not wrapped, and without markup."""
    for line in lines:
        out.print(line, soft_wrap=True, markup=False)


def warn(text: str) -> None:
    """Print a message to the user on standard error."""
    err.print(f"cranny: {text}", soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print one JSON value."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, allow_nan=False) + "\n")


@contextmanager
def progress(what: str, total: int) -> Iterator[Tick]:
    """Show a bar while work goes on, on a terminal; yield a function that says how far it is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, what=None: bar.update(task, completed=done, description=what)
