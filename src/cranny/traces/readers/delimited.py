"""Reading of logs with one row a line, such as the CSV files of published traces.

Lines are read as they are and split in a stream, so that the text is never held whole. A line with too few or
too many fields is one bad row, not the end of the file.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError, at
from cranny.model.profile import ModelProfile
from cranny.traces.readers.log_mapping import LogMapping, as_trace
from cranny.traces.schema import BLANK, RowRule, SourceRow, missing
from cranny.traces.trace import Trace

HEAD_BYTES = 65_536
HEADER_WITHIN = 20  # lines that are not blank
ROW = "(row)"  # the number of a row, from 0, for logs that have no ids
_LINE = "(line)"
_RAGGED = "(ragged)"
_FIELDS = "(fields)"
_PADDING = ' \t\r"\ufeff'  # quotation marks, and the byte order mark that may begin a file, are none of ours


@dataclass(frozen=True, slots=True)
class DelimitedFormat:
    """One kind of text table."""

    log: LogMapping | Callable[[Sequence[str], Mapping[str, ModelProfile], str], LogMapping]  # or what makes one
    needs: Sequence[str] = ()  # columns that tell a file of this kind, and must be there
    separator: str = ","
    names: Sequence[str] = ()  # of a table without a header line; one that has it all the same is fine
    rest: bool = False  # whether separators after the last name are part of its value
    needs_one: Sequence[str] = ()  # columns of which the header line has one: other lines may stand before it
    spelled: Callable[[str], str] = str  # gives a column of the file the name that `log` knows
    free_text: Sequence[str] = ()  # columns that are not used, and in which separators may stand

    def sniff(self, head: bytes) -> bool:
        """Say whether a file begins with a header line that has the columns needed."""
        return set(self.needs).issubset(first_fields(head, self.separator))

    def read(self, path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
        """Read a file of this kind."""
        refuse_binary(path)
        names, skip = self._header(path)
        missing(str(path), self.needs, names)
        log = self.log if isinstance(self.log, LogMapping) else self.log(names, profiles, str(path))
        line, fields = pl.col(_LINE), pl.col(_FIELDS)
        lines = pl.scan_lines(path, name=_LINE, row_index_name=ROW, glob=False).slice(skip)
        lines = lines.with_columns(self._without_free_text(line, names))
        parts = line.str.splitn if self.rest else line.str.split_exact
        split = lines.with_columns(parts(self.separator, len(names) - (not self.rest)).alias(_FIELDS))
        between = line.str.count_matches(self.separator, literal=True)
        table = split.select(
            ROW,
            *(fields.struct[k].str.strip_chars(_PADDING).alias(name) for k, name in enumerate(names)),
            (line.str.strip_chars() == "").alias(BLANK),
            (between < len(names) - 1 if self.rest else between != len(names) - 1).alias(_RAGGED),
        )
        try:
            frame = table.select(*log.taken(names), BLANK, _RAGGED).collect(engine="streaming")
        except pl.exceptions.PolarsError as error:
            bad = first_line_not_text(path)
            if bad:
                raise InputError(f"{at(path, bad)}: not UTF-8 text") from None
            raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
        ragged = RowRule("row", f"does not have {len(names)} fields", pl.col(_RAGGED), of_value=False)

        def find(row: int) -> SourceRow:
            """Read the file again up to this row."""
            number = skip + row + 1
            with path.open(encoding="utf-8", newline="\n") as file:
                line = next(islice(file, number - 1, None), "")
            most = len(names) - 1 if self.rest else -1
            fields = (value.strip(_PADDING + "\n") for value in line.split(self.separator, most))
            values = dict(zip(names, fields, strict=False))
            return SourceRow(f"line {number}", at(path, number), values, log.names)

        ruled = replace(log, rules=(ragged, *log.rules))
        return as_trace(path, frame, ruled, find, profiles, strict=strict)

    def _without_free_text(self, line: pl.Expr, names: Sequence[str]) -> pl.Expr:
        """Empty the one column of free text in lines that have too many separators, which can only be in it."""
        free = [k for k, name in enumerate(names) if name in self.free_text]
        if len(free) != 1:
            return line
        mark, (at_column,) = re.escape(self.separator), free
        field = f"[^{mark}]*"
        rest = len(names) - 1 - at_column
        form = f"^((?:{field}{mark}){{{at_column}}}).*?((?:{mark}{field}){{{rest}}})$"
        too_many = line.str.count_matches(self.separator, literal=True) > len(names) - 1
        odd = pl.when(too_many).then(line)  # few, mostly, and nulls cost nothing
        return pl.coalesce(odd.str.replace(form, "${1}${2}"), line).alias(_LINE)

    def _fields(self, line: str) -> list[str]:
        """Return the names that a header line has."""
        return [self.spelled(name.strip(_PADDING + "\n")) for name in line.split(self.separator)]

    def _header(self, path: Path) -> tuple[Sequence[str], int]:
        """Return the names of the columns, and how many lines come before the first row."""
        found = [(skip, self._fields(line)) for skip, line in enumerate(_first_lines(path)) if line.strip()]
        skip, names = next(
            (each for each in found if set(each[1]) & set(self.needs_one)), (found or [(0, [""])])[0]
        )
        if self.names and names[0] != self.names[0]:
            return self.names, skip
        # `sacct -p` ends every line with a separator, and so with a column that has no name.
        names = [name or f"(column {k})" for k, name in enumerate(names, start=1)]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{at(path, skip + 1)}: column {name[:60]!r} occurs twice")
        return names, skip + 1


def _first_lines(path: Path) -> list[str]:
    """Return the lines among which the header is: the first that are not blank, and blank ones between."""
    lines: list[str] = []
    left = HEADER_WITHIN
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        for line in file:
            lines.append(line)
            left -= bool(line.strip())
            if not left:
                break
    return lines


def first_fields(head: bytes, separator: str) -> list[str]:
    """Return the fields of the first line that is not blank, or none if it is no text."""
    line, end, _ = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not end and len(head) >= HEAD_BYTES:  # the line goes on, and so may its last field
        line = line.rpartition(separator.encode())[0]
    try:
        return [field.strip(_PADDING) for field in line.decode("utf-8").split(separator)]
    except UnicodeDecodeError:
        return []


def refuse_binary(path: Path) -> None:
    """Raise if a file does not begin like text."""
    with path.open("rb") as file:
        line = file.read(HEAD_BYTES).split(b"\n", 1)[0]
    if b"\0" in line or not _is_text(line):
        raise InputError(f"{path}: not UTF-8 text")


def first_line_not_text(path: Path) -> int:
    """Return the number of the first line that is not UTF-8, or 0."""
    with path.open("rb") as file:
        return next((line for line, content in enumerate(file, start=1) if not _is_text(content)), 0)


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
