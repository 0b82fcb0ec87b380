"""The HTTP server of a service: from listening, with a cap on connections, to graceful shutdown."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from cranny.model.errors import CrannyError
from cranny.service.api.app import build
from cranny.service.auth import Authenticator
from cranny.service.service import Service

SHUTDOWN_S = 3  # how long open requests may take when the server shuts down
BACKLOG = 1024
SILENT_S = 20.0  # until the first request must have arrived
FULL = b"too many connections; retry later"
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\nretry-after: 5\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(FULL), FULL)
)

_Base: Any = AutoHTTPProtocol  # h11 or httptools, whichever is installed


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where the server listens."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None

    def url(self, port: int) -> str:
        """Return the URL of the server."""
        scheme = "https" if self.certificate is not None else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"


def serve(
    service: Service, authenticator: Authenticator, address: ListenAddress, started: Callable[[str], None]
) -> None:
    """Serve until SIGINT or SIGTERM; `started` is called with the URL."""
    app = build(service, authenticator)
    listening = _listen(address)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        server_header=False,
        backlog=BACKLOG,
        http=connection_limit(service.limits.connections),
    )
    server = _Server(config, lambda: started(address.url(listening.getsockname()[1])))
    end = server.handle_exit

    def handle_exit(sig: int, frame: FrameType | None) -> None:
        app.state.notifier.close()  # ends event streams at once
        end(sig, frame)

    server.handle_exit = handle_exit  # type: ignore[method-assign]
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal again after a graceful shutdown; that must not kill this process.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
    service.on_ended.append(lambda: setattr(server, "should_exit", True))
    server.run(sockets=[listening])
    if service.failure:
        raise CrannyError(f"the service failed: {service.failure}; jobs keep running, restart it to resume")


class _Server(uvicorn.Server):
    """A server that reports when it accepts requests."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report it."""
        await super().startup(sockets)
        if self.started:
            self._on_started()


def connection_limit(most: int) -> type[asyncio.Protocol]:
    """Return an HTTP protocol that accepts at most so many connections, and drops those that send no request.

    Every connection uses a file descriptor of this process; the cap leaves enough of them for jobs and the event
    log.
    """

    class ConnectionLimit(_Base):  # type: ignore[misc]
        """One connection."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            """Accept or refuse a connection."""
            self._refused = len(self.connections) >= most
            if self._refused:
                transport.write(REFUSAL)
                transport.close()
                return
            super().connection_made(transport)
            self.loop.call_later(SILENT_S, self._close_if_silent)

        def data_received(self, data: bytes) -> None:
            """Handle data of an accepted connection."""
            if not self._refused:
                super().data_received(data)

        def eof_received(self) -> None:
            """Handle the end of input of an accepted connection."""
            if not self._refused:
                super().eof_received()

        def connection_lost(self, exc: Exception | None) -> None:
            """Handle the loss of an accepted connection."""
            if not self._refused:
                super().connection_lost(exc)

        def _close_if_silent(self) -> None:
            if self.cycle is None and not self.transport.is_closing():
                self.transport.abort()

    return ConnectionLimit


def _listen(address: ListenAddress) -> socket.socket:
    """Open the listening socket, or raise with one line that says why not."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except OSError as error:
        listening.close()
        raise CrannyError(f"cannot listen on {address.host}:{address.port}: {error.strerror}") from None
    return listening
