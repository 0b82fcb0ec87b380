"""The files beside a page: values for other programs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows with the same names as CSV."""
    pl.DataFrame(list(rows), infer_schema_length=None).write_csv(path)


def write_json(told: Mapping[str, Any], path: Path) -> None:
    """Write plain values as JSON."""
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
