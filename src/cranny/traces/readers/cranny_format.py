"""Readers of our own format, as CSV and as Parquet."""

import csv
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError, at
from cranny.model.profile import ModelProfile
from cranny.model.validate import counted
from cranny.traces.presence import presence_of
from cranny.traces.readers.delimited import first_fields, first_line_not_text, refuse_binary
from cranny.traces.schema import COLUMN_ALIASES, CPU_ONLY, SourceRow, checked, table_row, typed
from cranny.traces.trace import Trace

MAGIC = b"PAR1"  # the first bytes of a Parquet file


def sniff_csv(head: bytes) -> bool:
    """Say whether a file that begins like this is ours: its first line names a column that only we name so."""
    return not {"submit_s", "gpus", "duration_s"}.isdisjoint(first_fields(head, ","))


def read_csv(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
    """Read a CSV file.

    Every column comes in as text and is cast while it streams by, so that the whole text is never held and a
    wrong value is still there to be shown.
    """
    file = str(path)
    refuse_binary(path)
    header = _header(path)
    try:
        scan = pl.scan_csv(path, infer_schema=False, glob=False)
        schema = scan.collect_schema()
        frame = scan.select(typed(schema, file)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise _fault(path, len(header), str(error)) from None
    # Polars fills the missing end of a short row with nulls, so only then can there be one.
    last = header[-1] if header[-1] in frame.columns else COLUMN_ALIASES[header[-1]]
    if frame[last].null_count():
        _refuse_ragged_rows(path, len(header))
    presence = presence_of(frame.filter(CPU_ONLY.broken))
    sound = checked(frame, file, partial(_found, path, header), profiles, strict=strict)
    return Trace(path.stem, *sound, presence=presence)


def _found(path: Path, header: list[str], row: int) -> SourceRow:
    """Read the file again up to this row; the header is record 0."""
    for line, record in islice(_records(path), row + 1, None):
        return SourceRow(f"line {line}", at(path, line), dict(zip(header, record, strict=False)))
    return SourceRow("the last line", str(path), {})


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each record, the header first, with the line on which it begins; a blank line is an empty one."""
    # Bytes that are not UTF-8 are another check's business.
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file)
        line, begun = 1, False
        try:
            for record in reader:
                begun = begun or bool(record)  # blank lines above the header do not count
                if begun:
                    yield line, record
                line = reader.line_num + 1
        except csv.Error as error:
            raise InputError(f"{at(path, line)}: {error}") from None


def _header(path: Path) -> list[str]:
    line, record = next(_records(path), (1, []))
    header = [name.strip() for name in record]
    for name in header:
        if name and header.count(name) > 1:
            raise InputError(f"{at(path, line)}: column {name!r} occurs twice")
    return header


def _refuse_ragged_rows(path: Path, width: int) -> None:
    """Raise if a record has more or fewer fields than the header; a blank line has none and passes."""
    for line, record in _records(path):
        if record and len(record) != width:
            found = counted(len(record), "field")
            raise InputError(f"{at(path, line)}: has {found} where the header has {width}")


def _fault(path: Path, width: int, message: str) -> InputError:
    """Find out by a slow second reading on which line a file is broken."""
    line = first_line_not_text(path)
    if line:
        return InputError(f"{at(path, line)}: not UTF-8 text")
    with path.open("rb") as file:
        odd = next((number for number, text in enumerate(file, start=1) if text.count(b'"') % 2), 0)
    if odd:
        return InputError(f"{at(path, odd)}: a quotation mark is not closed")
    try:
        _refuse_ragged_rows(path, width)
    except InputError as error:
        return error
    return InputError(f"{path}: cannot be read as CSV: {message.splitlines()[0]}")


def sniff_parquet(head: bytes) -> bool:
    """Say whether a file that begins like this is Parquet."""
    return head.startswith(MAGIC)


def read_parquet(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
    """Read a Parquet file."""
    file = str(path)
    with path.open("rb") as head:
        if not sniff_parquet(head.read(len(MAGIC))):
            raise InputError(f"{file}: not a Parquet file")
    try:
        scan = pl.scan_parquet(path, glob=False)
        schema = scan.collect_schema()
        frame = scan.select(typed(schema, file)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{file}: broken or truncated Parquet file: {str(error).splitlines()[0]}") from None
    presence = presence_of(frame.filter(CPU_ONLY.broken))
    sound = checked(frame, file, partial(table_row, file, scan), profiles, strict=strict)
    return Trace(path.stem, *sound, presence=presence)
