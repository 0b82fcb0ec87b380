"""A standby waits for the database and for the lock, and takes over with the jobs that run."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

import pytest
from tests.service.conftest import end_jobs, until
from tests.service.postgres import Postgres
from tests.service.test_serve import CRANNY, Begin, begin, cranny, env  # noqa: F401 - fixtures

from cranny.cli import client
from cranny.service.event_chain import EventRow
from cranny.service.standby import open_as_writer
from cranny.service.store import EventStore
from cranny.service.writer_lock import LogIntegrityError, StoreError, UnavailableError


def in_background(work: Callable[[], EventStore]) -> "Future[EventStore]":
    done: Future[EventStore] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except StoreError as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return done


def row(seq: int) -> EventRow:
    return EventRow(seq, float(seq), "drained", None, {"machine": 0})


def test_a_second_one_waits_until_the_first_has_ended(postgres: str) -> None:
    first, said = EventStore(postgres), list[str]()
    first.acquire()
    first.append([row(1)])
    second = in_background(lambda: open_as_writer(postgres, said.append))
    until(lambda: said)
    first.append([row(2)])
    assert not second.done()
    first.close()
    store = second.result(60)
    assert "another cranny serve is using it; on standby" in said[0]
    assert said[1:] == ["taking over"]
    store.append([row(3)])
    assert [found.seq for found in store.verified()] == [1, 2, 3]
    store.close()


def test_a_database_that_is_down_is_waited_for(postgres: str, postgres_process: Postgres) -> None:
    EventStore(postgres).close()
    postgres_process.stop()
    said: list[str] = []
    try:
        with pytest.raises(UnavailableError):
            EventStore(postgres)
        waiting = in_background(lambda: open_as_writer(postgres, said.append))
        until(lambda: said)
        assert "waiting for it" in said[0]
    finally:
        postgres_process.start()
    waiting.result(60).close()


def test_what_waiting_does_not_help_is_an_error_at_once(postgres_server: str, tmp_path: Path) -> None:
    missing = postgres_server.replace("/postgres?", "/missing?")
    with pytest.raises(StoreError, match="does not exist") as refused:
        open_as_writer(missing, pytest.fail)
    assert not isinstance(refused.value, UnavailableError)
    (tmp_path / "log.db").write_text("not a database at all, but a text that is long enough to look at" * 20)
    with pytest.raises(StoreError, match="not a database"):
        open_as_writer(str(tmp_path / "log.db"), pytest.fail)


def test_a_replica_that_lags_behind_is_not_taken_over(postgres: str) -> None:
    store = EventStore(postgres)
    store.acquire()
    store.append([row(1), row(2)])
    with (
        store.engine.begin() as connection
    ):  # as if another server, which had not got the last event, came in its place
        connection.exec_driver_sql("delete from cranny_events where seq = 2")
    for _ in range(2):
        with pytest.raises(LogIntegrityError, match="ends at event 1, but event 2 was stored"):
            store.append([row(3)])
    with pytest.raises(LogIntegrityError, match="was rolled back"):
        store.acquire()
    store.close()


def test_a_standby_takes_over_jobs_and_clients_when_the_first_is_killed(
    begin: Begin,  # noqa: F811
    env: dict[str, str],  # noqa: F811
    tmp_path: Path,
    postgres: str,
) -> None:
    options = ("--cluster", "1x1x2", "--policy", "best-fit", "--database", postgres, "--folder")
    made = cranny(env, "token", "create", "root", "--role", "admin", "--database", postgres, "--json")
    env["CRANNY_TOKEN"] = json.loads(made.stdout)["token"]
    process, first = begin(*options, str(tmp_path / "one"))
    job = tmp_path / "job.yaml"
    job.write_text(f"command: [sh, -c, 'echo started >> {tmp_path}/starts; sleep 600']\ngpus: 1\n")
    assert cranny(env, "submit", str(job), "--server", first["url"]).returncode == 0
    until((tmp_path / "starts").exists)
    with (tmp_path / "said").open("w") as said:
        argv = [*CRANNY, "serve", "--port", "0", "--json", *options, str(tmp_path / "two")]
        standby = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=said, text=True)
    try:
        until(lambda: "on standby" in (tmp_path / "said").read_text())
        process.send_signal(signal.SIGKILL)
        assert standby.stdout is not None
        text = "".join(iter(standby.stdout.readline, "}\n")) + "}"
        servers = f"{first['url']},{json.loads(text)['url']}"  # the first is gone
        found = json.loads(cranny(env, "jobs", "--server", servers, "--json").stdout)["jobs"]
        assert [(each["id"], each["status"], each["attempt"]) for each in found] == [("job-1", "running", 1)]
        assert cranny(env, "cancel", "job-1", "--server", servers).returncode == 0
        ran = cranny(env, "watch", "job-1", "--server", servers)
        assert "cancelled" in ran.stdout
        assert (tmp_path / "starts").read_text() == "started\n"  # it was adopted, and not started again
    finally:
        end_jobs(tmp_path)
        standby.terminate()
        standby.wait(60)
        if standby.stdout is not None:
            standby.stdout.close()


def test_of_several_servers_the_first_that_answers_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TAKEOVER_S", 0.0)
    asked = client.ServiceClient("http://127.0.0.1:1, http://127.0.0.1:2", None)
    with pytest.raises(client.UnreachableError, match="is `cranny serve` running"):
        asked.get("/readyz")
    monkeypatch.setattr(client, "TAKEOVER_S", 0.2)
    began = time.monotonic()
    with pytest.raises(client.UnreachableError):
        asked.get("/readyz")
    assert time.monotonic() - began >= 0.2
