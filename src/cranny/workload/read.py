"""Read a trace from a file, in whatever known format it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cranny.model.errors import InputError, unknown
from cranny.model.profile import ModelProfile, library
from cranny.workload import cranny_csv, cranny_parquet
from cranny.workload.trace import Trace

AUTO = "auto"
HEAD_BYTES = 65_536


class Read(Protocol):
    """What reads one format."""

    def __call__(self, path: Path, profiles: Mapping[str, ModelProfile], *, skip_bad_rows: bool) -> Trace:
        """Read the file, or raise an `InputError` that names file, line and field."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One format: how to know it by a file's first bytes, and how to read it."""

    sniff: Callable[[bytes], bool]
    read: Read


# The first that knows the file reads it, so the least choosy format stands last.
READERS: Mapping[str, Reader] = {
    "cranny-parquet": Reader(cranny_parquet.sniff, cranny_parquet.read),
    "cranny-csv": Reader(cranny_csv.sniff, cranny_csv.read),
}


def read_trace(
    path: str | Path,
    format: str = AUTO,  # noqa: A002  # the name that people look for
    *,
    skip_bad_rows: bool = False,
    profiles: Mapping[str, ModelProfile] | None = None,
) -> Trace:
    """Read a trace; the format is found by content unless it is named.

    With `skip_bad_rows`, rows that cannot be used are left out and counted in `Trace.left_out`; of rows with
    the same id the first stays. `profiles` are the models that jobs may name (the built-in ones by default).
    """
    if format != AUTO and format not in READERS:
        raise unknown("trace format", format, [AUTO, *READERS])
    path = Path(path)
    head = _head(path)
    if format == AUTO:
        name = next((name for name, reader in READERS.items() if reader.sniff(head)), None)
        if name is None:
            raise InputError(f"{path}: neither a Parquet file nor UTF-8 text")
    else:
        name = format
    known = library() if profiles is None else profiles
    return READERS[name].read(path, known, skip_bad_rows=skip_bad_rows)


def _head(path: Path) -> bytes:
    """Return the first bytes of a file that can be read and is not empty."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a trace") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    if not head.strip():
        raise InputError(f"{path}: is empty")
    return head
