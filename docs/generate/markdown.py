"""Small pieces of Markdown."""

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a cell that holds a bar or a line break stays one cell."""
    cells = [[re.sub(r"\s*\n\s*", " ", cell).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(header), ["---"] * len(header), *cells]) + "\n"


def code(text: str) -> str:
    """Return text as code, or nothing for nothing."""
    return f"`{text}`" if text else ""


def fence(language: str, text: str) -> str:
    """Return a block of code, with a fence that the code does not contain."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}\n"
