"""Find the trace files in a folder, by what is in them."""

import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError
from cranny.traces.read import find_format
from cranny.traces.readers.delimited import HEAD_BYTES, first_fields
from cranny.traces.schema import REQUIRED

DEPTH = 4
ENOUGH = 2  # of the columns that every trace has


def trace_files(folder: Path, depth: int = DEPTH) -> Iterator[tuple[Path, str]]:
    """Yield each file below a folder that looks like a trace, with its format, in order of names.

    Links are not followed, and neither files nor folders whose name begins with a dot are searched.
    """
    for place, folders, files in os.walk(folder):
        inside = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and inside < depth)
        for name in sorted(files):
            path = Path(place, name)
            if name.startswith(".") or path.is_symlink() or not path.is_file():
                continue
            found = _format(path)
            if found is not None:
                yield path, found


def _format(path: Path) -> str | None:
    """Return the format of a file that looks like a trace, or None.

    Our own formats take any table, so there the names of its columns must look like a trace's as well.
    """
    try:
        found = find_format(path)
    except InputError:  # empty, or not ours to read
        return None
    if found == "cranny-csv":
        with path.open("rb") as file:
            columns = set(first_fields(file.read(HEAD_BYTES), ","))
    elif found == "cranny-parquet":
        try:
            columns = set(pl.read_parquet_schema(path))
        except (pl.exceptions.PolarsError, OSError):
            return found  # reading it reports what is broken
    else:
        return found
    return found if len(columns & set(REQUIRED)) >= ENOUGH else None
