"""The event log in a database: the truth from which everything else is rebuilt. Only ever appended to.

Beside it are tokens and sessions, which say who may ask, as hashes.

SQLite in WAL mode by default, PostgreSQL by URL. One process writes; it takes a lock, and since it numbers the
events itself, a second writer could not get in between unnoticed.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from cranny.model.errors import CrannyError, InputError

BUSY_MS = 2_000  # how long another process may hold a SQLite database before we give up
TAKE_S = 1.0  # how long PostgreSQL may take to notice that a service was killed, and give its lock back
PAGE = 5_000  # events read at a time
LOCK_KEY = 0x6372616E6E79  # of the advisory lock in PostgreSQL: "cranny"

_META = MetaData()
_VERSION = Table("cranny_schema", _META, Column("version", Integer, primary_key=True))
_EVENTS = Table(
    "cranny_events",
    _META,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_s", Float(53), nullable=False),
    Column("kind", String(40), nullable=False),
    Column("job", String(40), index=True),
    Column("body", Text, nullable=False),
)
_TOKENS = Table(
    "cranny_tokens",
    _META,
    Column("id", String(40), primary_key=True),
    Column("user", String(100), nullable=False),
    Column("role", String(20), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("created_s", Float(53), nullable=False),
    Column("revoked_s", Float(53)),
)
_SESSIONS = Table(
    "cranny_sessions",
    _META,
    Column("hash", String(64), primary_key=True),
    Column("user", String(100), nullable=False),
    Column("role", String(20), nullable=False),
    Column("token", String(40)),
    Column("until_s", Float(53), nullable=False),
)


def _first(connection: Connection) -> None:
    """Make the tables of version 1."""
    _META.create_all(connection, [_EVENTS, _TOKENS])


def _second(connection: Connection) -> None:
    """Add sessions of browsers."""
    _META.create_all(connection, [_SESSIONS])


# What brings a database from one version to the next; the first makes an empty one version 1.
MIGRATIONS = (_first, _second)


class StoreError(CrannyError):
    """The event log cannot be read or written."""


class Row(NamedTuple):
    """An event of the log."""

    seq: int
    at_s: float
    kind: str
    job: str | None
    body: dict[str, Any]


Append = Callable[[Sequence[Row]], None]  # stores events, all or none


class TokenRow(NamedTuple):
    """A token, without what it looks like."""

    id: str
    user: str
    role: str
    hash: str
    created_s: float
    revoked_s: float | None


class SessionRow(NamedTuple):
    """A session of a browser, without what its cookie looks like."""

    hash: str
    user: str
    role: str
    token: str | None  # the id of the token that opened it; None if a one-time link did
    until_s: float


class Store:
    """The event log, the tokens and the sessions."""

    def __init__(self, url: str) -> None:
        self._lock: IO[bytes] | Connection | None = None
        self.engine = _engine(url)
        try:
            with self.engine.begin() as connection:
                _migrate(connection)
        except SQLAlchemyError as error:
            self.engine.dispose()
            raise StoreError(f"database {shown_url(url)}: {_why(error)}") from None
        except StoreError:
            self.engine.dispose()
            raise

    def take(self) -> None:
        """Become the only writer, or say that there is another."""
        busy = StoreError(f"database {shown_url(str(self.engine.url))}: another cranny serve is using it")
        if self.engine.dialect.name == "sqlite":
            # Not inherited by the processes of jobs, and gone when this process is, however it ends.
            lock = Path(f"{self.engine.url.database}.lock").open("ab")  # noqa: SIM115 - kept open
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                raise busy from None
            self._lock = lock
            return
        with _wrapped("the database cannot be read"):
            connection = self.engine.connect()
            until_s = time.monotonic() + TAKE_S
            while not connection.execute(text("select pg_try_advisory_lock(:key)"), {"key": LOCK_KEY}).scalar():
                if time.monotonic() > until_s:
                    connection.close()
                    raise busy
                time.sleep(TAKE_S / 20)
            connection.commit()  # the lock belongs to the session, not to the transaction
        self._lock = connection

    def append(self, rows: Sequence[Row]) -> None:
        """Store events, all or none; when this returns they survive a crash."""
        with self.writing() as append:
            append(rows)

    @contextmanager
    def writing(self) -> Iterator[Append]:
        """Wait until nobody else writes, and yield what stores events; a locked database is noticed here."""
        failed = "the event log cannot be written"
        with ExitStack() as stack:
            with _wrapped(failed):
                connection = stack.enter_context(self.engine.connect().execution_options(writes=True))
                connection.begin()

            def append(rows: Sequence[Row]) -> None:
                values = [{**r._asdict(), "body": json.dumps(r.body)} for r in rows]
                with _wrapped(failed):
                    connection.execute(insert(_EVENTS), values)
                    connection.commit()

            yield append

    def last(self) -> int:
        """Return the number of the last event; 0 if there is none."""
        with self._reading() as connection:
            return int(connection.execute(select(func.max(_EVENTS.c.seq))).scalar() or 0)

    def read(self, after: int = 0, limit: int | None = None) -> Iterator[Row]:
        """Yield the events after a number, in order."""
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = select(_EVENTS).where(_EVENTS.c.seq > after).order_by(_EVENTS.c.seq).limit(size)
            with self._reading() as connection:
                found = connection.execute(page).all()
            for seq, at_s, kind, job, body in found:
                yield Row(seq, at_s, kind, job, json.loads(body))
            if len(found) < size:
                return
            after = found[-1][0]
            left = None if left is None else left - len(found)

    def add_token(self, token: TokenRow) -> None:
        """Store a new token."""
        self._write(insert(_TOKENS).values(token._asdict()))

    def revoke_token(self, token_id: str, now_s: float) -> bool:
        """Let a token no longer count; say whether there was one."""
        valid = (_TOKENS.c.id == token_id) & _TOKENS.c.revoked_s.is_(None)
        return bool(self._write(update(_TOKENS).where(valid).values(revoked_s=now_s)))

    def tokens(self) -> list[TokenRow]:
        """Return all tokens, the oldest first."""
        with self._reading() as connection:
            return [TokenRow(*row) for row in connection.execute(select(_TOKENS).order_by(_TOKENS.c.created_s))]

    def add_session(self, session: SessionRow, now_s: float, most: int) -> None:
        """Store a new session; those that are over go, and the oldest if there are too many."""
        newest = select(_SESSIONS.c.hash).order_by(_SESSIONS.c.until_s.desc()).limit(most)
        over = (_SESSIONS.c.until_s <= now_s) | _SESSIONS.c.hash.not_in(newest)
        self._write(insert(_SESSIONS).values(session._asdict()), delete(_SESSIONS).where(over))

    def end_session(self, session_hash: str) -> None:
        """Forget a session."""
        self._write(delete(_SESSIONS).where(_SESSIONS.c.hash == session_hash))

    def sessions(self) -> list[SessionRow]:
        """Return all sessions, also those whose time or token is over."""
        with self._reading() as connection:
            return [SessionRow(*row) for row in connection.execute(select(_SESSIONS))]

    def close(self) -> None:
        """Let the database go."""
        if self._lock is not None:
            self._lock.close()
        self.engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _wrapped("the database cannot be read"), self.engine.connect() as connection:
            yield connection

    def _write(self, *statements: Any) -> int:
        """Change something in one transaction; return how many rows the last statement changed."""
        with _wrapped("the database cannot be written"), self.engine.begin() as connection:
            return [int(connection.execute(statement).rowcount) for statement in statements][-1]


def _engine(url: str) -> Engine:
    """Connect to a database; a plain path means SQLite."""
    try:
        parsed = make_url(url if "://" in url else f"sqlite:///{url}")
    except ArgumentError:
        raise InputError(f"--database: not a URL of a database: {shown_url(url)}") from None
    if parsed.drivername in {"postgresql", "postgres"}:
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise InputError("--database: the log must be kept in a file")
        path = Path(parsed.database)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # commands may hold secrets
        engine = create_engine(parsed, connect_args={"timeout": BUSY_MS / 1000, "check_same_thread": False})
        event.listen(engine, "connect", _wal)
        event.listen(engine, "begin", _begin)
        return engine
    if parsed.get_backend_name() != "postgresql":
        raise InputError(f"--database: SQLite or PostgreSQL, not {parsed.get_backend_name()}")
    try:
        return create_engine(parsed, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise InputError(f"--database: PostgreSQL needs {error.name!r}: pip install 'cranny[service]'") from None


def _wal(connection: Any, _record: object) -> None:
    """Let readers and the writer of a SQLite file work side by side, and every commit reach the disk."""
    connection.isolation_level = None  # transactions are begun by us, so that tables too are made whole or not
    cursor = connection.cursor()
    cursor.execute("pragma journal_mode=wal")
    cursor.execute("pragma synchronous=full")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Begin a transaction; the loop's takes the right to write at once, before anything depends on it."""
    at_once = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("begin immediate" if at_once else "begin")


def _migrate(connection: Connection) -> None:
    """Bring a database to the present version, in one transaction."""
    _META.create_all(connection, [_VERSION])
    have = int(connection.execute(select(func.max(_VERSION.c.version))).scalar() or 0)
    if have == 0 and inspect(connection).has_table(_EVENTS.name):
        raise StoreError("the database has events but no version; it was not written by cranny")
    if have > len(MIGRATIONS):
        raise StoreError(f"the database is of version {have}; this cranny knows up to {len(MIGRATIONS)}")
    for number in range(have, len(MIGRATIONS)):
        MIGRATIONS[number](connection)
        connection.execute(insert(_VERSION).values(version=number + 1))


def shown_url(url: str) -> str:
    """Show where a database is, without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except ArgumentError:
        return "(not a URL)"


@contextmanager
def _wrapped(failed: str) -> Iterator[None]:
    """Say what failed where the database complains."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"{failed}: {_why(error)}") from None


def _why(error: SQLAlchemyError) -> str:
    """Say in one line what a database complains about."""
    origin = getattr(error, "orig", None) or error
    return " ".join(str(origin).split())
