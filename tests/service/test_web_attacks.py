"""Attacks from the network and from pages of other origins, on a service as `cranny serve` runs it."""

import asyncio
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, ClassVar

import httpx
import pytest
from tests.report.test_page_in_browser import CHROMIUM, browser
from tests.service.accounts import PLAIN
from tests.service.conftest import Serve, Start
from tests.service.test_dashboard_in_browser import READY
from tests.service.test_rest import problem
from tests.service.test_strangers import served

from cranny.service.api.request_guard import RequestGuard, RequestRules, host_name
from cranny.service.auth import MAX_SESSIONS, Authenticator, Caller, UnauthenticatedError, create
from cranny.service.connection_limit import network_of
from cranny.service.limits import Limits

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]  # the fixture
MOST = 10  # connections of the service under attack


class TensorBoard(BaseHTTPRequestHandler):
    """A server of a job, on another port of the same host."""

    received: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.received.append(str(self.headers))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>board</title>")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def board() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), TensorBoard)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    TensorBoard.received.clear()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(60)
    server.server_close()


@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium in /usr/bin/chromium")
def test_the_session_of_a_browser_does_not_reach_another_port_of_the_host(
    serve: Serve, browser: "Browser", board: str
) -> None:
    site = serve()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.url}/#/login?code={site.authenticator.one_time_code(Caller('root', 'admin'))}")
    page.wait_for_selector(READY)
    assert page.url == f"{site.url}/#/"  # the code is not left in the address
    page.reload()
    page.wait_for_selector(READY)
    page.locator("#who").filter(has_text="root, admin").wait_for()
    second = context.new_page()  # another tab is logged in, too
    second.goto(f"{site.url}/#/jobs")
    second.locator("#who").filter(has_text="root, admin").wait_for()
    second.goto(board)
    assert second.title() == "board"
    assert TensorBoard.received
    assert not any("cookie" in each.lower() or "session" in each.lower() for each in TensorBoard.received)
    assert context.cookies() == []
    assert second.evaluate("() => localStorage.length") == 0  # another port, another storage
    context.close()


def test_a_cookie_is_no_credential(serve: Serve) -> None:
    site = serve()
    session = site.authenticator.log_in(site.tokens["root"]).secret
    port = httpx.URL(site.url).port
    for name in (f"cranny_session_{port}", "cranny_session"):
        problem(httpx.get(f"{site.url}/api/v1/me", headers={"Cookie": f"{name}={session}"}), 401)


def test_logins_of_one_user_end_only_sessions_of_that_user(serve: Serve) -> None:
    site = serve()
    bobs = site.authenticator.log_in(site.tokens["bob"]).secret
    anns = [site.authenticator.log_in(site.tokens["ann"]).secret for _ in range(MAX_SESSIONS + 2)]
    assert site.authenticator.by_session(bobs) == Caller("bob", "user")
    assert site.authenticator.by_session(anns[-1]) == Caller("ann", "user")
    with pytest.raises(UnauthenticatedError):
        site.authenticator.by_session(anns[0])


def test_a_token_and_its_sessions_expire(serve: Serve) -> None:
    store, now_s = serve().running.service.store, 1_000.0
    row, token = create(store, "cid", "user", now_s, valid_days=0.25)
    authenticator = Authenticator(store, loopback=True, clock=lambda: now_s)
    session = authenticator.log_in(token)
    assert (row.expires_s, session.until_s) == (1_000.0 + 21_600.0,) * 2
    assert authenticator.by_bearer(token) == authenticator.by_bearer(session.secret) == Caller("cid", "user")
    now_s += 21_600.0
    with pytest.raises(UnauthenticatedError, match="token expired"):
        authenticator.by_bearer(token)
    with pytest.raises(UnauthenticatedError, match="session expired"):
        authenticator.by_bearer(session.secret)


HALF = {
    "bodies": b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
    "heads": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "second heads": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /",
    "answers that are not read": b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 60,
}


def test_half_sent_requests_lock_no_client_out(start: Start) -> None:
    with served(start(limits=Limits(connections=MOST))) as url, ExitStack() as attack:
        address = httpx.URL(url)
        for sent in HALF.values():
            for _ in range(2 * MOST):
                each = socket.create_connection((address.host, address.port or 0), timeout=60)
                attack.callback(each.close)
                each.settimeout(0)
                try:
                    each.send(sent)
                except OSError:  # it is refused already, or full
                    continue
            for _ in range(5):
                assert httpx.get(f"{url}/healthz", verify=PLAIN).status_code == 200


def test_half_sent_requests_do_not_fill_the_log_when_the_service_ends(
    start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as attack, served(start()) as url:
        address = httpx.URL(url)
        for sent in HALF.values():
            for _ in range(3):
                each = attack.enter_context(
                    socket.create_connection((address.host, address.port or 0), timeout=60)
                )
                each.settimeout(0)
                each.send(sent)
        assert httpx.get(f"{url}/healthz", verify=PLAIN).status_code == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_kept_alive_request_is_not_delayed_by_nagles_algorithm(start: Start) -> None:
    with served(start()) as url:
        address = httpx.URL(url)
        with socket.create_connection((address.host, address.port or 0)) as client:
            times = []
            for _ in range(30):
                begin = time.perf_counter()
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                received = b""
                while b'{"ok":true}' not in received:
                    received += client.recv(65_536)
                times.append(time.perf_counter() - begin)
    assert statistics.quantiles(times, n=10)[0] < 0.035  # every one took 40 ms, the delay of an ACK


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8741", "localhost.evil.example", "127.0.0.1.evil", ""]
)
def test_a_name_that_was_made_to_resolve_to_this_machine_is_refused(serve: Serve, host: str) -> None:
    site = serve()
    for path in ("/metrics", "/", "/healthz"):
        answer = httpx.get(f"{site.url}{path}", headers={"Host": host})
        assert "unknown host name" in problem(answer, 421)["detail"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:8741", "10.1.2.3", "gpu01."])
def test_addresses_and_own_names_are_known(host: str) -> None:
    assert RequestRules(frozenset({"gpu01"})).knows(host)
    assert host_name("[::1") == ""


def test_https_is_kept_to_and_http_is_not_made_to() -> None:
    sent: list[dict[str, object]] = []

    async def app(_scope: object, _receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    guard = RequestGuard(app, 1_000, RequestRules(hsts_s=60))
    for scheme in ("https", "http"):
        scope = {"type": "http", "scheme": scheme, "method": "GET", "headers": [(b"host", b"127.0.0.1")]}
        with ThreadPoolExecutor() as apart:  # the loop of the browser runs in this thread
            apart.submit(asyncio.run, guard(scope, receive, send)).result(60)  # type: ignore[arg-type]
    secure, plain = (dict(message["headers"]) for message in sent)  # type: ignore[call-overload]
    assert secure[b"strict-transport-security"] == b"max-age=60"
    assert b"strict-transport-security" not in plain


def test_a_host_with_a_whole_network_of_addresses_counts_as_one_client() -> None:
    assert network_of(("2001:db8::1", 1)) == network_of(("2001:db8::ffff:1", 2)) == "2001:db8::/64"
    assert network_of(("10.0.0.1", 1)) == "10.0.0.1"
    assert network_of(None) == ""
