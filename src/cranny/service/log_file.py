"""Files of event logs: backups of a whole database, and archives of old events; compressed lines of JSON.

The first line says what the file holds. Events carry their hashes, so that a file can be verified by itself.
"""

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from cranny.model.errors import InputError
from cranny.service.event_chain import ChainHead, StoredEvent, verified
from cranny.service.log_schema import EVENTS, KEYS, PAGE, SNAPSHOTS, TOKENS
from cranny.service.log_snapshot import first_head
from cranny.service.store import EventStore
from cranny.service.writer_lock import LogIntegrityError, wrapped

FORMAT = "cranny event log, version 1"
TABLES = {table.name: table for table in (EVENTS, KEYS, SNAPSHOTS, TOKENS)}  # sessions end with a restore
LEVEL = 6  # of compression


class LogFileHeader(NamedTuple):
    """What a file holds."""

    begin: ChainHead  # the event before its first one
    head: ChainHead  # its last event
    columns: dict[str, list[str]]  # of each table


def write_log_file(path: Path, header: LogFileHeader, rows: Iterable[tuple[str, Iterable[Any]]]) -> None:
    """Write a file, whole or not at all; it is for its owner only, since commands may hold secrets."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)  # of a backup that was interrupted, or of another user, who could read it
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw:
            with gzip.open(raw, "wt", LEVEL, encoding="utf-8") as file:
                file.write(json.dumps({"format": FORMAT, **header._asdict()}) + "\n")
                for table, row in rows:
                    file.write(json.dumps([table, *row]) + "\n")
            raw.flush()
            os.fsync(raw.fileno())
        fresh.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    except TypeError as error:  # bytes, where others have written into the database
        raise LogIntegrityError(f"the database was altered: {error}") from None


def read_log_file(path: Path) -> tuple[LogFileHeader, Iterator[tuple[str, list[Any]]]]:
    """Return the header of a file, and its rows with the names of their tables."""
    lines = _lines(path)
    header = next(lines, None)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{path}: not a file of `cranny log backup` or `cranny log archive`")
    match header:
        case {"begin": [int(), str()] as begin, "head": [int(), str()] as head, "columns": dict(columns)}:
            known = LogFileHeader(ChainHead(*begin), ChainHead(*head), columns)
            widths = {name: len(each) for name, each in columns.items() if isinstance(each, list)}
            return known, _rows(path, lines, widths)
    raise InputError(f"{path}: line 1 does not say what the file holds")


def _rows(path: Path, lines: Iterator[Any], widths: Mapping[str, int]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the rows of a file; one of no table, with other columns, or an event of other types is refused."""
    for number, line in enumerate(lines, 2):
        match line:
            case [str(table), *row] if table in TABLES and len(row) == widths.get(table) and _possible(table, row):
                yield table, row
            case _:
                raise InputError(f"{path}: line {number} is no row of a table of a log")


def _possible(table: str, row: list[Any]) -> bool:
    """Say whether a row may be one of its table; other tables than that of events are checked by the database."""
    match row:
        case [int(), int() | float(), str(), str() | None, str(), str() | None]:
            return True
    return table != EVENTS.name


def _lines(path: Path) -> Iterator[Any]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    raise InputError(f"{path}: line {number} is not JSON") from None
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def verify_log_file(path: Path) -> LogFileHeader:
    """Verify the events of a file; return its header."""
    header, rows = read_log_file(path)
    _checked_end(
        path, header, verified((StoredEvent(*row) for table, row in rows if table == EVENTS.name), header.begin)
    )
    return header


def _checked_end(path: Path, header: LogFileHeader, events: Iterable[StoredEvent]) -> None:
    last = header.begin
    for event in events:
        last = ChainHead(event.seq, event.hash or "")
    if last != header.head:
        raise LogIntegrityError(f"{path}: ends at event {last.seq} instead of {header.head.seq}")


def backup(store: EventStore, path: Path) -> LogFileHeader:
    """Write the whole database to a file, as of one moment; a service may go on writing it."""
    begin = first_head(store)
    with store.reading() as connection:
        if connection.dialect.name == "postgresql":  # SQLite reads as of one moment by itself
            connection.rollback()
            connection.execution_options(isolation_level="REPEATABLE READ")
        last = connection.execute(
            sa.select(EVENTS.c.seq, EVENTS.c.hash).order_by(EVENTS.c.seq.desc()).limit(1)
        ).first()
        head = begin if last is None else ChainHead(*last)
        header = LogFileHeader(begin, head, {name: table.columns.keys() for name, table in TABLES.items()})
        write_log_file(path, header, _all_rows(connection, begin.seq))
    return header


def _all_rows(connection: sa.Connection, after: int) -> Iterator[tuple[str, Iterable[Any]]]:
    """Yield the rows of all tables; events up to `after` are in an archive."""
    for name, table in TABLES.items():
        every = sa.select(table).order_by(*table.primary_key.columns)
        if table is EVENTS:
            every = every.where(EVENTS.c.seq > after)
        for row in connection.execution_options(yield_per=PAGE).execute(every):
            yield name, row


def restore(store: EventStore, path: Path) -> LogFileHeader:
    """Fill an empty database from a backup, all or nothing."""
    verify_log_file(path)
    header, rows = read_log_file(path)
    filling = store.engine.connect().execution_options(writes=True)
    with wrapped("the database cannot be filled"), filling as connection, connection.begin():
        if connection.execute(sa.select(sa.func.count()).select_from(EVENTS)).scalar():
            raise InputError("--database: has events already; restore into an empty one")
        batch: list[dict[str, Any]] = []
        filled = ""
        for name, row in rows:
            if batch and (name != filled or len(batch) >= PAGE):
                connection.execute(sa.insert(TABLES[filled]), batch)
                batch = []
            filled = name
            known = zip(header.columns[name], row, strict=True)
            batch.append({column: value for column, value in known if column in TABLES[name].columns})
        if batch:
            connection.execute(sa.insert(TABLES[filled]), batch)
    return header
