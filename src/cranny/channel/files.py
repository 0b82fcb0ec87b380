"""Files that another process reads while they are replaced, and files of jobs that may hold anything."""

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from cranny.model.errors import InputError, at

FOLDER_VARIABLE = "CRANNY_CHANNEL"  # where ranks find the folder of their channel
TOKEN_VARIABLE = "CRANNY_CHANNEL_TOKEN"  # noqa: S105 - the name of a variable
VERSION = 1  # of all files of the channel; a reader ignores fields that it does not know
FRESH_S = 0.1  # in which a file that was read may be replaced at the same tick of the clock
READABLE = 0o644  # the mode of files
MAX_BYTES = 65_536  # of any file; a larger one is not read


def write(file: Path, value: dict[str, Any]) -> None:
    """Replace a file as a whole: readers see the old value or the new one.

    Its folder lets only the job and the service in, which may have different accounts.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    # A new file: the one that another process may have put in its place could be a pipe, which would block.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, flags, READABLE), "w", encoding="ascii") as out:
            os.fchmod(out.fileno(), READABLE)  # whatever the umask of the job is
            # Not `json.dump`, which takes four times as long: jobs write these files while they train.
            out.write(json.dumps({"version": VERSION, **value}, separators=(",", ":"), allow_nan=False))
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
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise InputError(f"{at(file)}: not a plain file")
        text = os.read(number, MAX_BYTES + 1)  # of a plain file it returns all that there is
    except OSError as error:
        raise InputError(f"{at(file)}: cannot be read: {error.strerror}") from None
    finally:
        os.close(number)
    if len(text) > MAX_BYTES:
        raise InputError(f"{at(file)}: larger than {MAX_BYTES} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{at(file)}: not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise InputError(f"{at(file)}: not an object of version {VERSION}")
    return value


class Watched:
    """A file that is read again when it has been replaced."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._path = str(file)  # looked at in every iteration: twice as fast as with a Path
        self._seen = (0, 0)

    def read(self, now_s: float) -> dict[str, Any] | None:
        """Read the file if it may have been replaced since it was read last; None if not, or if there is none."""
        try:
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - for speed, as above
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{at(self._path)}: cannot be read: {error.strerror}") from None
        seen = (found.st_mtime_ns, found.st_ino)
        # One that is replaced twice at the same tick of the clock may look the same.
        if seen == self._seen and not 0.0 <= now_s - found.st_mtime < FRESH_S:
            return None
        self._seen = (0, 0)  # if it cannot be read now, perhaps next time
        value = read(self._file)
        self._seen = seen
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
