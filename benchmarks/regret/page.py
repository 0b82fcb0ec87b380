"""The tables of `docs/understand/regret.md`, filled in by a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.regret.tables import markdown
from cranny.model.errors import InputError
from cranny.report.text_table import TextTable


def fill(path: Path, parts: Mapping[str, Sequence[str]]) -> None:
    """Put paragraphs between the marks of each part of a page."""
    text = path.read_text(encoding="utf-8")
    for name, paragraphs in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise InputError(f"{path}: no {begin} ... {end} to fill in")
        text = f"{before}{begin}\n\n" + "\n".join(paragraphs) + f"\n{end}{after}"
    path.write_text(text, encoding="utf-8")


def paragraphs(sheets: Sequence[TextTable]) -> list[str]:
    """Return tables as paragraphs of a page; one without rows is left out."""
    return [markdown(sheet) for sheet in sheets if sheet.rows]
