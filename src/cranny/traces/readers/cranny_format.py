"""Readers of our own format, as CSV and as Parquet."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.presence import presence_of, shifted
from cranny.traces.readers.csv_file import csv_fault, csv_header, csv_row, refuse_ragged_rows
from cranny.traces.readers.delimited import first_fields, refuse_binary
from cranny.traces.readers.log_mapping import UTC
from cranny.traces.readers.timestamps import MOST_S, said
from cranny.traces.schema import CLOCKED, COLUMN_ALIASES, CPU_ONLY, TIME_ZERO, checked, table_row, typed
from cranny.traces.trace import Trace

YEAR_2001_S = 1e9  # since 1970; no trace has so long a time before its first job
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
    header = csv_header(path)
    try:
        scan = pl.scan_csv(path, infer_schema=False, glob=False)
        schema = scan.collect_schema()
        frame = scan.select(typed(schema, file)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise csv_fault(path, len(header), str(error)) from None
    # Polars fills the missing end of a short row with nulls, so only then can there be one.
    last = header[-1] if header[-1] in frame.columns else COLUMN_ALIASES[header[-1]]
    if frame[last].null_count():
        refuse_ragged_rows(path, len(header))
    presence = presence_of(frame.filter(CPU_ONLY.broken))
    sound = checked(frame, file, partial(csv_row, path, header), profiles, strict=strict)
    return _dated(Trace(path.stem, *sound, presence=presence))


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
    return _dated(Trace(path.stem, *sound, presence=presence))


def _dated(trace: Trace) -> Trace:
    """Let time begin at the first submission if times are seconds since 1970, which gives them dates."""
    first_s = float(trace.frame["submit_s"].min())  # type: ignore[arg-type]
    if not YEAR_2001_S <= first_s < MOST_S:
        return trace
    clocked = [name for name in CLOCKED if name in trace.frame.columns]
    note = f"{TIME_ZERO}{said(first_s)} (UTC): submit_s is taken as seconds since 1970"
    return replace(
        trace,
        frame=trace.frame.with_columns(pl.col(clocked) - first_s),
        notes=(note, *trace.notes),
        zero_epoch_s=first_s,
        zone=UTC,
        presence=shifted(trace.presence, -first_s),
    )
