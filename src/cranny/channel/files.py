"""Files that another process reads while they are replaced, and files of jobs that may hold anything."""

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from cranny.model.errors import InputError, at

VERSION = 1  # of all files of the channel; a reader ignores fields that it does not know
MAX_BYTES = 65_536  # of any file; a larger one is not read


def write(file: Path, value: dict[str, Any]) -> None:
    """Replace a file as a whole, readable by its owner only: readers see the old value or the new one."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    # A new file: the one that another process may have put in its place could be a pipe, which would block.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="ascii") as out:
            json.dump({"version": VERSION, **value}, out, separators=(",", ":"), allow_nan=False)
        draft.replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def read(file: Path) -> dict[str, Any] | None:
    """Read a file that any process may have put there; None if there is none.

    It must be a plain file, and neither large nor of another version: a job can make its file a link, or a pipe
    that never ends.
    """
    try:
        number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{at(file)}: cannot be read: {error.strerror}") from None
    with os.fdopen(number, "rb") as opened:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{at(file)}: not a plain file")
        text = opened.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise InputError(f"{at(file)}: larger than {MAX_BYTES} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{at(file)}: not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise InputError(f"{at(file)}: not an object of version {VERSION}")
    return value


def changed(file: Path, seen: tuple[int, int]) -> tuple[int, int]:
    """Return what identifies the content of a file: (0, 0) if there is none, `seen` if that cannot be said.

    A file that is replaced has another inode, or at least another time.
    """
    try:
        found = file.stat(follow_symlinks=False)
    except FileNotFoundError:
        return (0, 0)
    except OSError:
        return seen
    return (found.st_mtime_ns, found.st_ino)
