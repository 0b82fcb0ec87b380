"""Connections to the database of the event log: SQLite in WAL mode, or PostgreSQL."""

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from cranny.model.errors import InputError, MissingExtraError

BUSY_MS = 2_000  # how long to wait for another process that has locked a SQLite database


def connect(url: str, *, existing: bool = False) -> sa.Engine:
    """Connect to a database; a plain path means SQLite, whose file is created unless it must exist."""
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
        if existing and not path.is_file():
            raise InputError(f"--database: {path}: there is no such file")
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


def shown_url(url: str) -> str:
    """Return the URL of a database without its password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except ArgumentError:
        return "(not a URL)"
