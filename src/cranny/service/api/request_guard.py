"""What is checked of every request before a route sees it, and added to every response."""

import asyncio
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cranny.model.yaml_file import shown
from cranny.service.api.errors import problem

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
BODY_S = 60.0  # within which the request body must have arrived
HSTS_S = 365 * 86_400  # for which browsers ask this host by https only, once they have


@dataclass(frozen=True, slots=True)
class RequestRules:
    """The host names of the service, for how long browsers keep to https, and where it goes on if it is gone."""

    names: frozenset[str] = frozenset()
    hsts_s: int = HSTS_S
    also_at: tuple[str, ...] = ()  # origins of other services on the same log

    def knows(self, host: str) -> bool:
        """Return whether a Host header names this service.

        A page whose name was made to resolve to this machine (DNS rebinding) still sends its own name. An address
        is no name that anyone could redirect, and localhost is always this machine.
        """
        name = host_name(host)
        if name in {"localhost", *self.names}:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    @property
    def hsts(self) -> tuple[bytes, bytes]:
        """The header that makes browsers keep to https."""
        return b"strict-transport-security", b"max-age=%d" % self.hsts_s


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without the port; empty if it has none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


class RequestGuard:
    """Refuses unknown hosts, oversized and slow bodies; adds security headers, and answers HEAD."""

    def __init__(self, app: ASGIApp, most_bytes: int, rules: RequestRules) -> None:
        self._app = app
        self._most = most_bytes
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                added = HEADERS if scope.get("scheme") != "https" else (*HEADERS, self._rules.hsts)
                message["headers"] = [*message["headers"], *(each for each in added if each[0] not in there)]
            await send(message)

        try:
            self._check_host(scope)
            chunks = await self._body(scope, receive)
        except HTTPException as error:
            await problem(error.status_code, error.detail)(scope, receive, careful)
            return
        if (
            chunks and chunks[-1]["type"] == "http.disconnect"
        ):  # in the middle of its body: there is none to answer
            return

        head = scope["method"] == "HEAD"  # answered as GET, without a body
        answered = False

        async def replay() -> Message:
            if chunks or not (head and answered):
                return chunks.pop(0) if chunks else await receive()
            return {"type": "http.disconnect"}  # ends a stream

        async def only_head(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                await careful(message)
            elif not answered:
                answered = True
                await careful({"type": "http.response.body", "body": b"", "more_body": False})

        if head:
            await self._app({**scope, "method": "GET"}, replay, only_head)
        else:
            await self._app(scope, replay, careful)

    def _check_host(self, scope: Scope) -> None:
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if not self._rules.knows(host):
            hint = "if clients reach this service by it, start it with --host-name"
            raise HTTPException(421, f"unknown host name {shown(host_name(host))}; {hint}")

    async def _body(self, scope: Scope, receive: Receive) -> list[Message]:
        """Receive a body that is neither too large nor too slow."""
        length = dict(scope["headers"]).get(b"content-length", b"0")
        size = int(length) if length.isdigit() and len(length) < 20 else self._most + 1
        chunks: list[Message] = []
        received = 0
        try:
            async with asyncio.timeout(BODY_S):
                while max(size, received) <= self._most:
                    chunk = await receive()
                    chunks.append(chunk)
                    received += len(chunk.get("body", b""))
                    if not chunk.get("more_body", False):
                        break
        except TimeoutError:
            raise HTTPException(408, f"request body not received within {BODY_S:.0f} s") from None
        if max(size, received) > self._most:
            raise HTTPException(413, f"request body larger than {self._most // 1024} KiB")
        return chunks
