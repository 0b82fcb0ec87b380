"""Tables that a program made of a log, CSV with quotation marks and Parquet: every column is taken as text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers.csv_file import csv_fault, csv_header, csv_row
from cranny.traces.readers.delimited import refuse_binary
from cranny.traces.readers.log_mapping import LogMapping, as_trace
from cranny.traces.schema import BLANK, SourceRow, table_row
from cranny.traces.trace import Trace

MakeLog = Callable[[Sequence[str], Mapping[str, ModelProfile], str], LogMapping]


def read_log_table(
    path: Path,
    profiles: Mapping[str, ModelProfile],
    make_log: MakeLog,
    spelled: Callable[[str], str] = str,
    *,
    strict: bool,
    parquet: bool,
) -> Trace:
    """Read a file whose columns have the names that the log has for them once they are `spelled`."""
    if not parquet:
        refuse_binary(path)
    header = [] if parquet else csv_header(path)
    try:
        scan = pl.scan_parquet(path, glob=False) if parquet else pl.scan_csv(path, infer_schema=False, glob=False)
        schema = scan.collect_schema()
        named = {spelled(name.strip()): name for name in schema}
        log = make_log(list(named), profiles, str(path))
        text = scan.select(_text(source, schema[source]).alias(name) for name, source in named.items())
        blank = pl.all_horizontal((pl.col(name).fill_null("") == "") for name in named).alias(BLANK)
        frame = text.select(*log.taken(list(named)), blank).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        if parquet:
            raise InputError(f"{path}: broken or truncated Parquet file: {str(error).splitlines()[0]}") from None
        raise csv_fault(path, len(header), str(error)) from None

    def find(row: int) -> SourceRow:
        """Read a row again."""
        found = table_row(str(path), scan, row) if parquet else csv_row(path, header, row)
        return replace(
            found, called=log.names, values={spelled(name): each for name, each in found.values.items()}
        )

    return as_trace(path, frame, log, find, profiles, strict=strict)


def _text(name: str, dtype: pl.DataType) -> pl.Expr:
    """Write a column as a log writes it: times as dates, whole numbers without a fraction."""
    column = pl.col(name)
    if isinstance(dtype, pl.Datetime):
        form = "%Y-%m-%dT%H:%M:%S%.f"
        if dtype.time_zone is not None:
            column, form = column.dt.convert_time_zone("UTC"), f"{form}Z"
        return column.dt.to_string(form)
    if isinstance(dtype, pl.Duration):
        return pl.format("0:{}", column.dt.total_milliseconds() / 1000)
    if dtype.is_float():  # a column of whole numbers that has gaps, as pandas keeps it
        whole = (column == column.floor()) & (column.abs() < 2.0**53)
        number = pl.when(whole).then(column.cast(pl.Int64, strict=False).cast(pl.String))
        return pl.when(column.is_finite()).then(pl.coalesce(number, column.cast(pl.String)))
    return column.cast(pl.String).str.strip_chars()
