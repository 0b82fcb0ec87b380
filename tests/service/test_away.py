"""Commands that wait: for a server that is restarted, for a job that waits, for its next attempt."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.cli.conftest import Run
from tests.service.conftest import Running, Serve, Start, until

from cranny.backends.fake import FakeProcesses, FakeRun
from cranny.cli import client, console
from cranny.model.cluster import Cluster
from cranny.service.api.app import build
from cranny.service.auth import Authenticator, create


class House:
    """A server that can be shut and opened again at the same address, on the same log."""

    def __init__(self, start: Start, **settings: Any) -> None:
        self._start, self._settings, self._processes = start, settings, FakeProcesses()
        self._port = 0
        self.token = ""
        self.running = self.open()
        self.url = f"http://127.0.0.1:{self._port}"

    def open(self) -> Running:
        self.running = self._start(processes=self._processes, **self._settings)
        self.token = self.token or create(self.running.service.store, "ann", "user", 0.0)[1]
        self._app = build(self.running.service, Authenticator(self.running.service.store, loopback=True))
        config = uvicorn.Config(self._app, port=self._port, log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)
        self._port = self._server.servers[0].sockets[0].getsockname()[1]
        return self.running

    def shut(self) -> None:
        self._app.state.notifier.close()
        self._server.should_exit = True
        self._thread.join(60)
        if self.running.service._alive:
            self.running.service.close()

    def somebody_listens(self) -> bool:
        return bool(self._app.state.notifier._waiting)

    def restart_when(self, holds: Callable[[], object]) -> threading.Thread:
        def work() -> None:
            until(holds)
            self.shut()
            time.sleep(0.2)
            self.open()

        thread = threading.Thread(target=work)
        thread.start()
        return thread


@pytest.fixture
def house(start: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., House]]:
    opened: list[House] = []

    def make(**settings: Any) -> House:
        made = House(start, **settings)
        opened.append(made)
        monkeypatch.setenv("CRANNY_SERVER", made.url)
        monkeypatch.setenv("CRANNY_TOKEN", made.token)
        return made

    monkeypatch.setattr(client, "PAUSE_S", 0.02)
    monkeypatch.setattr(client, "POLL_S", 0.05)
    yield make
    for each in opened:
        each.shut()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what is set as soon as a command asks with patience."""
    event, right = threading.Event(), client.ServiceClient.get_in_time

    def get_in_time(self: client.ServiceClient, path: str, **query: Any) -> Any:
        event.set()
        return right(self, path, **query)

    monkeypatch.setattr(client.ServiceClient, "get_in_time", get_in_time)
    return event


def job_file(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text)
    return str(path)


def test_waiting_for_a_job_goes_on_when_the_server_is_back(
    house: Callable[..., House], run: Run, tmp_path: Path
) -> None:
    opened = house(course=lambda _: FakeRun(run_s=1.0))
    changing = opened.restart_when(opened.somebody_listens)
    ran = run("submit", job_file(tmp_path, "command: [a]\ngpus: 1\n"), "--wait")
    changing.join()
    assert (ran.code, ran.out) == (0, "job-1 done\n")
    first, *rest = ran.err.splitlines()
    assert first in {"job-1 starting on rack0-machine0", "job-1 running on rack0-machine0"}
    assert rest == [
        f"cranny: {opened.url}: the server closed the connection",
        "cranny: retrying for 60 s",
        "cranny: reconnected to the server",
    ]


def test_changes_are_watched_across_a_restart(house: Callable[..., House], run: Run) -> None:
    opened = house(course=lambda _: FakeRun(run_s=5.0))
    job_id = opened.running.submit()
    changing = opened.restart_when(opened.somebody_listens)
    ran = run("watch", job_id)
    changing.join()
    assert ran.code == 0
    assert ran.out.splitlines()[-1].endswith("attempt=1 outcome=finished exit_code=0 status=done")


def test_a_server_that_stays_away_is_given_up(
    house: Callable[..., House], run: Run, monkeypatch: pytest.MonkeyPatch, asked: threading.Event
) -> None:
    monkeypatch.setattr(client, "AWAY_S", 0.3)
    opened = house()
    job_id = opened.running.submit()

    def leave() -> None:
        until(lambda: opened.somebody_listens() or asked.is_set())
        opened.shut()

    for words in (("watch",), ("watch", job_id), ("logs", job_id, "-f")):
        leaving = threading.Thread(target=leave)
        leaving.start()
        ran = run(*words)
        leaving.join()
        assert ran.code == 1
        assert f"cranny: retrying for 0.3 s\ncranny: no success after 0.3 s: {opened.url}: " in ran.err
        opened.open()


def test_a_job_that_ends_while_we_begin_to_watch_is_not_waited_for(
    house: Callable[..., House], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = house()
    job_id = opened.running.submit()
    asked = client.ServiceClient.get

    def get(self: client.ServiceClient, path: str, **query: Any) -> Any:
        answer = asked(self, path, **query)
        if path.endswith(job_id):
            service = opened.running.service
            service.call(lambda now_s: service.scheduler.cancel(job_id, "ann", now_s)).result(60)
            opened.running.until(job_id, "cancelled")
        return answer

    monkeypatch.setattr(client.ServiceClient, "get", get)
    assert "status=cancelled" in run("watch", job_id).out
    monkeypatch.undo()


def test_a_log_is_followed_across_a_restart(
    house: Callable[..., House], run: Run, tmp_path: Path, asked: threading.Event
) -> None:
    opened = house(real=True)
    script = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two"
    job_id = opened.running.submit(command=["sh", "-c", script], cwd=str(tmp_path))
    opened.running.until(job_id, "running")

    def restart_and_go() -> None:
        opened.restart_when(asked.is_set).join()
        (tmp_path / "go").touch()

    changing = threading.Thread(target=restart_and_go)
    changing.start()
    ran = run("logs", job_id, "-f")
    changing.join()
    assert (ran.code, ran.out) == (0, "one\ntwo\n")
    assert "reconnected to the server" in ran.err


def test_a_log_is_followed_from_before_the_start_to_the_last_attempt(
    serve: Serve, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(client, "POLL_S", 0.05)
    site = serve(Cluster.fat_tree(1, 1, 2), real=True)
    monkeypatch.setenv("CRANNY_SERVER", site.url)
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["ann"])
    site.running.submit(command=["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"], gpus=2, cwd=str(tmp_path))
    site.running.submit(command=["sh", "-c", "echo try $CRANNY_ATTEMPT; exit 3"], max_retries=2)
    warned = console.warn

    def warn(text: str) -> None:  # the first job ends only when it was said that the second waits for it
        warned(text)
        (tmp_path / "go").touch()

    monkeypatch.setattr(client, "warn", warn)
    ran = run("logs", "job-2", "-f")
    assert (ran.code, ran.out) == (0, "try 1\ntry 2\ntry 3\n")
    assert ran.err.splitlines() == [
        "cranny: job-2 has not started: waiting: needs 1 GPU, 0 free",
        "cranny: job-2 continues: attempt 2",
        "cranny: job-2 continues: attempt 3",
    ]
    assert run("logs", "job-2", "-f", "--attempt", "2").out == "try 2\n"


def test_a_job_that_is_cancelled_before_its_start_has_no_log(house: Callable[..., House], run: Run) -> None:
    opened = house()
    service = opened.running.service
    opened.running.submit(gpus=16)
    waiting = opened.running.submit(gpus=16)
    threading.Timer(
        0.3, lambda: service.call(lambda now_s: service.scheduler.cancel(waiting, "ann", now_s))
    ).start()
    ran = run("logs", waiting, "-f")
    assert (ran.code, ran.err.splitlines()[-1]) == (1, "cranny: job-2 never started: cancelled by ann")
