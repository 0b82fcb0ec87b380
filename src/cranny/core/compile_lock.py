"""One process compiles a function; others that want it wait, and load what it made.

Without this, processes that start together compile the same functions, each for itself; and two that compile one
function for different types may write the same file of Numba's cache, so that later ones load the wrong code.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from threading import Event

# Longer than a function takes on a busy machine. Then a process compiles for itself: the other may be stopped.
POLLS, POLL_S = 15_000, 0.02


class CompileLock:
    """A lock on a function's file in a folder of compiled code, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock, or give up after a while, or where locks cannot be had: they only save time."""
        if self._file is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:  # a folder that only others may write
            return
        for _ in range(POLLS):
            if _locked(self._file):
                break
            Event().wait(POLL_S)

    def release(self) -> None:
        """Let other processes have it."""
        if self._file is not None:
            # Closing is not enough: a process that was forked meanwhile has the file open, too.
            with suppress(OSError):  # a file system without locks
                fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = None


def _locked(file: int) -> bool:
    """Return whether there is no need to wait."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
