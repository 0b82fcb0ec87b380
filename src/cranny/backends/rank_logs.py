"""The files of a rank's log: their names, and reading them as one stream.

A log is one file, `rank-0.log`, until it has its share of the limit. It goes on in files that are named after the
offset of their first byte, `rank-0.25000000.log`; the oldest is deleted when the limit is reached. Offsets count
from the first byte that was ever written, so they stay valid.

Supervisors use it: it imports little.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

LOG_LIMIT_BYTES = 100_000_000  # of a rank, unless the service has another limit
PARTS = 4  # files of a log; at least three of them are full before the oldest is deleted
PIPE = ".pipe"
MOST_TRIES = 5  # to read a log whose oldest part is being deleted


def log_of(log_dir: Path, rank: int | str) -> Path:
    """Return the log of a rank."""
    return log_dir / f"rank-{rank}.log"


def log_of_agent(log_dir: Path, node: int) -> Path:
    """Return the log of the torchrun agent of a machine."""
    return log_dir / f"agent-{node}.log"


def pipe_of(log: Path) -> Path:
    """Return the named pipe that becomes a log: what is written into it is kept there."""
    return log.with_suffix(PIPE)


def part_of(log: Path, start: int) -> Path:
    """Return the file of a log that begins at an offset."""
    return log.with_suffix(f".{start}{log.suffix}") if start else log


class LogBytes(NamedTuple):
    """Bytes of a log."""

    data: bytes
    start: int  # offset of the first of them
    asked: int  # the offset that was asked for
    kept_from: int  # offset of the oldest byte that is still there


def read_log_bytes(log: Path, offset: int, size: int, before: int = 0) -> LogBytes:
    """Read a log from some bytes before an offset, as far as it is kept; negative offsets count from its end."""
    for _ in range(MOST_TRIES):
        parts = _parts(log)
        try:
            return _read(parts, offset, size, before)
        except FileNotFoundError:  # deleted meanwhile, or there is none
            if not parts:
                break
    return LogBytes(b"", max(0, offset), max(0, offset), 0)


def _parts(log: Path) -> list[tuple[int, Path]]:
    """Return the files of a log, and where they begin, in order."""
    found = []
    try:
        names = os.listdir(log.parent)  # noqa: PTH208 - names only: there may be thousands
    except OSError:
        return []
    for name in names:
        if name == log.name:
            found.append((0, log))
        elif name.startswith(f"{log.stem}.") and name.endswith(log.suffix):
            middle = name[len(log.stem) + 1 : -len(log.suffix)]
            if middle.isdecimal() and middle.isascii():
                found.append((int(middle), log.parent / name))
    return sorted(found)


def _read(parts: list[tuple[int, Path]], offset: int, size: int, before: int) -> LogBytes:
    if not parts:
        raise FileNotFoundError
    kept_from, (last_start, last) = parts[0][0], parts[-1]
    if offset < 0:
        offset = max(0, offset + last_start + _size(last))
    start = max(offset - before, kept_from)
    data = b""
    for begin, path in parts:
        if begin <= start + len(data) and len(data) < size:
            data += _pread(path, start + len(data) - begin, size - len(data))
    return LogBytes(data, start, offset, kept_from)


def _open(path: Path) -> int | None:
    """Open a file; None for a link or a pipe, by which a job may have replaced its log."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(number).st_mode):
        return number
    os.close(number)
    return None


def _size(path: Path) -> int:
    number = _open(path)
    if number is None:
        return 0
    try:
        return os.fstat(number).st_size
    finally:
        os.close(number)


def _pread(path: Path, offset: int, size: int) -> bytes:
    number = _open(path)
    if number is None:
        return b""
    try:
        return os.pread(number, size, offset)
    finally:
        os.close(number)
