"""The event log in a database."""

import json
import sqlite3
import stat
from pathlib import Path

import pytest
from sqlalchemy import text

from cranny.model.errors import InputError
from cranny.service.store import Row, SessionRow, Store, StoreError, TokenRow, shown_url


def row(seq: int, kind: str = "drained") -> Row:
    return Row(seq, float(seq), kind, None, {"machine": 0, "text": "ä\u0000\ud800"})


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "log.db")
    address: str = request.getfixturevalue("postgres")
    return address


def test_events_come_back_as_they_went_in(url: str) -> None:
    store = Store(url)
    store.append([row(1), row(2)])
    store.append([row(3)])
    store.close()
    again = Store(url)
    assert list(again.read()) == [row(1), row(2), row(3)]
    assert list(again.read(after=1, limit=1)) == [row(2)]
    assert again.last() == 3
    again.close()


def test_a_number_that_is_taken_is_refused_and_nothing_of_the_rest_is_stored(url: str) -> None:
    store = Store(url)
    store.append([row(1)])
    with pytest.raises(StoreError, match="cannot be written"):
        store.append([row(2), row(1)])
    assert [found.seq for found in store.read()] == [1]
    store.close()


def test_tokens_are_kept_and_revoked(url: str) -> None:
    store = Store(url)
    store.add_token(TokenRow("id", "ann", "user", "0" * 64, 1.0, None))
    assert store.revoke_token("id", 2.0)
    assert not store.revoke_token("id", 3.0)
    assert store.tokens() == [TokenRow("id", "ann", "user", "0" * 64, 1.0, 2.0)]
    store.close()


def test_sessions_are_kept_until_they_end_or_are_too_many(url: str) -> None:
    store = Store(url)
    first, second, third = (SessionRow(str(n) * 64, "ann", "user", None, 10.0 + n) for n in range(3))
    store.add_session(first, 0.0, most=2)
    store.add_session(second, 0.0, most=2)
    store.close()
    store = Store(url)
    assert sorted(store.sessions()) == [first, second]
    store.add_session(third, 0.0, most=2)
    assert sorted(store.sessions()) == [second, third]
    store.end_session(third.hash)
    assert store.sessions() == [second]
    store.add_session(third, 11.0, most=2)
    assert store.sessions() == [third]  # the time of the other is over
    store.close()


def test_a_database_of_version_1_is_brought_to_the_present(url: str) -> None:
    store = Store(url)
    store.append([row(1)])
    with store.engine.begin() as connection:  # as it was before there were sessions
        connection.execute(text("drop table cranny_sessions"))
        connection.execute(text("delete from cranny_schema where version > 1"))
    store.close()
    again = Store(url)
    assert list(again.read()) == [row(1)]
    assert again.sessions() == []
    again.close()


def test_a_database_of_a_newer_cranny_is_refused(url: str) -> None:
    store = Store(url)
    with store.engine.begin() as connection:
        connection.execute(text("insert into cranny_schema values (99)"))
    store.close()
    with pytest.raises(StoreError, match="version 99"):
        Store(url)


def test_only_one_postgresql_writer_at_a_time(postgres: str) -> None:
    first, second = Store(postgres), Store(postgres)
    first.take()
    with pytest.raises(StoreError, match="another cranny serve"):
        second.take()
    first.close()
    second.take()
    second.close()


def test_a_sqlite_file_is_for_its_owner_and_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    store = Store(str(path))
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
        ("sqlite://", "in a file"),
        ("post gres://x", "not a URL"),
    ],
)
def test_other_databases_are_refused_in_one_line(url: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Store(url)


def test_passwords_are_not_shown() -> None:
    assert "secret" not in shown_url("postgresql://ann:secret@host/db")
