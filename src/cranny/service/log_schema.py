"""The tables of the database, and how one of an earlier version is migrated."""

from collections.abc import Callable, Iterable
from typing import Any

import sqlalchemy as sa

from cranny.service.event_chain import BEGIN, EventRow, StoredEvent
from cranny.service.writer_lock import StoreError

PAGE = 5_000  # events read at a time

_META = sa.MetaData()
_VERSION = sa.Table("cranny_schema", _META, sa.Column("version", sa.Integer, primary_key=True))
EVENTS = sa.Table(
    "cranny_events",
    _META,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_s", sa.Float(53), nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("job", sa.String(40), index=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.String(64)),
)
TOKENS = sa.Table(
    "cranny_tokens",
    _META,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("user", sa.String(100), nullable=False),
    sa.Column("role", sa.String(20), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("created_s", sa.Float(53), nullable=False),
    sa.Column("revoked_s", sa.Float(53)),
    sa.Column("expires_s", sa.Float(53)),
)
SNAPSHOTS = sa.Table(
    "cranny_snapshots",
    _META,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),  # of the last event that it has
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)
KEYS = sa.Table(
    "cranny_keys",  # of clients, also for jobs whose events are archived
    _META,
    sa.Column("user", sa.String(100), primary_key=True),
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("job", sa.String(40), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
)
SESSIONS = sa.Table(
    "cranny_sessions",
    _META,
    sa.Column("hash", sa.String(64), primary_key=True),
    sa.Column("user", sa.String(100), nullable=False),
    sa.Column("role", sa.String(20), nullable=False),
    sa.Column("token", sa.String(40)),
    sa.Column("until_s", sa.Float(53), nullable=False),
)

Part = sa.Table | sa.Column[Any] | Callable[[sa.Connection], None]  # of a migration to the next version


def version_of(connection: sa.Connection) -> int:
    """Return the version of the schema of a database; 0 if it is empty."""
    have, tables = 0, sa.inspect(connection)
    if tables.has_table(_VERSION.name):
        have = int(connection.execute(sa.select(sa.func.max(_VERSION.c.version))).scalar() or 0)
    if have == 0 and tables.has_table(EVENTS.name):
        raise StoreError("the database has events but no schema version; it was not written by cranny")
    if have > len(MIGRATIONS):
        raise StoreError(f"the database has schema version {have}; this cranny supports up to {len(MIGRATIONS)}")
    return have


def migrate(connection: sa.Connection) -> None:
    """Migrate a database to the current version, in one transaction."""
    have = version_of(connection)
    _META.create_all(connection, [_VERSION])
    for version, added in enumerate(MIGRATIONS[have:], have + 1):
        for part in added:
            _add(connection, part)
        connection.execute(sa.insert(_VERSION).values(version=version))


def _add(connection: sa.Connection, part: Part) -> None:
    """Create a table, or add a column to one that was created without it, or change what is stored."""
    if isinstance(part, sa.Table):
        _META.create_all(connection, [part])
    elif not isinstance(part, sa.Column):
        part(connection)
    elif part.name not in {column["name"] for column in sa.inspect(connection).get_columns(part.table.name)}:
        kind = part.type.compile(connection.dialect)
        connection.exec_driver_sql(f"alter table {part.table.name} add column {part.name} {kind}")


def _fill_in_hashes(connection: sa.Connection) -> None:
    """Begin the chain of hashes; it covers what is stored now."""
    head = BEGIN
    change = sa.update(EVENTS).where(EVENTS.c.seq == sa.bindparam("at")).values(hash=sa.bindparam("is"))
    while True:
        page = sa.select(EVENTS).where(EVENTS.c.seq > head.seq).order_by(EVENTS.c.seq).limit(PAGE)
        hashes = []
        for row in connection.execute(page).all():
            head = head.after(StoredEvent(*row))
            hashes.append({"at": head.seq, "is": head.hash})
        if not hashes:
            return
        connection.execute(change, hashes)


def client_keys(rows: Iterable[EventRow]) -> list[dict[str, str]]:
    """Return the clients' keys of submitted jobs."""
    submitted = ((row.job, row.body) for row in rows if row.kind == "submitted" and row.body.get("key"))
    return [{"user": b["user"], "key": b["key"], "job": str(job), "digest": b["digest"]} for job, b in submitted]


def _fill_in_keys(connection: sa.Connection) -> None:
    last = 0
    while True:
        wanted = (EVENTS.c.seq > last) & (EVENTS.c.kind == "submitted")
        found = connection.execute(sa.select(EVENTS).where(wanted).order_by(EVENTS.c.seq).limit(PAGE)).all()
        if not found:
            return
        last = found[-1][0]
        if keys := client_keys(StoredEvent(*row).parsed() for row in found):
            connection.execute(sa.insert(KEYS), keys)


# What each version of the schema adds or changes; the first starts from an empty database.
MIGRATIONS: tuple[tuple[Part, ...], ...] = (
    (EVENTS, TOKENS),
    (SESSIONS,),
    (EVENTS.c.hash, _fill_in_hashes),
    (SNAPSHOTS, KEYS, _fill_in_keys),
    (TOKENS.c.expires_s,),
)
