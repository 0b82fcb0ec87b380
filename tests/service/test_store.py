"""The event log in a database."""

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from cranny.model.errors import InputError
from cranny.service.database import shown_url
from cranny.service.event_chain import EventRow
from cranny.service.store import EventStore, SessionRow, TokenRow
from cranny.service.writer_lock import LogIntegrityError, OtherWriterError, StoreError


def row(seq: int, kind: str = "drained") -> EventRow:
    return EventRow(seq, float(seq), kind, None, {"machine": 0, "text": "ä\u0000\ud800"})


def test_events_come_back_as_they_went_in(url: str) -> None:
    store = EventStore(url)
    store.append([row(1), row(2)])
    store.append([row(3)])
    store.close()
    again = EventStore(url)
    assert list(again.read()) == [row(1), row(2), row(3)]
    assert list(again.read(after=1, limit=1)) == [row(2)]
    assert again.last() == 3
    again.close()


def test_events_are_numbered_without_gaps_or_nothing_of_them_is_stored(url: str) -> None:
    store = EventStore(url)
    store.append([row(1)])
    with store.writing() as append:
        for rows in ([row(2), row(1)], [row(3)], [row(2), row(4)], [row(1)]):
            with pytest.raises(LogIntegrityError, match="cannot be stored after"):
                append(rows)
        append([row(2)])
    assert [found.seq for found in store.read()] == [1, 2]
    store.close()


def test_a_number_that_another_took_without_the_lock_ends_the_writer(url: str) -> None:
    store, other = EventStore(url), EventStore(url)
    store.append([row(1)])
    other.append([row(2)])
    for _ in range(2):
        with pytest.raises(OtherWriterError, match=r"cannot be written: another cranny serve writes it too"):
            store.append([row(2)])
    assert [found.seq for found in store.read()] == [1, 2]
    store.close()
    other.close()


def test_tokens_are_kept_and_revoked(url: str) -> None:
    store = EventStore(url)
    store.add_token(TokenRow("id", "ann", "user", "0" * 64, 1.0, None))
    assert store.revoke_token("id", 2.0)
    assert not store.revoke_token("id", 3.0)
    assert store.tokens() == [TokenRow("id", "ann", "user", "0" * 64, 1.0, 2.0)]
    store.close()


def test_sessions_are_kept_until_they_end_or_are_too_many(url: str) -> None:
    store = EventStore(url)
    first, second, third = (SessionRow(str(n) * 64, "ann", "user", None, 10.0 + n) for n in range(3))
    store.add_session(first, 0.0, most=2)
    store.add_session(second, 0.0, most=2)
    store.close()
    store = EventStore(url)
    assert sorted(store.sessions()) == [first, second]
    store.add_session(third, 0.0, most=2)
    assert sorted(store.sessions()) == [second, third]
    store.end_session(third.hash)
    assert store.sessions() == [second]
    store.add_session(third, 11.0, most=2)
    assert store.sessions() == [third]  # the time of the other is over
    for number in range(3, 8):  # sessions of another user
        store.add_session(SessionRow(str(number) * 64, "bob", "user", None, 20.0 + number), 11.0, most=2)
    assert [row.user for row in sorted(store.sessions())] == ["ann", "bob", "bob"]
    store.close()


def test_a_database_of_version_1_is_brought_to_the_present(url: str) -> None:
    store = EventStore(url)
    store.append([row(1)])
    with store.engine.begin() as connection:  # as it was before there were sessions
        connection.execute(text("drop table cranny_sessions"))
        connection.execute(text("alter table cranny_tokens drop column expires_s"))
        connection.execute(text("delete from cranny_schema where version > 1"))
    store.close()
    again = EventStore(url)
    assert list(again.read()) == [row(1)]
    assert again.sessions() == []
    token = TokenRow("id", "ann", "user", "0" * 64, 1.0, None, 2.0)
    again.add_token(token)
    assert again.tokens() == [token]
    again.close()


def test_a_database_of_a_newer_cranny_is_refused(url: str) -> None:
    store = EventStore(url)
    with store.engine.begin() as connection:
        connection.execute(text("insert into cranny_schema values (99)"))
    store.close()
    with pytest.raises(StoreError, match="version 99"):
        EventStore(url)


def test_only_one_postgresql_writer_at_a_time(postgres: str) -> None:
    first, second = EventStore(postgres), EventStore(postgres)
    first.acquire()
    with pytest.raises(OtherWriterError, match="another cranny serve"):
        second.acquire()
    first.acquire()  # it still is
    first.close()
    second.acquire()
    second.close()


def end_sessions(url: str) -> list[int]:
    """Let PostgreSQL end all sessions that use a database, as when it is restarted; return which."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        ended = connection.execute(
            "select pid, pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        return [pid for pid, _ in ended]


def test_a_postgresql_writer_whose_session_ended_takes_the_lock_again_before_it_writes(postgres: str) -> None:
    first, second = EventStore(postgres), EventStore(postgres)
    first.acquire()
    first.append([row(1)])
    assert end_sessions(postgres)
    first.append([row(2)])
    with pytest.raises(OtherWriterError, match="another cranny serve is using it"):
        second.acquire()
    assert end_sessions(postgres)
    first.check_writable()  # though there is nothing to write
    with pytest.raises(OtherWriterError, match="another cranny serve is using it"):
        second.acquire()
    assert [found.seq for found in second.read()] == [1, 2]
    first.close()
    second.close()


def test_a_postgresql_writer_writes_again_after_a_statement_was_cancelled(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EventStore(postgres)
    store.acquire()
    store.append([row(1)])
    right = Connection.exec_driver_sql

    def too_long(connection: Connection, _statement: str) -> Any:
        return right(connection, "set local statement_timeout = 1; select pg_sleep(1)")

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "exec_driver_sql", too_long)
        with pytest.raises(StoreError, match="statement timeout"):
            store.append([row(2)])
    store.append([row(2)])
    store.close()


def test_a_postgresql_writer_that_lost_its_lock_to_another_writes_no_more(postgres: str) -> None:
    first, second = EventStore(postgres), EventStore(postgres)
    first.acquire()
    first.append([row(1)])
    end_sessions(postgres)
    second.acquire()
    second.append([row(2)])
    for _ in range(2):
        with pytest.raises(OtherWriterError, match="another cranny serve is using it"):
            first.append([row(7)])
        with pytest.raises(OtherWriterError, match="another cranny serve is using it"):
            first.check_writable()
    second.close()  # it came, wrote and went
    with pytest.raises(OtherWriterError, match=r"another cranny serve writes it too"):
        first.append([row(2)])
    assert [found.seq for found in first.read()] == [1, 2]
    first.close()


def test_a_session_that_is_lost_in_the_midst_of_writing_is_not_replaced_unnoticed(postgres: str) -> None:
    first, second = EventStore(postgres), EventStore(postgres)
    first.acquire()
    with first.writing() as append:
        append([row(1)])
        end_sessions(postgres)
        for _ in range(2):
            with pytest.raises(StoreError, match="cannot be written"):
                append([row(2)])
        second.acquire()
        with pytest.raises(StoreError, match="cannot be written"):
            append([row(2)])
    assert [found.seq for found in second.read()] == [1]
    first.close()
    second.close()


def test_a_writer_is_not_taken_for_another_when_postgresql_has_not_noticed_that_its_session_is_over(
    postgres: str,
) -> None:
    store = EventStore(postgres)
    store.acquire()
    with store.writing() as append:
        append([row(1)])
    held: Any = store._lock
    raw = held._held.connection.dbapi_connection
    pid = raw.info.backend_pid
    os.kill(pid, signal.SIGSTOP)  # so it cannot notice anything
    try:
        with socket.socket(fileno=os.dup(raw.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
        with pytest.raises(
            StoreError, match="an earlier connection of this service still holds the lock"
        ) as refused:
            store.append([row(2)])
        assert not isinstance(refused.value, OtherWriterError)
        assert "earlier connection" in store.problem
    finally:
        os.kill(pid, signal.SIGCONT)
    store.append([row(2)])
    assert store.problem == ""
    assert [found.seq for found in store.read()] == [1, 2]
    store.close()


@contextmanager
def another(path: Path) -> Iterator[None]:
    """Let another process be the only writer; locks of files are between processes."""
    begin = f"from cranny.service.store import EventStore; store = EventStore({str(path)!r}); store.acquire()"
    code = f"{begin}; print('taken', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.readline()
        if said != "taken\n":
            raise StoreError(process.stderr.read())
        yield
        process.communicate("\n", timeout=60)


def test_a_sqlite_writer_whose_lock_file_was_deleted_takes_it_again(tmp_path: Path) -> None:
    path, lock = tmp_path / "log.db", tmp_path / "log.db.lock"
    store = EventStore(str(path))
    store.acquire()
    store.append([row(1)])
    lock.unlink()
    store.append([row(2)])
    with pytest.raises(StoreError, match="another cranny serve is using it"), another(path):
        pass
    lock.unlink()
    with another(path):
        with pytest.raises(OtherWriterError, match="another cranny serve is using it"):
            store.append([row(3)])
        with pytest.raises(OtherWriterError, match="another cranny serve is using it"):
            store.check_writable()
    assert [found.seq for found in store.read()] == [1, 2]
    store.close()


@pytest.mark.parametrize("mode", [None, 0o644])
def test_no_other_account_can_lock_the_file_and_so_keep_a_service_from_starting(
    mode: int | None, tmp_path: Path
) -> None:
    """Reading is enough to lock a file, and jobs can enter the folder of a service (mode 0711)."""
    lock, before = tmp_path / "log.db.lock", os.umask(0)
    try:
        if mode is not None:  # of an earlier version
            lock.touch(mode)
        store = EventStore(str(tmp_path / "log.db"))
        store.acquire()
    finally:
        os.umask(before)
    assert lock.stat().st_mode & 0o777 == 0o600
    store.close()


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
@pytest.mark.parametrize("way", ["deleted", "replaced"])
def test_a_sqlite_file_that_was_deleted_or_replaced_is_noticed_until_it_is_back(
    ending: str, way: str, tmp_path: Path
) -> None:
    path = tmp_path / f"log.db{ending}"
    store = EventStore(str(tmp_path / "log.db"))
    store.acquire()
    store.append([row(1)])
    path.rename(tmp_path / "kept")
    if way == "replaced":
        path.write_bytes((tmp_path / "kept").read_bytes())
    there = sorted(found.name for found in tmp_path.iterdir())
    told = f"{path} was deleted or replaced while in use; put the same file back"
    with pytest.raises(StoreError, match="the event log cannot be written") as refused:
        store.append([row(2)])
    assert told in str(refused.value)
    assert not isinstance(refused.value, OtherWriterError)
    assert told in store.problem
    store.check_writable()
    assert told in store.problem
    with pytest.raises(StoreError, match="the database cannot be read"):
        store.last()
    with pytest.raises(StoreError, match="the database cannot be written"):
        store.end_session("none")
    assert sorted(found.name for found in tmp_path.iterdir()) == there  # nothing new was made in its place
    (tmp_path / "kept").rename(path)
    store.append([row(2)])
    assert store.problem == ""
    store.close()
    again = EventStore(str(tmp_path / "log.db"))
    assert [found.seq for found in again.read()] == [1, 2]
    again.close()


def test_what_went_to_a_deleted_sqlite_file_does_not_count_as_stored(tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    with store.writing() as append:
        (tmp_path / "log.db").unlink()  # after the look at it
        with pytest.raises(StoreError, match="deleted or replaced"):
            append([row(1)])
    store.close()


def test_a_writer_of_deleted_files_leaves_those_of_the_next_alone_when_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    first = EventStore(str(path))
    first.append([row(1)])
    for found in tmp_path.iterdir():
        found.unlink()
    second = EventStore(str(path))
    second.append([row(1), row(2)])
    first.close()
    second.append([row(3)])
    second.close()
    third = EventStore(str(path))
    assert [found.seq for found in third.read()] == [1, 2, 3]
    third.close()


def test_others_may_come_and_go_without_the_writer_noticing(tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    store.acquire()
    for number in range(1, 4):
        other = sqlite3.connect(tmp_path / "log.db")  # as a backup does
        other.execute("pragma wal_checkpoint(truncate)")
        other.close()
        store.engine.dispose()  # even if all connections of the pool are given up
        store.append([row(number)])
    assert store.last() == 3
    store.close()


def test_a_sqlite_file_is_for_its_owner_and_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    store = EventStore(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.append([row(1)])
    with sqlite3.connect(path) as other:
        assert other.execute("pragma journal_mode").fetchone() == ("wal",)
        assert json.loads(other.execute("select body from cranny_events").fetchone()[0])["machine"] == 0
    other.close()
    store.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mysql://root:secret@host/db", "SQLite or PostgreSQL"),
        ("sqlite://", "must be a file"),
        ("post gres://x", "not a URL"),
    ],
)
def test_other_databases_are_refused_in_one_line(url: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        EventStore(url)


def test_passwords_are_not_shown() -> None:
    assert "secret" not in shown_url("postgresql://ann:secret@host/db")
