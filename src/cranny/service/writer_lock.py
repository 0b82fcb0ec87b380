"""The writer lock: keeps a service the only writer of its event log, and detects the loss of that lock.

SQLite: a lock on a file beside the log, lost when that file is deleted. PostgreSQL: an advisory lock, belonging to
a session and lost with it, so all events are written in that session.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from cranny.model.errors import CrannyError

ACQUIRE_S = 1.0  # how long PostgreSQL may take to release the lock of a killed service
LOCK_KEY = 0x6372616E6E79  # of the advisory lock in PostgreSQL: "cranny"
WRITE = "the event log cannot be written"
REFUSED = ("authentication failed", "does not exist", "no pg_hba.conf entry")  # by a server that is up
DEAD_S = 2  # without an answer, after which PostgreSQL asks whether a host is still there

_LOCK = text("select pg_try_advisory_lock(:key)")
_SESSION = text("select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()")
_END = text(
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = :pid and backend_start = :backend_start"
)


class StoreError(CrannyError):
    """The event log cannot be read or written now; a retry may succeed."""


class UnavailableError(StoreError):
    """The server of the database does not answer now."""


class LogIntegrityError(StoreError):
    """The event log is not what this process has read or written; it must not go on from it."""


class OtherWriterError(LogIntegrityError):
    """Another process writes the event log; this one must end."""


class FileLock:
    """The writer lock of a SQLite database: a file beside it."""

    def __init__(self, database: str, shown: str) -> None:
        self._path = Path(f"{database}.lock").absolute()
        self._shown = shown
        self._held: IO[bytes] | None = None

    def acquire(self) -> None:
        """Acquire the lock, again if the locked file was deleted."""
        if self._held is not None and _same(self._path, os.fstat(self._held.fileno())):
            return
        self.close()
        try:
            # Not inherited by the processes of jobs, and released however this process ends. For its owner only:
            # who can read a file can lock it, and so keep a service from starting.
            self._held = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb")
            with suppress(PermissionError):  # of another account, as that of root
                os.fchmod(self._held.fileno(), 0o600)
            fcntl.lockf(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise _in_use(self._shown) from None
            raise StoreError(f"{WRITE}: {self._path}: {error.strerror}") from None

    def close(self) -> None:
        """Release the lock."""
        if self._held is not None:
            self._held.close()
        self._held = None


class SessionLock:
    """The writer lock of a PostgreSQL database: it belongs to a session, in which all events are written."""

    def __init__(self, engine: Engine, shown: str) -> None:
        self._engine = engine
        self._shown = shown
        self._held: Connection | None = None
        self._session: dict[str, Any] = {}  # identity of the session that holds the lock, or held it last

    def acquire(self) -> None:
        """Acquire the lock, again if the session that held it was lost."""
        self.begin()
        self.rollback()

    def begin(self) -> Connection:
        """Begin a transaction in the session that holds the lock; reacquire it if that session was lost."""
        if self._held is not None and not self._held.invalidated:
            try:
                self._held.exec_driver_sql("select 1")
            except DBAPIError as error:
                if not error.connection_invalidated:
                    self.rollback()  # or no later transaction could begin
                    raise
            else:
                return self._held
        self.close()
        connection = self._engine.connect()
        try:
            for name, value in (("idle", DEAD_S), ("interval", 1), ("count", 2)):  # a dead host releases the lock
                connection.exec_driver_sql(f"set tcp_keepalives_{name} = {value}")
            self._wait(connection)
            self._session = dict(connection.execute(_SESSION).mappings().one())
            connection.commit()  # the lock belongs to the session, not to the transaction
        except BaseException:
            connection.invalidate()  # must not return to the pool, perhaps with the lock
            connection.close()
            raise
        self._held = connection
        return connection

    def rollback(self) -> None:
        """End the transaction, undoing what was not committed."""
        if self._held is not None:
            with suppress(SQLAlchemyError):  # a lost session is detected when the next transaction begins
                self._held.rollback()

    def close(self) -> None:
        """Release the lock."""
        if self._held is not None:
            with suppress(SQLAlchemyError):
                self._held.invalidate()
            self._held.close()
        self._held = None

    def _wait(self, connection: Connection) -> None:
        """Wait briefly for the lock; terminate our own lost session if the server still has it."""
        until_s = time.monotonic() + ACQUIRE_S
        while not connection.execute(_LOCK, {"key": LOCK_KEY}).scalar():
            own = bool(self._session) and connection.execute(_END, self._session).first() is not None
            connection.commit()  # each transaction sees the sessions as of its start
            if time.monotonic() > until_s:
                if own:
                    raise StoreError(f"{WRITE}: an earlier connection of this service still holds the lock")
                raise _in_use(self._shown)
            time.sleep(ACQUIRE_S / 20)


class DatabaseFiles:
    """The files of a SQLite database, which must stay those that were opened, or events would be lost.

    While a connection is open, SQLite itself keeps all of them. Other databases have none.
    """

    def __init__(self, database: str | None) -> None:
        self._seen: dict[Path, os.stat_result] = {}
        for ending in ("", "-wal", "-shm") if database is not None else ():
            path = Path(f"{database}{ending}").absolute()
            with suppress(FileNotFoundError):
                self._seen[path] = path.stat()

    def check(self, failed: str) -> None:
        """Raise if a file was deleted or replaced."""
        for path, seen in self._seen.items():
            if not _same(path, seen):
                raise StoreError(
                    f"{failed}: {path} was deleted or replaced while in use; put the same file back, "
                    "or end cranny serve"
                )


def _same(path: Path, seen: os.stat_result) -> bool:
    """Return whether a path is still the file that was opened."""
    try:
        return os.path.samestat(path.stat(), seen)
    except OSError:
        return False


def _in_use(shown: str) -> OtherWriterError:
    return OtherWriterError(f"database {shown}: another cranny serve is using it")


@contextmanager
def wrapped(failed: str) -> Iterator[None]:
    """Turn errors of the database into `StoreError`, with what failed in front."""
    try:
        yield
    except SQLAlchemyError as error:
        raise failure(failed, error) from None


def failure(failed: str, error: SQLAlchemyError) -> StoreError:
    """Return the error of a database, with what failed in front."""
    text = why(error)
    down = isinstance(error, OperationalError) and not any(each in text for each in REFUSED) and _on_server(error)
    return (UnavailableError if down else StoreError)(f"{failed}: {text}")


def _on_server(error: OperationalError) -> bool:
    """Say whether an error is one of a connection to a server; those of SQLite are of files."""
    return type(error.orig).__module__.partition(".")[0] == "psycopg"


def why(error: SQLAlchemyError) -> str:
    """Return the error of a database in one line."""
    origin = getattr(error, "orig", None) or error
    return " ".join(str(origin).split())
