"""The event log in a database: append-only, the source from which all other state is rebuilt.

Tokens and sessions are stored beside it, as hashes.

SQLite in WAL mode by default, PostgreSQL by URL. One process writes: it holds a lock, and since it numbers events
itself, a second writer would collide with its numbers. Every event carries a hash (see `event_chain`), and before
each write the log must end where this process left it.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from cranny.service import writer_lock
from cranny.service.database import connect, shown_url
from cranny.service.disk_reserve import DiskReserve
from cranny.service.event_chain import BEGIN, ChainHead, EventRow, StoredEvent, linked, verified
from cranny.service.log_schema import (
    EVENTS,
    KEYS,
    MIGRATIONS,
    PAGE,
    SESSIONS,
    TOKENS,
    client_keys,
    migrate,
    version_of,
)
from cranny.service.writer_lock import (
    WRITE,
    LogIntegrityError,
    OtherWriterError,
    SessionLock,
    StoreError,
    failure,
    why,
    wrapped,
)

# What is written to see whether there is space again: more than the pages of a table have left.
TRIED = 1_500  # bytes of a row, which PostgreSQL stores as they are
TRIED_ROWS = 40

_log = logging.getLogger("cranny.service")

T = TypeVar("T")
Append = Callable[[Sequence[EventRow]], None]  # stores all events or none


class TokenRow(NamedTuple):
    """A token, by its hash."""

    id: str
    user: str
    role: str
    hash: str
    created_s: float
    revoked_s: float | None
    expires_s: float | None = None  # None if it is valid until it is revoked


class SessionRow(NamedTuple):
    """A browser session, by the hash of its secret."""

    hash: str
    user: str
    role: str
    token: str | None  # the id of the token that opened it; None for a one-time link
    until_s: float


class EventStore:
    """The event log, the tokens and the sessions."""

    def __init__(self, url: str, *, only_read: bool = False) -> None:
        """Open a database; one that is only read must exist, and is not migrated."""
        self.problem = ""  # why the log was not writable at the last check; empty if it was
        self._failed = ""  # why the last write failed, as on a full disk of PostgreSQL; empty if it did not
        self.engine = connect(url, existing=only_read)
        self.head: ChainHead | None = None  # where the log ends; None before it was looked at
        self._acquired = False
        self._uncertain: ChainHead | None = None  # where it ends if a write that failed was stored all the same
        self._broken: LogIntegrityError | None = None  # what showed that the log is no longer this process's own
        shown, database = shown_url(str(self.engine.url)), self.engine.url.database or ""
        in_files = self.engine.dialect.name == "sqlite"
        self._lock = writer_lock.FileLock(database, shown) if in_files else SessionLock(self.engine, shown)
        try:
            self._migrate(only_read=only_read)
            # An open connection makes SQLite keep its -wal and -shm files, whose identity is checked.
            self._open = self.engine.connect() if in_files else None
        except SQLAlchemyError as error:
            self.engine.dispose()
            raise failure(f"database {shown_url(url)}", error) from None
        except StoreError:
            self.engine.dispose()
            raise
        self._files = writer_lock.DatabaseFiles(database if in_files else None)
        self.reserve = DiskReserve(database if in_files else None)

    def _migrate(self, *, only_read: bool) -> None:
        """Migrate the database if it is of an earlier version; not while another process writes it."""
        with self.engine.begin() as connection:
            have = version_of(connection)
        if have == len(MIGRATIONS):
            return
        if only_read:
            known = f"has schema version {have}, of an earlier cranny; `cranny serve` migrates it"
            raise StoreError(f"the database {known if have else 'has no event log of cranny'}")
        if have:
            self._lock.acquire()
        try:
            with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
                migrate(connection)
        finally:
            self._lock.close()

    def acquire(self) -> None:
        """Acquire the writer lock, or verify that it is held; `OtherWriterError` if another process has it.

        From then on the log must end where it ended last, or with what this process has written.
        """
        self._check_writer()
        with wrapped(WRITE):
            self._lock.acquire()
        self._acquired = True
        with self.reading() as connection:
            self._check_head(connection)

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
                if not rows:
                    return
                events = linked(rows, self.head or BEGIN)
                if connection.invalidated:  # a new connection would not hold the lock
                    raise StoreError(f"{WRITE}: the connection was lost")
                self._uncertain = ChainHead(events[-1].seq, events[-1].hash or "")

                def insert() -> None:
                    connection.execute(sa.insert(EVENTS), [event._asdict() for event in events])
                    if keys := client_keys(rows):
                        connection.execute(sa.insert(KEYS), keys)

                try:
                    self._commit(connection, insert)
                except SQLAlchemyError as error:
                    if isinstance(error, IntegrityError):  # an event with this number exists
                        self._broken = OtherWriterError(
                            f"{WRITE}: another cranny serve writes it too ({why(error)})"
                        )
                        self._check_writer()
                    raise StoreError(f"{WRITE}: {why(error)}") from None
                self._files.check(WRITE)  # events in a deleted file would be lost
                self.head = self._uncertain

            yield append

    def check_writable(self) -> None:
        """Set `problem` to why the log is not writable now; another writer, or an altered log, is an error."""
        self.reserve.fill()
        try:
            with ExitStack() as stack:
                connection = self._begin(stack)
                if self._failed:
                    self._try_again(connection)
        except LogIntegrityError:
            raise
        except StoreError:
            return

    def _try_again(self, connection: sa.Connection) -> None:
        """After a write that failed, try another that takes space, and undo it: the disk may be elsewhere."""
        row = {"at_s": 0.0, "kind": "try", "body": secrets.token_hex(TRIED // 2)}
        after = 0 if self.head is None else self.head.seq
        try:
            connection.execute(
                sa.insert(EVENTS), [{**row, "seq": after + each} for each in range(1, TRIED_ROWS + 1)]
            )
        except SQLAlchemyError:
            return
        finally:
            with suppress(SQLAlchemyError):
                connection.rollback()
        self._failed = self.problem = ""

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
                self._check_head(connection)
        except StoreError as error:
            if self.problem != str(error) and not isinstance(error, LogIntegrityError):  # logged once
                _log.error("%s", error)
            self.problem = str(error)
            raise
        self.problem = self._failed
        return connection

    @property
    def ended(self) -> bool:
        """Whether this process must not write any more: another has written, or the log was altered."""
        return self._broken is not None

    def _check_writer(self) -> None:
        """Raise once another process has written: the state in memory no longer matches the log."""
        if self._broken is not None:
            raise self._broken

    def _check_head(self, connection: sa.Connection) -> None:
        """Refuse a log that does not end where this process left it."""
        found, known = _head(connection), self.head
        if known is None or found == self._uncertain:  # which may have been stored before its error came
            self.head = known = found
        self._uncertain = None
        if found.seq > known.seq:
            text = f"another cranny serve writes it too (event {known.seq + 1} is not of this one)"
            self._broken = OtherWriterError(f"{WRITE}: {text}")
        elif found != known:
            self._broken = LogIntegrityError(f"{WRITE}: {_not_there(known, found)}")
        self._check_writer()

    def check_holds(self, known: ChainHead, where: str) -> None:
        """Raise if the log does not hold an event of which is known, from elsewhere, that it was stored."""
        with self.reading() as connection:
            first = connection.execute(sa.select(sa.func.min(EVENTS.c.seq))).scalar()
            stored = connection.execute(sa.select(EVENTS.c.hash).where(EVENTS.c.seq == known.seq)).scalar()
            last = _head(connection)
        archived = first is not None and known.seq < first
        if known.seq > last.seq or (stored != known.hash and not archived):
            found = last if known.seq > last.seq else ChainHead(known.seq, stored or "")
            raise LogIntegrityError(f"{_not_there(known, found)}; {where} knows of it")

    def last(self) -> int:
        """Return the number of the last event; 0 if there is none."""
        with self.reading() as connection:
            return _head(connection).seq

    def read(self, after: int = 0, limit: int | None = None) -> Iterator[EventRow]:
        """Yield the events after a number, in order."""
        return (event.parsed() for event in self.stored(after, limit))

    def verified(self, after: ChainHead = BEGIN) -> Iterator[EventRow]:
        """Yield the events after one in order; raise at the first that is missing or altered, also at the end."""
        last = after
        for event in verified(self.stored(after.seq), after):
            last = ChainHead(event.seq, event.hash or "")
            yield event.parsed()
        if self.head is not None and last != self.head:
            raise LogIntegrityError(_not_there(self.head, last))

    def events_of(self, job_id: str, *, with_clusters: bool = False) -> list[EventRow]:
        """Return the events of a job, in order, with those in between that may say which cluster it is on."""
        of_job = EVENTS.c.job == job_id
        if with_clusters:
            of_job |= EVENTS.c.job.is_(None) & EVENTS.c.kind.in_(("opened", "cluster"))
        own = sa.select(EVENTS).where(of_job).order_by(EVENTS.c.seq)
        with self.reading() as connection:
            return [StoredEvent(*row).parsed() for row in connection.execute(own)]

    def first_layout(self) -> Any:
        """Return the first cluster that the log names, as values; None if it names none."""
        # Few events are of no job, and there is an index of jobs: the log is not read for it.
        of = EVENTS.c.job.is_(None) & (EVENTS.c.kind == "opened") & EVENTS.c.body.contains('"layout"')
        with self.reading() as connection:
            found = connection.execute(sa.select(EVENTS).where(of).order_by(EVENTS.c.seq).limit(1)).first()
        return None if found is None else StoredEvent(*found).parsed().body["layout"]

    def find_key(self, user: str, key: str) -> tuple[str, str] | None:
        """Return the job that was submitted with a client's key, and the digest of its body."""
        own = sa.select(KEYS.c.job, KEYS.c.digest).where((KEYS.c.user == user) & (KEYS.c.key == key))
        with self.reading() as connection:
            found = connection.execute(own).first()
        return None if found is None else (found[0], found[1])

    def stored(self, after: int = 0, limit: int | None = None) -> Iterator[StoredEvent]:
        """Yield the events after a number as they are stored, in order."""
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = sa.select(EVENTS).where(EVENTS.c.seq > after).order_by(EVENTS.c.seq).limit(size)
            with self.reading() as connection:
                found = connection.execute(page).all()
            yield from (StoredEvent(*row) for row in found)
            if len(found) < size:
                return
            after = found[-1][0]
            left = None if left is None else left - len(found)

    def latest(self, kinds: Collection[str], before: int | None, most: int) -> list[EventRow]:
        """Return the latest events of some kinds, before one if that is given; the latest first."""
        wanted = sa.select(EVENTS).where(EVENTS.c.kind.in_(kinds)).order_by(EVENTS.c.seq.desc()).limit(most)
        if before is not None:
            wanted = wanted.where(EVENTS.c.seq < before)
        with self.reading() as connection:
            return [StoredEvent(*row).parsed() for row in connection.execute(wanted)]

    def add_token(self, token: TokenRow) -> None:
        """Store a new token."""
        self.write(sa.insert(TOKENS).values(token._asdict()))

    def revoke_token(self, token_id: str, now_s: float) -> bool:
        """Revoke a token; return whether a valid one was found."""
        valid = (TOKENS.c.id == token_id) & TOKENS.c.revoked_s.is_(None)
        return bool(self.write(sa.update(TOKENS).where(valid).values(revoked_s=now_s)))

    def tokens(self) -> list[TokenRow]:
        """Return all tokens, the oldest first."""
        with self.reading() as connection:
            return [TokenRow(*row) for row in connection.execute(sa.select(TOKENS).order_by(TOKENS.c.created_s))]

    def add_session(self, session: SessionRow, now_s: float, most: int) -> None:
        """Store a session; delete expired ones, and the oldest of the same user beyond `most`."""
        own = SESSIONS.c.user == session.user
        newest = sa.select(SESSIONS.c.hash).where(own).order_by(SESSIONS.c.until_s.desc()).limit(most)
        over = (SESSIONS.c.until_s <= now_s) | (own & SESSIONS.c.hash.not_in(newest))
        self.write(sa.insert(SESSIONS).values(session._asdict()), sa.delete(SESSIONS).where(over))

    def end_session(self, session_hash: str) -> None:
        """Delete a session."""
        self.write(sa.delete(SESSIONS).where(SESSIONS.c.hash == session_hash))

    def sessions(self) -> list[SessionRow]:
        """Return all sessions, also expired ones."""
        with self.reading() as connection:
            return [SessionRow(*row) for row in connection.execute(sa.select(SESSIONS))]

    def close(self) -> None:
        """Release the writer lock and close the database."""
        self._lock.close()
        if self._open is not None:
            self._open.close()
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Yield a connection to read from."""
        failed = "the database cannot be read"
        self._files.check(failed)
        with wrapped(failed), self.engine.connect() as connection:
            yield connection

    def write(self, *statements: Any) -> int:
        """Execute statements in one transaction; return how many rows the last one changed."""
        failed = "the database cannot be written"
        self._files.check(failed)
        with wrapped(failed), self.engine.connect() as connection:
            return self._commit(
                connection, lambda: [int(connection.execute(statement).rowcount) for statement in statements][-1]
            )

    def _commit(self, connection: sa.Connection, execute: Callable[[], T]) -> T:
        """Execute statements and commit them; on a full disk, with space of the reserve while there is some."""
        while True:
            try:
                done = execute()
                connection.commit()
            except SQLAlchemyError as error:
                with suppress(SQLAlchemyError):
                    connection.rollback()
                if "disk" not in why(error) or not self.reserve.release():  # "disk is full", "disk I/O error"
                    if not isinstance(error, IntegrityError):
                        self._failed = self.problem = f"{WRITE}: {why(error)}"
                    raise
            else:
                self._failed = self.problem = ""
                return done


def _head(connection: sa.Connection) -> ChainHead:
    """Return where the log ends."""
    last = sa.select(EVENTS.c.seq, EVENTS.c.hash).order_by(EVENTS.c.seq.desc()).limit(1)
    found = connection.execute(last).first()
    return BEGIN if found is None else ChainHead(found[0], found[1] or "")


def _not_there(known: ChainHead, found: ChainHead) -> str:
    """Say that an event which was stored is gone, or another one."""
    if found.seq < known.seq:
        return (
            f"the event log ends at event {found.seq}, but event {known.seq} was stored: the database was rolled "
            "back, for example to a backup or a replica that lags behind"
        )
    return (
        f"event {known.seq} of the event log is not the one that was stored: the database was altered or exchanged"
    )
