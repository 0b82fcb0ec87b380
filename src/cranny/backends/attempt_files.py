"""The files by which a service and the supervisor of an attempt talk, even if one of them is killed.

`launch` says what to run, environment included. Whoever removes it decides: the supervisor takes the attempt on by
removing it, the service calls the attempt off by removing it. `pid` is there before that, so an attempt that was
taken on can be found. `result` appears as a whole when all is over; its space is set aside before the start, in
`reserve`, so that a full disk does not lose it.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

RESERVED = 256  # bytes; more than any result


class AttemptFiles(NamedTuple):
    """Where the files of one attempt are."""

    launch: Path
    pid: Path
    reserve: Path
    result: Path
    stop: Path  # the grace, if somebody has cancelled the job
    errors: Path  # what the supervisor itself complains of

    @classmethod
    def of(cls, log_dir: Path, attempt: int) -> "AttemptFiles":
        """Name the files of an attempt."""
        return cls(*(log_dir / f"attempt-{attempt}.{name}" for name in cls._fields))


def write(path: Path, value: object, *, new: bool = False, size: int = 0) -> None:
    """Write a value for the owner's eyes only; if `new`, refuse to replace a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_EXCL if new else os.O_TRUNC)
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
        file.write(json.dumps(value).ljust(size))


def read(path: Path) -> Any:
    """Read a value; None if there is none, or if a crash of the system cut it off.

    Other trouble, as when no more files may be opened, is an `OSError`: the value may well be there.
    """
    try:
        return json.loads(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def remove(path: Path) -> bool:
    """Remove a file; tell whether it was there."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def keep_result(files: AttemptFiles, exit_code: int | None, reason: str) -> None:
    """Turn the reserve into the result, in one step and for good."""
    text = json.dumps({"exit_code": exit_code, "reason": reason}).ljust(RESERVED)
    with files.reserve.open("r+", encoding="ascii") as file:  # written over, not anew: the space is there
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    files.reserve.rename(files.result)
    folder = os.open(files.result.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
