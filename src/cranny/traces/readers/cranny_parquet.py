"""Reader of our own format as Parquet."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.schema import SourceRow, checked, typed
from cranny.traces.trace import Trace

MAGIC = b"PAR1"


def sniff(head: bytes) -> bool:
    """Say whether a file that begins like this is Parquet."""
    return head.startswith(MAGIC)


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
    """Read a Parquet file."""
    file = str(path)
    with path.open("rb") as head:
        if not sniff(head.read(len(MAGIC))):
            raise InputError(f"{file}: not a Parquet file")
    try:
        scan = pl.scan_parquet(path, glob=False)
        schema = scan.collect_schema()
        frame = scan.select(typed(schema, file)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{file}: broken or truncated Parquet file: {str(error).splitlines()[0]}") from None
    result = checked(frame, _Rows(file, scan), profiles, strict=strict)
    return Trace(path.stem, result.frame, result.notes, result.skipped)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Names the rows of a Parquet file, from 1, and reads them again."""

    file: str
    scan: pl.LazyFrame

    def find(self, row: int) -> SourceRow:
        """Read one row again."""
        line = f"row {row + 1}"
        values = self.scan.slice(row, 1).collect().row(0, named=True)
        return SourceRow(line, f"{self.file}: {line}", {name.strip(): value for name, value in values.items()})
