"""The files through which a service and the supervisor of an attempt communicate, even if one of them is killed.

`launch` describes what to run, environment included. Removing it is the commit point: the supervisor claims the
attempt by removing it, the service withdraws the attempt by removing it. `pid` is written before that, so that a
claimed attempt can be found. `withdrawn` withdraws an attempt whose `launch` is not there yet: the service that is
to launch it may have been stopped, and go on beside the next one. `result` appears atomically at the end; its
space is reserved before the start, in `reserve`, so that a full disk does not lose it.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

RESERVED = 256  # bytes; more than any result
MAX_DETAIL = 128  # characters


class AttemptFiles(NamedTuple):
    """The paths of the files of one attempt."""

    launch: Path
    pid: Path
    reserve: Path
    result: Path
    stop: Path  # the grace period, once the job was cancelled
    signal: Path  # the signal that its processes are to get
    errors: Path  # standard error of the supervisor itself
    withdrawn: Path  # exists if it must not be launched any more

    @classmethod
    def of(cls, log_dir: Path, attempt: int) -> "AttemptFiles":
        """Name the files of an attempt."""
        return cls(*(log_dir / f"attempt-{attempt}.{name}" for name in cls._fields))

    @property
    def launched(self) -> bool:
        """Whether some service has launched the attempt, even if it is over."""
        return any(map(os.path.lexists, (self.launch, self.pid, self.result)))


def write(path: Path, value: object, *, new: bool = False, size: int = 0) -> None:
    """Write a value, readable by the owner only; if `new`, refuse to replace a file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_EXCL if new else os.O_TRUNC)
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
        file.write(json.dumps(value).ljust(size))


def read(path: Path) -> Any:
    """Read a value; None if there is none, or if a crash of the system truncated it.

    Other failures, as when no more files may be opened, raise `OSError`: the value may exist.
    """
    try:
        return json.loads(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def remove(path: Path) -> bool:
    """Remove a file; return whether it existed."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def keep_result(files: AttemptFiles, exit_code: int | None, reason: str, detail: str = "") -> None:
    """Turn the reserve into the result, atomically and durably."""
    found: dict[str, object] = {"exit_code": exit_code, "reason": reason}
    text = json.dumps(found | {"detail": detail[:MAX_DETAIL]} if detail else found).ljust(RESERVED)
    with files.reserve.open("r+", encoding="ascii") as file:  # overwritten in place: the space is reserved
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    files.reserve.rename(files.result)
    folder = os.open(files.result.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
