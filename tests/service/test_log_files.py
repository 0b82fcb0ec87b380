"""Archives and backups of the event log: nothing is lost by them, and files that were altered are refused."""

import gzip
import json
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.cli.conftest import Run
from tests.service.conftest import Start, until
from tests.service.standing import standing
from tests.service.test_rebuild import CLUSTER
from tests.service.test_snapshots import LIMITS, snapshot

from cranny.backends.fake import FakeRun
from cranny.backends.protocol import Ended
from cranny.model.errors import InputError
from cranny.service import snapshot_writer
from cranny.service.executor import AttemptLaunched
from cranny.service.limits import Limits
from cranny.service.log_archive import archive, export_old
from cranny.service.log_check import verify_log
from cranny.service.log_file import backup, restore, verify_log_file
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore, TokenRow
from cranny.service.writer_lock import LogIntegrityError


def lived(store: EventStore) -> Scheduler:
    """Return a scheduler with five jobs that are over, one that runs and one that waits, and a snapshot."""
    live = Scheduler(CLUSTER, "run", LIMITS)
    live.open(0.0)
    live.set_policy({"name": "titan"}, "root", 0.0)
    for number in range(1, 6):
        live.submit("ann", {"command": ["true"], "gpus": 1}, f"key-{number}", float(number))
        live.attempt_launched(AttemptLaunched(f"job-{number}", 1), float(number))
        live.attempt_ended(Ended(f"job-{number}", 1, 0, "finished"), float(number))
    live.submit("ann", {"command": ["true"], "gpus": 16}, None, 6.0)
    live.submit("bob", {"command": ["true"], "gpus": 4}, None, 7.0)
    snapshot(live, store)
    live.drain(1, "root", 8.0)
    store.append(live.rows)
    live.rows.clear()
    return live


def again(store: EventStore) -> Scheduler:
    found = Scheduler(CLUSTER, "run", LIMITS)
    found.restore(store)
    return found


def test_a_log_goes_on_without_what_was_archived(url: str, tmp_path: Path) -> None:
    store = EventStore(url)
    live = lived(store)
    last = store.last()
    found = archive(store, tmp_path / "archive", before_s=4.5, now_s=9.0)
    assert found is not None
    assert next(iter(store.read())).seq == found.head.seq + 1 > 10
    assert store.last() == last + 1
    live.log("archived", None, found.event(), 9.0)  # as the log has it now
    assert standing(again(store)) == standing(live)
    assert verify_log(store).problem == ""
    header = verify_log_file(found.path)
    assert (header.begin.seq, header.head) == (0, found.head)
    more = archive(store, tmp_path / "archive", before_s=1e9, now_s=10.0)  # up to the snapshot
    assert more is not None
    assert more.begin == found.head
    assert [row.kind for row in store.read()] == ["snapshot", "drained", "archived", "archived"]
    assert {each.id for each in again(store).records.jobs.values()} == {"job-4", "job-5", "job-6", "job-7"}
    assert verify_log(store).problem == ""
    assert archive(store, tmp_path / "archive", before_s=1e9, now_s=11.0) is None
    assert store.find_key("ann", "key-1") is not None
    store.close()


def test_an_archive_that_was_not_finished_does_no_harm(tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    live = lived(store)
    found = export_old(store, tmp_path, before_s=1e9)
    assert found is not None
    live.log("archived", None, found.event(), 9.0)
    store.append(live.rows)
    assert standing(again(store)) == standing(live)
    with store.engine.begin() as connection:
        connection.execute(text("delete from cranny_events where seq < 5"))  # and no more
    assert standing(again(store)) == standing(live)
    assert verify_log(store).problem == ""
    with store.engine.begin() as connection:
        connection.execute(text("delete from cranny_events where seq <= (select seq from cranny_snapshots) + 1"))
    with pytest.raises(LogIntegrityError, match="are missing"):
        again(store)
    assert "are missing" in verify_log(store).problem
    store.close()


def test_without_a_valid_snapshot_an_archived_log_is_refused(tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    lived(store)
    assert archive(store, tmp_path, before_s=1e9, now_s=9.0) is not None
    with store.engine.begin() as connection:
        connection.execute(text("delete from cranny_snapshots"))
    with pytest.raises(LogIntegrityError, match="no snapshot of them is valid"):
        again(store)
    store.close()


ALTERED = (
    "update cranny_events set body = '[]' where kind = 'snapshot'",
    "update cranny_events set body = '{}' where kind = 'snapshot'",
    "update cranny_events set body = '{' where kind = 'snapshot'",
    "update cranny_events set body = '{}' where kind = 'archived'",
    """update cranny_events set body = '{"after": "x", "through": 1, "hash": ""}' where kind = 'archived'""",
    "update cranny_events set body = x'ff' where kind = 'drained'",
    "update cranny_events set job = x'ff' where kind = 'drained'",
    "update cranny_events set hash = x'ff' where kind = 'drained'",
    "update cranny_snapshots set body = x'ff'",
)


@pytest.mark.parametrize("change", ALTERED)
def test_what_others_write_into_the_database_of_an_archived_log_is_refused(change: str, tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    lived(store)
    assert archive(store, tmp_path, before_s=4.5, now_s=9.0) is not None
    with store.engine.begin() as connection:
        connection.execute(text(change))
    assert verify_log(store).problem
    with pytest.raises(LogIntegrityError):
        again(store)
    with suppress(LogIntegrityError):  # it may hold an event that was altered
        backup(store, tmp_path / "backup.jsonl.gz")
        with pytest.raises(LogIntegrityError):
            verify_log_file(tmp_path / "backup.jsonl.gz")
    store.close()


def test_a_backup_gives_back_everything_on_either_database(url: str, tmp_path: Path) -> None:
    store = EventStore(url)
    lived(store)
    store.add_token(TokenRow("id", "ann", "user", "0" * 64, 1.0, None))
    assert archive(store, tmp_path, before_s=4.5, now_s=9.0) is not None
    header = backup(store, tmp_path / "backup.jsonl.gz")
    assert header.head == store.head
    other = EventStore(str(tmp_path / "other.db"))
    restore(other, tmp_path / "backup.jsonl.gz")
    assert list(other.stored()) == list(store.stored())
    assert other.tokens() == store.tokens()
    assert other.find_key("ann", "key-1") == store.find_key("ann", "key-1")
    assert standing(again(other)) == standing(again(store))
    with pytest.raises(InputError, match="has events already"):
        restore(store, tmp_path / "backup.jsonl.gz")
    other.close()
    store.close()


def test_files_that_were_altered_or_cut_are_refused(run: Run, tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    lived(store)
    store.close()
    file, new = tmp_path / "backup.jsonl.gz", tmp_path / "new.db"
    assert run("log", "backup", file, "--database", tmp_path / "log.db").code == 0
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    for change, problem in (
        (
            [*lines[:3], lines[3].replace('ann\\"', 'eve\\"'), *lines[4:]],
            "event 3 (submitted) does not match its hash",
        ),
        ([*lines[:3], *lines[4:]], "event 3 is missing"),
        ([line for line in lines if '"drained"' not in line], "instead of"),
        (lines[1:], "not a file of `cranny log backup`"),
        (["nothing"], "line 1 is not JSON"),
        ([lines[0], "[" * 100_000], "line 2 is not JSON"),
        ([lines[0].replace('"begin"', '"other"'), *lines[1:]], "line 1 does not say what the file holds"),
        ([lines[0], '["cranny_events", "1", 0, "opened", null, "{}", null]'], "line 2 is no row"),
        (['{"columns": 1, ' + lines[0][1:].replace('"columns"', '"other"')], "line 1 does not say"),
        *(([*lines, row], "is no row") for row in ("1", "[]", '["others", 1]', '["cranny_tokens", 1]')),
    ):
        file.write_bytes(gzip.compress("\n".join(change).encode()))
        ran = run("log", "restore", file, "--database", new)
        assert ran.code in {1, 2}
        assert problem in ran.err
        assert not new.exists()
    whole = bytearray(gzip.compress("\n".join(lines).encode()))
    whole[20:30] = bytes(10)
    for damaged in (b"nothing", whole):
        file.write_bytes(damaged)
        assert "cannot be read" in run("log", "restore", file, "--database", new).err
    value = json.dumps(["cranny_tokens", *([{}] * 7)])  # what no database can store
    file.write_bytes(gzip.compress("\n".join([*lines, value]).encode()))
    assert "the database cannot be filled" in run("log", "restore", file, "--database", new).err
    assert run("log", "restore", tmp_path / "none", "--database", new).err.endswith("there is no such file\n")


def test_the_commands_archive_back_up_and_restore(run: Run, tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    lived(store)
    store.close()
    assert run("log", "archive", "--older-than", 1e6, "--folder", tmp_path, "--json").json == {"archived": None}
    moved = run("log", "archive", "--folder", tmp_path, "--json").json["archived"]
    assert (moved["first"], Path(moved["file"]).parent) == (1, tmp_path / "archive")
    file = tmp_path / "backup.jsonl.gz"
    assert "up to event" in run("log", "backup", file, "--folder", tmp_path).out
    assert "up to event" in run("log", "restore", file, "--database", tmp_path / "new.db").out
    assert run("log", "verify", "--database", tmp_path / "new.db").code == 0
    assert file.stat().st_mode & 0o077 == 0


def test_a_service_archives_what_is_older_than_it_keeps(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_writer, "EVENTS", 20)
    limits = Limits(recent_jobs=2, keep_events_s=0.0)
    first = start(course=lambda _: FakeRun(run_s=0.0), limits=limits)
    for _ in range(6):
        first.until(first.submit(), "done")
    until(lambda: next(iter(first.service.store.read())).seq > 10)
    assert len(list((tmp_path / "archive").iterdir())) == 1
    first.service.close()
    second = start(limits=limits)
    assert second.submit() == "job-7"
    store = second.service.store
    assert verify_log(store, tmp_path).problem == ""


@pytest.mark.parametrize("put", [Path.symlink_to, Path.hardlink_to])
def test_a_file_that_another_user_has_put_in_the_way_gets_nothing_of_a_backup(
    put: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    """As in /tmp: it would be theirs to read, or a link to what the owner of the log may write."""
    store, file, theirs = EventStore(str(tmp_path / "log.db")), tmp_path / "backup.jsonl.gz", tmp_path / "theirs"
    theirs.write_text("before")
    put(tmp_path / "backup.jsonl.gz.new", theirs)
    backup(store, file)
    assert theirs.read_text() == "before"
    assert (stat.S_ISREG(file.lstat().st_mode), file.lstat().st_mode & 0o077) == (True, 0)
    store.close()
