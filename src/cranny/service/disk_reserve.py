"""Disk space that is kept for what must be stored on a full disk: ends of jobs, cancellations and logins.

A file beside a SQLite database takes the space, and gives it back part by part when a write fails. While it is not
whole, no new jobs are accepted. The space of PostgreSQL is its own.
"""

import os
from contextlib import suppress
from pathlib import Path

SIZE = 16 * 1024 * 1024
PART = 1024 * 1024  # given back at a time, since others may take it first


class DiskReserve:
    """The reserve of one database."""

    def __init__(self, database: str | None) -> None:
        self._path = Path(f"{database}.reserve").absolute() if database is not None else None
        self._kept = False

    def keep(self) -> None:
        """Keep a reserve from now on."""
        self._kept = True
        self.fill()

    def fill(self) -> None:
        """Take the space that is missing, if one is kept and there is more than that."""
        if self._path is None or not self._kept or self._has() >= SIZE:
            return
        with suppress(OSError):
            space = os.statvfs(self._path.parent)
            if space.f_bavail * space.f_frsize < 2 * SIZE - self._has():
                return
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, SIZE)
            finally:
                os.close(file)

    def release(self) -> bool:
        """Give a part of it back; return whether there was any."""
        has = self._has()
        if self._path is None or not has:
            return False
        try:
            os.truncate(self._path, max(0, has - PART))
        except OSError:
            return False
        return True

    @property
    def problem(self) -> str:
        """Why new jobs must not use the space that is left; empty if they may."""
        if self._path is None or not self._kept:
            return ""
        try:
            space = os.statvfs(self._path.parent)
        except OSError:
            return ""
        free = space.f_bavail * space.f_frsize
        if free >= SIZE:
            return ""
        left = f"the disk of {self._path.parent} is almost full: {free // 2**20} MB are left"
        return f"{left}; no new jobs are accepted"

    def _has(self) -> int:
        try:
            return 0 if self._path is None else self._path.stat().st_size
        except OSError:
            return 0
