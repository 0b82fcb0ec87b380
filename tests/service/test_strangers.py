"""Many who connect, listen or ask at once: none uses up what others need, and none sees what is not theirs."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.accounts import PLAIN
from tests.service.conftest import Serve, Start, until
from tests.service.test_rest import problem

from cranny.service import connection_limit
from cranny.service.api import routes_jobs, sse
from cranny.service.auth import Authenticator, create
from cranny.service.limits import Limits
from cranny.service.redact import unfinished_secret
from cranny.service.server import ListenAddress, serve
from cranny.service.store import EventStore

JOB: dict[str, Any] = {"command": ["true"], "gpus": 1}
EVENTS = "/api/v1/events"


@contextmanager
def served(running: Any) -> Iterator[str]:
    """Serve as `cranny serve` does."""
    service = running.service
    urls: list[str] = []
    authenticator = Authenticator(service.store, loopback=True)
    thread = threading.Thread(
        target=serve, args=(service, authenticator, ListenAddress(), urls.append), daemon=True
    )
    thread.start()
    until(lambda: urls)
    yield urls[0]
    for told in service.on_ended:
        told()
    thread.join(60)


def test_a_client_that_connects_while_too_many_are_served_is_refused_at_once(start: Start) -> None:
    running = start(limits=Limits(connections=5))
    own = {"Authorization": f"Bearer {create(running.service.store, 'ann', 'user', 0.0)[1]}"}
    with served(running) as url, ExitStack() as open_:
        until(lambda: _status(url) == 200)
        for _ in range(5):
            stream = open_.enter_context(httpx.stream("GET", f"{url}{EVENTS}", headers=own, verify=PLAIN))
            assert stream.is_success
        until(lambda: _status(url) == 503)
        open_.close()
        until(lambda: _status(url) == 200)


def test_silent_connections_keep_no_client_out(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limit, "SILENT_S", 0.2)
    with served(start(limits=Limits(connections=5))) as url:
        until(lambda: _status(url) == 200)
        idle = _connected(url, 30)
        until(lambda: _status(url) == 200)
        assert all(_has_to_go(each) for each in idle)


def test_a_connection_is_kept_for_more_requests_but_not_for_half_of_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(start()) as url:
        client = HTTPConnection(url.removeprefix("http://"), timeout=60)
        client.connect()
        used = client.sock
        for idle_s in (6.0, 0.0):  # uvicorn by itself would close it after 5 s
            client.request("GET", "/healthz")
            assert client.getresponse().read() == b'{"ok":true}'
            monkeypatch.setattr(connection_limit, "SILENT_S", 0.2)  # from the first answer on
            time.sleep(idle_s)
        assert client.sock is used
        used.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert _has_to_go(used)


def _connected(url: str, count: int) -> list[socket.socket]:
    """Connect so many times, and say nothing."""
    address = httpx.URL(url)
    return [socket.create_connection((address.host, address.port or 0), timeout=60) for _ in range(count)]


def _has_to_go(stranger: socket.socket) -> bool:
    """Wait until the other side closes a connection; say whether it does."""
    with stranger:
        try:
            while stranger.recv(1024):
                pass  # a refusal
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True


def _status(url: str) -> int:
    try:
        return httpx.get(f"{url}/healthz", verify=PLAIN).status_code
    except httpx.TransportError:  # refused before it had asked
        return 503


def test_a_listener_too_many_is_refused_before_the_stream_begins(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "MAX_SUBSCRIBERS", 2)
    site = serve()
    with site.client() as root, root.stream("GET", EVENTS) as one, root.stream("GET", EVENTS) as two:
        lines = [one.iter_lines(), two.iter_lines()]  # a stream ends with its reader
        assert [next(each) for each in lines] == [": cranny"] * 2
        refused = root.get(EVENTS, params={"follow": False})
        assert "limit of 2 event streams" in problem(refused, 503)["detail"]
    with site.client() as root:
        until(lambda: root.get(EVENTS, params={"follow": False}).is_success)


def test_who_follows_changes_does_not_ask_the_database(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    monkeypatch.setattr(EventStore, "read", lambda *_: pytest.fail("all of it is at hand"))
    with site.client() as root, root.stream("GET", EVENTS) as stream:
        lines = stream.iter_lines()
        assert next(lines) == ": cranny"
        for _ in range(3):
            site.running.submit()
        kinds = [line for line in lines_until(lines, "event: placed", 3) if line.startswith("event: ")]
    assert kinds.count("event: submitted") == kinds.count("event: placed") == 3
    monkeypatch.undo()
    with site.client() as root:  # what is no more at hand is read
        site.running.service.recent.clear()
        text = root.get(EVENTS, params={"follow": False, "after": 0}).text
    assert text.count("event: submitted") == 3


def lines_until(lines: Iterator[str], last: str, times: int) -> Iterator[str]:
    for line in lines:
        yield line
        times -= line == last
        if not times:
            return


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", EVENTS])
def test_head_is_answered_as_get_without_a_body(serve: Serve, path: str) -> None:
    with serve().client() as root:
        answer = root.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_only_so_many_what_if_plans_are_answered_at_a_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_jobs, "_plans", threading.BoundedSemaphore(1))
    site = serve()
    with site.client("eve") as eve:
        assert eve.post("/api/v1/plan", json=JOB).is_success
        with routes_jobs._plans:
            problem(eve.post("/api/v1/plan", json=JOB), 503)
        assert eve.post("/api/v1/plan", json=JOB).is_success


def test_a_secret_that_is_half_written_does_not_show(serve: Serve) -> None:
    site = serve()
    job_id = site.running.submit(secrets={"PIN": "abcd1234"})
    site.running.until(job_id, "running")
    folder = site.running.service.log_folder(job_id, 1)
    folder.mkdir(parents=True)
    log: Path = folder / "rank-0.log"
    with site.client("ann") as ann:

        def text(offset: int = 0) -> str:
            told = ann.get(f"/api/v1/jobs/{job_id}/logs", params={"offset": offset}).json()
            assert told["next_offset"] == told["offset"] + len(told["text"])
            return str(told["text"])

        log.write_text("it is abcd")
        assert text() == "it is "
        log.write_text("it is abcd1234, a")
        assert text() == "it is ********, "
        assert text(offset=6) == "********, "
        log.write_text("it is abcd1234, ax")
        assert text() == "it is ********, ax"
        log.write_text("it is abcd")
        ann.post(f"/api/v1/jobs/{job_id}/cancel")
        site.running.until(job_id, "cancelled")
        assert text() == "it is abcd"  # nothing more is written: this is no secret


def test_the_beginning_of_a_secret_is_found() -> None:
    secrets = [b"aaab", b"ac"]
    found = [
        unfinished_secret(text, secrets) for text in (b"", b"x", b"a", b"xaa", b"xaaa", b"aaaa", b"aaab", b"aca")
    ]
    assert found == [0, 0, 1, 2, 3, 3, 0, 1]


def test_a_body_that_never_comes_is_not_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.service.api.request_guard.BODY_S", 0.2)
    site = serve()
    address = httpx.URL(site.url)
    with socket.create_connection((address.host, address.port or 0)) as slow:
        slow.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        slow.settimeout(10)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
