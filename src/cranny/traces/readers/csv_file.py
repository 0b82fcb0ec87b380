"""What CSV files say line by line: their records, their header, and on which line one is broken."""

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from cranny.model.errors import InputError, at
from cranny.model.validate import counted
from cranny.traces.readers.delimited import first_line_not_text
from cranny.traces.schema import SourceRow


def csv_row(path: Path, header: list[str], row: int) -> SourceRow:
    """Read the file again up to this row; the header is record 0."""
    for line, record in islice(records(path), row + 1, None):
        return SourceRow(f"line {line}", at(path, line), dict(zip(header, record, strict=False)))
    return SourceRow("the last line", str(path), {})


def records(path: Path) -> Iterator[tuple[int, list[str]]]:
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


def csv_header(path: Path) -> list[str]:
    """Return the names of the columns."""
    line, record = next(records(path), (1, []))
    header = [name.strip() for name in record]
    for name in header:
        if name and header.count(name) > 1:
            raise InputError(f"{at(path, line)}: column {name!r} occurs twice")
    return header


def refuse_ragged_rows(path: Path, width: int) -> None:
    """Raise if a record has more or fewer fields than the header; a blank line has none and passes."""
    for line, record in records(path):
        if record and len(record) != width:
            found = counted(len(record), "field")
            raise InputError(f"{at(path, line)}: has {found} where the header has {width}")


def csv_fault(path: Path, width: int, message: str) -> InputError:
    """Find out by a slow second reading on which line a file is broken."""
    line = first_line_not_text(path)
    if line:
        return InputError(f"{at(path, line)}: not UTF-8 text")
    with path.open("rb") as file:
        odd = next((number for number, text in enumerate(file, start=1) if text.count(b'"') % 2), 0)
    if odd:
        return InputError(f"{at(path, odd)}: a quotation mark is not closed")
    try:
        refuse_ragged_rows(path, width)
    except InputError as error:
        return error
    return InputError(f"{path}: cannot be read as CSV: {message.splitlines()[0]}")
