"""How a service stays the only writer of its event log, and notices when the log is taken from under it.

SQLite: a lock on a file beside the log, which is lost when somebody deletes that file. PostgreSQL: a lock that
belongs to a session and is lost with it, so all events are written in that session.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from cranny.model.errors import CrannyError

TAKE_S = 1.0  # how long PostgreSQL may take to notice that a service was killed, and give its lock back
LOCK_KEY = 0x6372616E6E79  # of the advisory lock in PostgreSQL: "cranny"
WRITE = "the event log cannot be written"

_LOCK = text("select pg_try_advisory_lock(:key)")
_WHO = text("select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()")
_END = text(
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = :pid and backend_start = :backend_start"
)


class StoreError(CrannyError):
    """The event log cannot be read or written now; that may pass."""


class OtherWriterError(StoreError):
    """Somebody else writes the event log; that does not pass, and whoever meets it must end."""


class FileLock:
    """The lock of a SQLite database: a file beside it."""

    def __init__(self, database: str, shown: str) -> None:
        self._path = Path(f"{database}.lock").absolute()
        self._shown = shown
        self._held: IO[bytes] | None = None

    def take(self) -> None:
        """Take the lock, also if the file that was locked is there no more."""
        if self._held is not None and _same(self._path, os.fstat(self._held.fileno())):
            return
        self.close()
        try:
            # Not inherited by the processes of jobs, and gone when this process is, however it ends.
            self._held = self._path.open("ab")
            fcntl.lockf(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise _taken(self._shown) from None
            raise StoreError(f"{WRITE}: {self._path}: {error.strerror}") from None

    def close(self) -> None:
        """Give the lock back."""
        if self._held is not None:
            self._held.close()
        self._held = None


class SessionLock:
    """The lock of a PostgreSQL database: it belongs to a session, in which all events are written."""

    def __init__(self, engine: Engine, shown: str) -> None:
        self._engine = engine
        self._shown = shown
        self._held: Connection | None = None
        self._who: dict[str, Any] = {}  # which session has the lock, or had it

    def take(self) -> None:
        """Take the lock, also if the session that had it was lost."""
        self.begin()
        self.rest()

    def begin(self) -> Connection:
        """Begin a transaction in the session that has the lock; take it again if that session was lost."""
        if self._held is not None and not self._held.invalidated:
            try:
                self._held.exec_driver_sql("select 1")
            except DBAPIError as error:
                if not error.connection_invalidated:
                    self.rest()  # or no later transaction could begin
                    raise
            else:
                return self._held
        self.close()
        connection = self._engine.connect()
        try:
            self._wait(connection)
            self._who = dict(connection.execute(_WHO).mappings().one())
            connection.commit()  # the lock belongs to the session, not to the transaction
        except BaseException:
            connection.invalidate()  # never back to the others, perhaps with the lock
            connection.close()
            raise
        self._held = connection
        return connection

    def rest(self) -> None:
        """End the transaction; what was not committed is undone."""
        if self._held is not None:
            with suppress(SQLAlchemyError):  # a session that was lost is noticed when the next one begins
                self._held.rollback()

    def close(self) -> None:
        """Give the lock back."""
        if self._held is not None:
            with suppress(SQLAlchemyError):
                self._held.invalidate()
            self._held.close()
        self._held = None

    def _wait(self, connection: Connection) -> None:
        """Wait a moment for the lock; our own lost session, if the server still has it, is not another service."""
        until_s = time.monotonic() + TAKE_S
        while not connection.execute(_LOCK, {"key": LOCK_KEY}).scalar():
            own = bool(self._who) and connection.execute(_END, self._who).first() is not None
            connection.commit()  # what sessions there are is seen anew in each transaction
            if time.monotonic() > until_s:
                if own:
                    raise StoreError(f"{WRITE}: its own earlier connection still has the lock")
                raise _taken(self._shown)
            time.sleep(TAKE_S / 20)


class DatabaseFiles:
    """The files of a SQLite database, which must stay those that were opened: in others, events would be lost.

    As long as a connection is open, SQLite itself keeps all of them.
    """

    def __init__(self, database: str) -> None:
        self._seen: dict[Path, os.stat_result] = {}
        for ending in ("", "-wal", "-shm"):
            path = Path(f"{database}{ending}").absolute()
            with suppress(FileNotFoundError):
                self._seen[path] = path.stat()

    def check(self, failed: str) -> None:
        """Refuse to go on with other files."""
        for path, seen in self._seen.items():
            if not _same(path, seen):
                raise StoreError(
                    f"{failed}: {path} was deleted or replaced while in use; put the same file back, "
                    "or end cranny serve"
                )


def _same(path: Path, seen: os.stat_result) -> bool:
    """Say whether a file is still the one that was seen."""
    try:
        return os.path.samestat(path.stat(), seen)
    except OSError:
        return False


def _taken(shown: str) -> OtherWriterError:
    return OtherWriterError(f"database {shown}: another cranny serve is using it")


@contextmanager
def wrapped(failed: str) -> Iterator[None]:
    """Say what failed where the database complains."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"{failed}: {why(error)}") from None


def why(error: SQLAlchemyError) -> str:
    """Say in one line what a database complains about."""
    origin = getattr(error, "orig", None) or error
    return " ".join(str(origin).split())
