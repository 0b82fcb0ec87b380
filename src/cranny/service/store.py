"""The event log in a database: append-only, the source from which all other state is rebuilt.

Tokens and sessions are stored beside it, as hashes.

SQLite in WAL mode by default, PostgreSQL by URL. One process writes: it holds a lock, and since it numbers events
itself, a second writer would collide with its numbers.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from cranny.model.errors import InputError, MissingExtraError
from cranny.service import writer_lock
from cranny.service.writer_lock import WRITE, OtherWriterError, SessionLock, StoreError, why, wrapped

BUSY_MS = 2_000  # how long to wait for another process that has locked a SQLite database
PAGE = 5_000  # events read at a time

_log = logging.getLogger("cranny.service")

_META = sa.MetaData()
_VERSION = sa.Table("cranny_schema", _META, sa.Column("version", sa.Integer, primary_key=True))
_EVENTS = sa.Table(
    "cranny_events",
    _META,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_s", sa.Float(53), nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("job", sa.String(40), index=True),
    sa.Column("body", sa.Text, nullable=False),
)
_TOKENS = sa.Table(
    "cranny_tokens",
    _META,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("user", sa.String(100), nullable=False),
    sa.Column("role", sa.String(20), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("created_s", sa.Float(53), nullable=False),
    sa.Column("revoked_s", sa.Float(53)),
)
_SESSIONS = sa.Table(
    "cranny_sessions",
    _META,
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("user", sa.String(100), nullable=False),
    sa.Column("role", sa.String(20), nullable=False),
    sa.Column("token", sa.String(40)),
    sa.Column("until_s", sa.Float(53), nullable=False),
)


# The tables that each version of the schema adds; the first starts from an empty database.
MIGRATIONS = ((_EVENTS, _TOKENS), (_SESSIONS,))


class EventRow(NamedTuple):
    """An event of the log."""

    seq: int
    at_s: float
    kind: str
    job: str | None
    body: dict[str, Any]


Append = Callable[[Sequence[EventRow]], None]  # stores all events or none


class TokenRow(NamedTuple):
    """A token, by its hash."""

    id: str
    user: str
    role: str
    hash: str
    created_s: float
    revoked_s: float | None


class SessionRow(NamedTuple):
    """A browser session, by the hash of its cookie."""

    hash: str
    user: str
    role: str
    token: str | None  # the id of the token that opened it; None for a one-time link
    until_s: float


class EventStore:
    """The event log, the tokens and the sessions."""

    def __init__(self, url: str) -> None:
        self.problem = ""  # why the log was not writable at the last check; empty if it was
        self.engine = _engine(url)
        self._acquired = False
        self._collision = ""  # the error that showed that another process has written
        try:
            with self.engine.begin() as connection:
                _migrate(connection)
            shown, database = shown_url(str(self.engine.url)), self.engine.url.database or ""
            in_files = self.engine.dialect.name == "sqlite"
            # An open connection makes SQLite keep its -wal and -shm files, whose identity is checked.
            self._open = self.engine.connect() if in_files else None
        except SQLAlchemyError as error:
            self.engine.dispose()
            raise StoreError(f"database {shown_url(url)}: {why(error)}") from None
        except StoreError:
            self.engine.dispose()
            raise
        self._files = writer_lock.DatabaseFiles(database if in_files else None)
        self._lock = writer_lock.FileLock(database, shown) if in_files else SessionLock(self.engine, shown)

    def acquire(self) -> None:
        """Acquire the writer lock, or verify that it is held; `OtherWriterError` if another process has it."""
        self._check_writer()
        with wrapped(WRITE):
            self._lock.acquire()
        self._acquired = True

    def append(self, rows: Sequence[EventRow]) -> None:
        """Store all events or none, durably."""
        with self.writing() as append:
            append(rows)

    @contextmanager
    def writing(self) -> Iterator[Append]:
        """Begin a write transaction, and yield the function that stores events.

        A locked database, or a lost writer lock, is detected before anything depends on it.
        """
        with ExitStack() as stack:
            connection = self._begin(stack)

            def append(rows: Sequence[EventRow]) -> None:
                values = [{**r._asdict(), "body": json.dumps(r.body)} for r in rows]
                if connection.invalidated:  # a new connection would not hold the lock
                    raise StoreError(f"{WRITE}: the connection was lost")
                try:
                    connection.execute(sa.insert(_EVENTS), values)
                    connection.commit()
                except SQLAlchemyError as error:
                    with suppress(SQLAlchemyError):
                        connection.rollback()
                    if isinstance(error, IntegrityError):  # an event with this number exists
                        self._collision = f"{WRITE}: another cranny serve writes it too ({why(error)})"
                        self._check_writer()
                    raise StoreError(f"{WRITE}: {why(error)}") from None
                self._files.check(WRITE)  # events in a deleted file would be lost

            yield append

    def check_writable(self) -> None:
        """Set `problem` to why the log is not writable now; another writer is an error."""
        try:
            with self.writing():
                pass
        except StoreError as error:
            if isinstance(error, OtherWriterError):
                raise

    def _begin(self, stack: ExitStack) -> sa.Connection:
        """Begin a transaction, under the writer lock if it was acquired."""
        try:
            with wrapped(WRITE):
                self._check_writer()
                if self._acquired and isinstance(self._lock, SessionLock):
                    connection = self._lock.begin()
                    stack.callback(self._lock.rollback)
                else:
                    if self._acquired:
                        self._lock.acquire()
                    self._files.check(WRITE)
                    connection = stack.enter_context(self.engine.connect().execution_options(writes=True))
                    connection.begin()
        except StoreError as error:
            if self.problem != str(error) and not isinstance(error, OtherWriterError):  # logged once
                _log.error("%s", error)
            self.problem = str(error)
            raise
        self.problem = ""
        return connection

    def _check_writer(self) -> None:
        """Raise once another process has written: the state in memory no longer matches the log."""
        if self._collision:
            raise OtherWriterError(self._collision)

    def last(self) -> int:
        """Return the number of the last event; 0 if there is none."""
        with self._reading() as connection:
            return int(connection.execute(sa.select(sa.func.max(_EVENTS.c.seq))).scalar() or 0)

    def read(self, after: int = 0, limit: int | None = None) -> Iterator[EventRow]:
        """Yield the events after a number, in order."""
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = sa.select(_EVENTS).where(_EVENTS.c.seq > after).order_by(_EVENTS.c.seq).limit(size)
            with self._reading() as connection:
                found = connection.execute(page).all()
            for seq, at_s, kind, job, body in found:
                yield EventRow(seq, at_s, kind, job, json.loads(body))
            if len(found) < size:
                return
            after = found[-1][0]
            left = None if left is None else left - len(found)

    def add_token(self, token: TokenRow) -> None:
        """Store a new token."""
        self._write(sa.insert(_TOKENS).values(token._asdict()))

    def revoke_token(self, token_id: str, now_s: float) -> bool:
        """Revoke a token; return whether a valid one was found."""
        valid = (_TOKENS.c.id == token_id) & _TOKENS.c.revoked_s.is_(None)
        return bool(self._write(sa.update(_TOKENS).where(valid).values(revoked_s=now_s)))

    def tokens(self) -> list[TokenRow]:
        """Return all tokens, the oldest first."""
        with self._reading() as connection:
            return [TokenRow(*row) for row in connection.execute(sa.select(_TOKENS).order_by(_TOKENS.c.created_s))]

    def add_session(self, session: SessionRow, now_s: float, most: int) -> None:
        """Store a session; delete expired ones, and the oldest beyond `most`."""
        newest = sa.select(_SESSIONS.c.hash).order_by(_SESSIONS.c.until_s.desc()).limit(most)
        over = (_SESSIONS.c.until_s <= now_s) | _SESSIONS.c.hash.not_in(newest)
        self._write(sa.insert(_SESSIONS).values(session._asdict()), sa.delete(_SESSIONS).where(over))

    def end_session(self, session_hash: str) -> None:
        """Delete a session."""
        self._write(sa.delete(_SESSIONS).where(_SESSIONS.c.hash == session_hash))

    def sessions(self) -> list[SessionRow]:
        """Return all sessions, also expired ones."""
        with self._reading() as connection:
            return [SessionRow(*row) for row in connection.execute(sa.select(_SESSIONS))]

    def close(self) -> None:
        """Release the writer lock and close the database."""
        self._lock.close()
        if self._open is not None:
            self._open.close()
        self.engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        failed = "the database cannot be read"
        self._files.check(failed)
        with wrapped(failed), self.engine.connect() as connection:
            yield connection

    def _write(self, *statements: Any) -> int:
        """Execute statements in one transaction; return how many rows the last one changed."""
        failed = "the database cannot be written"
        self._files.check(failed)
        with wrapped(failed), self.engine.begin() as connection:
            return [int(connection.execute(statement).rowcount) for statement in statements][-1]


def _engine(url: str) -> sa.Engine:
    """Connect to a database; a plain path means SQLite."""
    try:
        parsed = sa.make_url(url if "://" in url else f"sqlite:///{url}")
    except ArgumentError:
        raise InputError(f"--database: not a database URL: {shown_url(url)}") from None
    if parsed.drivername in {"postgresql", "postgres"}:
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise InputError("--database: the event log must be a file, not in memory")
        path = Path(parsed.database)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # commands may hold secrets
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_MS / 1000, "check_same_thread": False})
        sa.event.listen(engine, "connect", _wal)
        sa.event.listen(engine, "begin", _begin)
        return engine
    if parsed.get_backend_name() != "postgresql":
        raise InputError(f"--database: SQLite or PostgreSQL, not {parsed.get_backend_name()}")
    try:
        return sa.create_engine(parsed, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise MissingExtraError("--database: PostgreSQL", error.name) from None


def _wal(connection: Any, _record: object) -> None:
    """Let readers and the writer of a SQLite file work concurrently, and make every commit durable."""
    connection.isolation_level = None  # explicit transactions, so that creating tables is atomic too
    cursor = connection.cursor()
    cursor.execute("pragma journal_mode=wal")
    cursor.execute("pragma synchronous=full")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction; a writing one takes SQLite's write lock at once."""
    at_once = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("begin immediate" if at_once else "begin")


def _migrate(connection: sa.Connection) -> None:
    """Migrate a database to the current version, in one transaction."""
    _META.create_all(connection, [_VERSION])
    have = int(connection.execute(sa.select(sa.func.max(_VERSION.c.version))).scalar() or 0)
    if have == 0 and sa.inspect(connection).has_table(_EVENTS.name):
        raise StoreError("the database has events but no schema version; it was not written by cranny")
    if have > len(MIGRATIONS):
        raise StoreError(f"the database has schema version {have}; this cranny supports up to {len(MIGRATIONS)}")
    for version, added in enumerate(MIGRATIONS[have:], have + 1):
        _META.create_all(connection, added)
        connection.execute(sa.insert(_VERSION).values(version=version))


def shown_url(url: str) -> str:
    """Return the URL of a database without its password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except ArgumentError:
        return "(not a URL)"
