"""Read a trace from a file in any known format, found by content, and find the trace files of a folder."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from lzma import LZMAError
from pathlib import Path
from typing import Protocol

import polars as pl

from cranny.model.errors import InputError, unknown
from cranny.model.profile import ModelProfile, library
from cranny.traces.compressed import open_unpacked, unpacked
from cranny.traces.gpu_parts import without_parts
from cranny.traces.readers import (
    acme,
    cranny_format,
    elasticflow,
    gavel,
    helios,
    kubernetes,
    openb,
    pai,
    pbs,
    philly,
    pollux,
    prometheus,
    sacct,
    tiresias,
)
from cranny.traces.readers.delimited import HEAD_BYTES, first_fields
from cranny.traces.schema import REQUIRED
from cranny.traces.trace import Trace
from cranny.traces.unknown_format import advice
from cranny.traces.zones import time_zone

AUTO = "auto"
DEPTH = 4
ENOUGH = 2  # of the columns that every trace has


class ReadFunction(Protocol):
    """What reads one format."""

    def __call__(self, path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
        """Read the file, or raise an `InputError` that names file, line and field."""


class ZonedReadFunction(Protocol):
    """What reads a format whose times may have no zone."""

    def __call__(
        self, path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool, zone: str | None = None
    ) -> Trace:
        """Read the file; times that name no zone are of this one."""


@dataclass(frozen=True, slots=True)
class FormatReader:
    """One format: how to know it by a file's first bytes, and how to read it."""

    sniff: Callable[[bytes], bool]
    read: ReadFunction
    strict: bool = False  # whether a row that cannot be used is an error unless the caller says otherwise
    in_zone: ZonedReadFunction | None = None  # the same, for formats whose times may have no zone
    by_attempt: ZonedReadFunction | None = None  # the same with a row for each attempt, where `read` joins them


# The first that knows the file reads it, so a choosy format stands before one that is less so.
READERS: Mapping[str, FormatReader] = {
    "cranny-parquet": FormatReader(cranny_format.sniff_parquet, cranny_format.read_parquet, strict=True),
    "cranny-csv": FormatReader(cranny_format.sniff_csv, cranny_format.read_csv, strict=True),
    "philly": FormatReader(philly.sniff, philly.read, in_zone=philly.read, by_attempt=philly.read_attempts),
    "acme": FormatReader(acme.sniff, acme.read),
    "helios": FormatReader(helios.sniff, helios.read, in_zone=helios.read),
    "pai": FormatReader(pai.sniff, pai.read),
    "openb": FormatReader(openb.sniff, openb.read),
    "elasticflow": FormatReader(elasticflow.sniff, elasticflow.read),
    "muri": FormatReader(tiresias.sniff_muri, tiresias.read_muri),
    "tiresias": FormatReader(tiresias.sniff, tiresias.read),
    "gavel": FormatReader(gavel.sniff, gavel.read),
    "pollux": FormatReader(pollux.sniff, pollux.read),
    "sacct": FormatReader(sacct.sniff, sacct.read, in_zone=sacct.read),
    "pbs": FormatReader(pbs.sniff, pbs.read),
    "prometheus": FormatReader(prometheus.sniff, prometheus.read),
    "kubernetes": FormatReader(kubernetes.sniff, kubernetes.read),
}


def read_trace(
    path: str | Path,
    format: str = AUTO,  # noqa: A002  # the name that people look for
    *,
    strict: bool | None = None,
    profiles: Mapping[str, ModelProfile] | None = None,
    zone: str | None = None,
    count_parts: bool = False,
    attempts: bool = False,
) -> Trace:
    """Read a trace; the format is found by content unless it is named.

    Rows that cannot be used are skipped and counted in `Trace.skipped` (of rows with the same id the first
    stays); with `strict` the first such row is an error. By default our own formats are strict, and logs of other
    systems are not. `profiles` are the models that jobs may name (the built-in ones by default). Times that
    name no zone are read in `zone`, such as Europe/Berlin, and all are shown in it; a log without dates is
    refused then. Jobs on parts of GPUs (MIG instances, shards) are skipped unless `count_parts` lets each part
    count as a GPU. With `attempts` a job of Philly's log has a row for each attempt, with the machines that it ran
    on; logs of Slurm have these anyway.
    """
    if format != AUTO and format not in READERS:
        raise unknown("trace format", format, [AUTO, *READERS])
    path = Path(path)
    head = _head(path)
    with unpacked(path) as plain:
        name = _sniffed(head, plain) if format == AUTO else format
        if name is None:
            what = advice(head) or f"not in a known trace format ({', '.join(READERS)})"
            raise InputError(f"{path}: {what}")
        return _read(plain, name, profiles, zone, strict=strict, count_parts=count_parts, attempts=attempts)


def _read(
    path: Path,
    name: str,
    profiles: Mapping[str, ModelProfile] | None,
    zone: str | None,
    *,
    strict: bool | None,
    count_parts: bool,
    attempts: bool,
) -> Trace:
    """Read a file of a known format."""
    reader = READERS[name]
    known = library() if profiles is None else profiles
    strict = reader.strict if strict is None else strict
    if zone is not None:
        time_zone(zone)
    zoned = reader.by_attempt if attempts and reader.by_attempt is not None else reader.in_zone
    if zoned is None:
        trace = reader.read(path, known, strict=strict)
    else:
        trace = zoned(path, known, strict=strict, zone=zone)
    if zone is not None:
        if trace.zero_epoch_s is None:
            raise InputError(f"{path}: zone: the times of this file have no date: leave the time zone out")
        trace = replace(trace, zone=zone)
    return trace if count_parts else without_parts(trace)


def find_format(path: str | Path) -> str | None:
    """Return the format that a file begins like, or None."""
    return _sniffed(_head(Path(path)), Path(path))


def _sniffed(head: bytes, path: Path) -> str | None:
    """Return the format of a file that begins like this; Parquet has the names of its columns at its end."""
    name = next((name for name, reader in READERS.items() if reader.sniff(head)), None)
    return "sacct" if name == "cranny-parquet" and sacct.is_sacct_table(path) else name


def _head(path: Path) -> bytes:
    """Return the first bytes of a file that can be read and is not empty."""
    try:
        with open_unpacked(path) as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a trace") from None
    except (OSError, ValueError, EOFError, LZMAError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    if not head.strip():
        raise InputError(f"{path}: is empty")
    return head


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
            found = _trace_format(path)
            if found is not None:
                yield path, found


def _trace_format(path: Path) -> str | None:
    """Return the format of a file that looks like a trace, or None.

    Our own formats take any table, so there the names of its columns must look like a trace's as well.
    """
    try:
        found = find_format(path)
    except InputError:  # empty, or not ours to read
        return None
    if found == "cranny-csv":
        with open_unpacked(path) as file:
            columns = set(first_fields(file.read(HEAD_BYTES), ","))
    elif found == "cranny-parquet":
        try:
            columns = set(pl.read_parquet_schema(path))
        except (pl.exceptions.PolarsError, OSError):
            return found  # reading it reports what is broken
    else:
        return found
    return found if len(columns & set(REQUIRED)) >= ENOUGH else None
