"""A log that cannot lie: what is changed in the database is found and named, and no service goes on from it."""

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from tests.cli.conftest import Run
from tests.service.conftest import Start

from cranny.service.event_chain import BEGIN, ChainHead, EventRow, linked, verified
from cranny.service.store import EventStore
from cranny.service.writer_lock import LogIntegrityError

LENGTH = 6


def event(seq: int, kind: str = "drained") -> EventRow:
    return EventRow(seq, float(seq), kind, None, {"machine": seq % 4, "by": "root"})


def change(url: str, *statements: str) -> None:
    """Change the database behind the back of the service."""
    store = EventStore(url)
    with store.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    store.close()


# What an attacker or a fault does to a log of six events, and what is said about it.
ATTACKS = {
    "a body": (
        "update cranny_events set body = '{\"machine\": 9}' where seq = 3",
        "event 3 (drained) does not match",
    ),
    "a time": ("update cranny_events set at_s = 9.5 where seq = 3", "event 3 (drained) does not match its hash"),
    "a kind": ("update cranny_events set kind = 'resumed' where seq = 3", "event 3 (resumed) does not match"),
    "a job": ("update cranny_events set job = 'job-1' where seq = 3", "event 3 (drained) does not match its hash"),
    "a hash": ("update cranny_events set hash = null where seq = 3", "event 3 (drained) does not match its hash"),
    "the last": ("update cranny_events set at_s = 9.5 where seq = 6", "event 6 (drained) does not match its hash"),
    "the first": ("delete from cranny_events where seq = 1", "event 1 is missing"),
    "one": ("delete from cranny_events where seq = 3", "event 3 is missing"),
    "several": ("delete from cranny_events where seq in (3, 4)", "events 3 to 4 are missing"),
    "renumbered": ("update cranny_events set seq = 7 where seq = 3", "event 3 is missing"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_altered_log_is_refused_with_the_number_of_the_event(attack: str, run: Run, tmp_path: Path) -> None:
    database = str(tmp_path / "log.db")
    store = EventStore(database)
    store.append([event(seq) for seq in range(1, LENGTH + 1)])
    store.close()
    done, problem = ATTACKS[attack]
    assert run("log", "verify", "--database", database).code == 0
    change(database, done)
    ran = run("log", "verify", "--database", database)
    assert (ran.code, ran.out) == (1, "")
    assert problem in ran.err
    assert len(ran.err.splitlines()) == 1
    ran = run("log", "verify", "--database", database, "--json")
    assert (ran.code, json.loads(ran.out)["ok"]) == (1, False)
    again = EventStore(database)
    with pytest.raises(LogIntegrityError) as refused:
        list(again.verified())
    assert problem in str(refused.value)
    again.close()


def test_both_databases_keep_the_same_chain(url: str) -> None:
    store = EventStore(url)
    store.append([event(1)])
    store.append([event(2), event(3)._replace(at_s=0.1 + 0.2, job="job-1")])
    assert [row.seq for row in store.verified()] == [1, 2, 3]
    by_hand = linked([event(1), event(2), event(3)._replace(at_s=0.1 + 0.2, job="job-1")], BEGIN)
    assert store.head == ChainHead(3, by_hand[-1].hash or "")
    assert list(store.stored()) == by_hand
    store.close()


def test_a_database_without_hashes_gets_them_and_is_whole_then(url: str) -> None:
    store = EventStore(url)
    store.append([event(seq) for seq in range(1, LENGTH + 1)])
    before = list(store.stored())
    with store.engine.begin() as connection:  # as it was before there were hashes
        connection.execute(text("alter table cranny_events drop column hash"))
        connection.execute(text("delete from cranny_schema where version > 2"))
    store.close()
    again = EventStore(url)
    assert list(again.stored()) == before
    again.close()


def test_a_log_is_verified_without_being_changed(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    ran = run("log", "verify", "--database", str(missing))
    assert (ran.code, ran.err) == (2, f"cranny: --database: {missing}: there is no such file\n")
    assert not missing.exists()
    old = tmp_path / "old.db"
    store = EventStore(str(old))
    with store.engine.begin() as connection:
        connection.execute(text("delete from cranny_schema where version > 2"))
    store.close()
    ran = run("log", "verify", "--database", str(old))
    assert ran.code == 1
    assert "schema version 2, of an earlier cranny" in ran.err
    sqlite3.connect(tmp_path / "empty.db").close()
    ran = run("log", "verify", "--database", str(tmp_path / "empty.db"))
    assert ran.code == 1
    assert "has no event log of cranny" in ran.err


rows = st.lists(
    st.builds(
        lambda at_s, kind, job, body: (at_s, kind, job, body),
        st.floats(0, 1e10),
        st.sampled_from(["placed", "ended"]),
        st.sampled_from([None, "job-1"]),
        st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=3)), max_size=2),
    ),
    min_size=2,
    max_size=6,
)


@given(rows, st.data())
def test_no_event_can_be_removed_moved_or_changed_unnoticed(
    values: list[tuple[float, str, str | None, dict[str, object]]], data: st.DataObject
) -> None:
    stored = linked([EventRow(number, *each) for number, each in enumerate(values, 1)], BEGIN)
    assert list(verified(stored)) == stored
    at = data.draw(st.integers(0, len(stored) - 1))
    altered = data.draw(
        st.sampled_from(
            [
                stored[at]._replace(at_s=stored[at].at_s + 1),
                stored[at]._replace(kind="moved"),
                stored[at]._replace(job="job-2"),
                stored[at]._replace(body=stored[at].body + " "),
                None,
            ]
        )
    )
    changed = stored[:at] + ([] if altered is None else [altered]) + stored[at + 1 :]
    if altered is None and at == len(stored) - 1:
        assert list(verified(changed)) == changed  # what is cut off at the end, only the head shows
        return
    with pytest.raises(LogIntegrityError) as refused:
        list(verified(changed))
    assert f"event {at + 1} " in str(refused.value)


def rolled_back(database: Path, by: int) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("delete from cranny_events where seq > (select max(seq) from cranny_events) - ?", [by])
    connection.close()


def exchanged(database: Path, by: int) -> None:
    """Put other events in the place of the last ones, with a chain that is whole."""
    rolled_back(database, by)
    store = EventStore(str(database))
    store.append([event(store.last() + 1 + each) for each in range(by)])
    store.close()


@pytest.mark.parametrize(
    ("attack", "problem"), [(rolled_back, "was rolled back"), (exchanged, "is not the one that was stored")]
)
def test_a_service_refuses_a_database_without_what_it_has_stored(
    attack: Callable[[Path, int], None], problem: str, start: Start, run: Run, tmp_path: Path
) -> None:
    first = start()
    first.until(first.submit(), "running")
    first.service.close()
    store = EventStore(str(tmp_path / "log.db"))
    head = store.last()
    store.close()  # an open one would leave SQLite's write-ahead log beside the file, which is not copied
    shutil.copy(tmp_path / "log.db", tmp_path / "kept.db")
    attack(tmp_path / "log.db", 2)
    options = ("--database", str(tmp_path / "log.db"), "--folder", str(tmp_path))
    ran = run("log", "verify", *options)
    assert ran.code == 1
    assert problem in ran.err
    with pytest.raises(LogIntegrityError) as refused:
        start()
    assert problem in str(refused.value)
    assert f"event {head}" in str(refused.value)
    assert ".head (delete it to accept" in str(refused.value)
    shutil.copy(tmp_path / "kept.db", tmp_path / "log.db")
    assert run("log", "verify", *options).code == 0
    assert list(start().service.scheduler.records.jobs) == ["job-1"]  # it was not lost


@pytest.mark.parametrize(
    ("attack", "problem"), [(rolled_back, "was rolled back"), (exchanged, "is not the one that was stored")]
)
def test_a_running_service_ends_when_its_log_is_no_longer_what_it_stored(
    attack: Callable[[Path, int], None],
    problem: str,
    start: Start,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = start()
    ended = threading.Event()
    first.service.on_ended.append(ended.set)
    first.until(first.submit(), "running")
    attack(tmp_path / "log.db", 2)
    assert ended.wait(60)  # though nothing is asked of it
    assert problem in first.service.failure
    assert not any(record.exc_info for record in caplog.records)
    first.service.close()


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("surprise", None, {}), "is of kind 'surprise', which this version does not know"),
        (("set", "job-1", {}), "is of kind 'set'"),
        (("placed", "job-1", {}), "(placed of job-1) cannot follow"),
        (("drained", None, {"machine": 99}), "(drained) cannot follow"),
        (("ended", "job-7", {}), "(ended of job-7) cannot follow"),
        (("submitted", "job-2", {"user": "ann", "spec": {"gpus": "many"}}), "(submitted of job-2) cannot follow"),
    ],
)
def test_events_that_cannot_have_been_are_refused_in_one_line(
    row: tuple[str, str | None, dict[str, object]], problem: str, start: Start, tmp_path: Path
) -> None:
    first = start()
    first.until(first.submit(), "running")
    first.service.close()
    store = EventStore(str(tmp_path / "log.db"))
    last = store.last()
    store.append([EventRow(last + 1, 1e10, *row)])  # with a valid hash
    store.close()
    with pytest.raises(LogIntegrityError) as refused:
        start()
    assert f"event {last + 1}" in str(refused.value)
    assert problem in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
