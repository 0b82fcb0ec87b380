"""The head of the event log as a file in the service's folder: it detects a database that was rolled back.

The hashes in a database could all be computed anew, and an old copy of it is whole in itself. What this folder has
seen stored is known here as well.
"""

import logging
import os
from pathlib import Path

from cranny.service.event_chain import ChainHead
from cranny.service.store import EventStore
from cranny.service.writer_lock import LogIntegrityError

LENGTH = 96  # bytes; the file never grows, so that it can be written on a full disk

_log = logging.getLogger("cranny.service")


class HeadFile:
    """The last event of a log that a service with this folder has stored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._failed = False

    @classmethod
    def of(cls, folder: Path, log_id: str) -> "HeadFile":
        """Return the file of a log; a folder may be used with several."""
        return cls(folder / f"log-{log_id or 'old'}.head")

    def read(self) -> ChainHead | None:
        """Return the head; None if there is no file, or an empty one."""
        try:
            text = self.path.read_bytes().strip(b"\0 \n").decode("ascii")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise LogIntegrityError(f"{self.path}: cannot be read: {error}") from None
        if not text:
            return None
        try:
            seq, found = text.split()
            return ChainHead(int(seq), found)
        except ValueError:
            raise LogIntegrityError(
                f"{self.path}: is damaged; delete it to accept the event log as the database has it"
            ) from None

    def check(self, store: EventStore) -> None:
        """Raise if the database does not hold what was stored."""
        known = self.read()
        if known is not None:
            store.check_holds(known, f"{self.path} (delete it to accept the event log as the database has it)")

    def write(self, head: ChainHead | None) -> None:
        """Write the head, after its event was stored: the file is never ahead of the database.

        It is not forced to the disk: after a loss of power an older head still says something.
        """
        if head is None:
            return
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, f"{head.seq} {head.hash}".ljust(LENGTH - 1).encode() + b"\n", 0)
            finally:
                os.close(file)
        except OSError as error:
            if not self._failed:
                _log.warning("%s: cannot be written: %s; a rollback would go unnoticed", self.path, error.strerror)
            self._failed = True
        else:
            self._failed = False
