"""Reading of logs that are one JSON document."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from cranny.model.errors import InputError, at
from cranny.model.profile import ModelProfile
from cranny.traces.readers.log_mapping import LogMapping, as_trace, life
from cranny.traces.schema import LOGGED, SCHEMA, RowRule, SourceRow
from cranny.traces.trace import Trace

MOST_BYTES = 4 * 2**30
_SPACE = re.compile(r"[ \t\r\n]*")
NO_JOB = RowRule("job_id", "not a job, or one without an id", pl.col("job_id").is_null(), of_value=False)


def load(path: Path) -> object:
    """Read a whole document."""
    with _as_input_errors(path):
        return json.loads(_read(path))


def load_all(path: Path) -> list[object]:
    """Read the documents of a file that has one after the other."""
    found: list[object] = []
    with _as_input_errors(path):
        content, decoder = _read(path), json.JSONDecoder()
        at_character = _SPACE.match(content).end()  # type: ignore[union-attr]  # it matches nothing as well
        while at_character < len(content):
            document, end = decoder.raw_decode(content, at_character)
            found.append(document)
            at_character = _SPACE.match(content, end).end()  # type: ignore[union-attr]
    return found


def _read(path: Path) -> str:
    size = path.stat().st_size
    if size > MOST_BYTES:
        most = f"{MOST_BYTES / 2**30:g} GiB"
        raise InputError(
            f"{path}: {size / 2**30:.1f} GiB of JSON; at most {most} is read at once, so split the file"
        )
    return path.read_bytes().decode("utf-8-sig")


@contextmanager
def _as_input_errors(path: Path) -> Iterator[None]:
    """Say what is wrong with a file that is no JSON."""
    try:
        yield
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deep") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{at(path, error.lineno)}: not JSON: {error.msg}") from None
    except InputError:
        raise
    except ValueError as error:  # a whole number of thousands of digits
        raise InputError(f"{path}: not JSON that can be read: {error}") from None


def rows_trace(
    path: Path,
    rows: Sequence[Mapping[str, object]],
    called: Mapping[str, str],
    profiles: Mapping[str, ModelProfile],
    *,
    strict: bool,
    zone: str,
    notes: Sequence[str],
    rules: Sequence[RowRule] = life(),
    read_in: str | None = None,
) -> Trace:
    """Make a trace of rows with our columns, which the document calls otherwise; it names rows by their place."""
    asked_for = {name for rule in rules for name in rule.broken.meta.root_names()}
    there = {name for row in rows for name in row} | asked_for | {"job_id", "submit_s", "start_s", "end_s", "gpus"}
    # Numbers are floats; a column that no row has is dropped.
    schema = {
        name: pl.String() if dtype == pl.String() else pl.Float64()
        for name, dtype in {**SCHEMA, **LOGGED}.items()
        if name in there
    }
    frame = pl.DataFrame({name: [row.get(name) for row in rows] for name in schema}, schema=schema)

    def find(row: int) -> SourceRow:
        """Return a row."""
        name = rows[row].get("job_id")
        line = f"job {row + 1}" + (f" ({name})" if name else "")
        values = {called.get(name, name): value for name, value in rows[row].items()}
        return SourceRow(line, f"{path}: {line}", values, called)

    log = LogMapping({}, rules=(NO_JOB, *rules), zone=zone, notes=notes, read_in=read_in)
    return as_trace(path, frame, log, find, profiles, strict=strict)


def text(value: object) -> str | None:
    """Take a word, or nothing; half a character, which JSON allows, becomes a question mark."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    word = str(value).strip() if not isinstance(value, int) or abs(value) < 1e100 else "?"
    return word.encode("utf-8", "replace").decode("utf-8") or None


def number(value: object) -> float | None:
    """Take a number, also one in quotation marks; NaN if it is none."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def mapping(value: object) -> dict[str, Any]:
    """Take an object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """Take the objects of a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
