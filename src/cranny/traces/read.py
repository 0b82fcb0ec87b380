"""Read a trace from a file, in whatever known format it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cranny.model.errors import InputError, unknown
from cranny.model.profile import ModelProfile, library
from cranny.traces.readers import (
    acme,
    cranny_csv,
    cranny_parquet,
    elasticflow,
    gavel,
    helios,
    kubernetes,
    openb,
    pai,
    philly,
    pollux,
    sacct,
    tiresias,
)
from cranny.traces.readers.delimited import HEAD_BYTES
from cranny.traces.trace import Trace

AUTO = "auto"


class ReadFunction(Protocol):
    """What reads one format."""

    def __call__(self, path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
        """Read the file, or raise an `InputError` that names file, line and field."""


@dataclass(frozen=True, slots=True)
class FormatReader:
    """One format: how to know it by a file's first bytes, and how to read it."""

    sniff: Callable[[bytes], bool]
    read: ReadFunction
    strict: bool = False  # whether a row that cannot be used is an error unless the caller says otherwise


# The first that knows the file reads it, so a choosy format stands before one that is less so.
READERS: Mapping[str, FormatReader] = {
    "cranny-parquet": FormatReader(cranny_parquet.sniff, cranny_parquet.read, strict=True),
    "cranny-csv": FormatReader(cranny_csv.sniff, cranny_csv.read, strict=True),
    "philly": FormatReader(philly.sniff, philly.read),
    "acme": FormatReader(acme.sniff, acme.read),
    "helios": FormatReader(helios.sniff, helios.read),
    "pai": FormatReader(pai.sniff, pai.read),
    "openb": FormatReader(openb.sniff, openb.read),
    "elasticflow": FormatReader(elasticflow.sniff, elasticflow.read),
    "muri": FormatReader(tiresias.sniff_muri, tiresias.read_muri),
    "tiresias": FormatReader(tiresias.sniff, tiresias.read),
    "gavel": FormatReader(gavel.sniff, gavel.read),
    "pollux": FormatReader(pollux.sniff, pollux.read),
    "sacct": FormatReader(sacct.sniff, sacct.read),
    "kubernetes": FormatReader(kubernetes.sniff, kubernetes.read),
}


def read_trace(
    path: str | Path,
    format: str = AUTO,  # noqa: A002  # the name that people look for
    *,
    strict: bool | None = None,
    profiles: Mapping[str, ModelProfile] | None = None,
) -> Trace:
    """Read a trace; the format is found by content unless it is named.

    Rows that cannot be used are skipped and counted in `Trace.skipped` (of rows with the same id the first
    stays); with `strict` the first such row is an error. By default our own formats are strict, and logs of other
    systems are not. `profiles` are the models that jobs may name (the built-in ones by default).
    """
    if format != AUTO and format not in READERS:
        raise unknown("trace format", format, [AUTO, *READERS])
    path = Path(path)
    head = _head(path)
    name = _sniffed(head) if format == AUTO else format
    if name is None:
        raise InputError(f"{path}: not in a known trace format ({', '.join(READERS)})")
    reader = READERS[name]
    known = library() if profiles is None else profiles
    return reader.read(path, known, strict=reader.strict if strict is None else strict)


def find_format(path: str | Path) -> str | None:
    """Return the format that a file begins like, or None."""
    return _sniffed(_head(Path(path)))


def _sniffed(head: bytes) -> str | None:
    """Return the format of a file that begins like this."""
    return next((name for name, reader in READERS.items() if reader.sniff(head)), None)


def _head(path: Path) -> bytes:
    """Return the first bytes of a file that can be read and is not empty."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, not a trace") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path}: cannot be read: {reason}") from None
    if not head.strip():
        raise InputError(f"{path}: is empty")
    return head
