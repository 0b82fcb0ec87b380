"""The folder of a sweep: one small file for each finished cell, and the table made of them."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import polars as pl

from cranny.analysis.sweep.cell import CellOutcome, SweepCell

# Columns of the table before the measures; those of a cell's settings keep their names. A period of 0 is not among
# the settings, so that the keys of cells are those of earlier versions.
AXES = {"trace": pl.String, "cluster": pl.String, "load": pl.Float64, "policy": pl.String, "seed": pl.Int64}
SETTINGS = {
    "order": pl.String,
    "network": pl.String,
    "collective": pl.String,
    "jobs": pl.Int64,
    "price_per_gpu_hour": pl.Float64,
    "period_s": pl.Float64,
    "cranny": pl.String,
}
ENDED = {"key": pl.String, "status": pl.String, "reason": pl.String}


class CellStore:
    """Keeps what finished cells found, so that a sweep can be stopped and resumed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, cell: SweepCell) -> CellOutcome | None:
        """Return what a cell found if it is finished; a damaged file counts as none."""
        try:
            saved = json.loads(self._file(cell).read_bytes())
            return CellOutcome(dict(saved["summary"]))
        except (OSError, KeyError, TypeError, ValueError):
            return None

    def save(self, cell: SweepCell, summary: Mapping[str, float]) -> None:
        """Note what a finished cell found."""
        text = json.dumps({"settings": cell.settings, "summary": summary}, indent=1, allow_nan=False) + "\n"
        _replace(self._file(cell), lambda file: file.write_text(text, encoding="utf-8"))

    def write_table(self, table: pl.DataFrame) -> None:
        """Write the table as Parquet and CSV."""
        _replace(self.folder / "table.parquet", table.write_parquet)
        _replace(self.folder / "table.csv", table.write_csv)

    def _file(self, cell: SweepCell) -> Path:
        return self.folder / "cells" / f"{cell.key}.json"


def _replace(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all, so that a reader never sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        write(draft)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def table(ended: Iterable[tuple[SweepCell, CellOutcome]]) -> pl.DataFrame:
    """Return a row a cell, in the given order: what it was, how it ended, and its measures."""
    rows = [
        {
            **cell.axes,
            **{name: cell.settings.get(name, 0.0) for name in SETTINGS},
            "key": cell.key,
            "status": "done" if outcome.summary is not None else "failed",
            "reason": outcome.reason,
            **(outcome.summary or {}),
        }
        for cell, outcome in ended
    ]
    fixed = {**AXES, **SETTINGS, **ENDED}
    measures = dict.fromkeys(name for row in rows for name in row if name not in fixed)
    kinds = {name: _kind(row.get(name) for row in rows) for name in measures}
    return pl.DataFrame(rows, schema={**fixed, **kinds})


def _kind(values: Iterable[object]) -> type[pl.DataType]:
    """Return the type of a measure: whole numbers stay whole."""
    return pl.Int64 if all(isinstance(value, int | None) for value in values) else pl.Float64
