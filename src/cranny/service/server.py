"""The HTTP server of a service: from listening, with a cap on connections, to graceful shutdown."""

import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from cranny.model.errors import CrannyError
from cranny.service.api.app import build
from cranny.service.api.request_guard import HSTS_S, RequestRules
from cranny.service.auth import Authenticator, is_loopback
from cranny.service.connection_limit import KEEP_ALIVE_S, connection_limit
from cranny.service.oidc_login import OidcLogin
from cranny.service.service import Service

SHUTDOWN_S = 3  # how long open requests may take when the server shuts down
BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where the server listens."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()  # further host names by which clients reach it
    hsts_s: int = HSTS_S
    also_at: tuple[str, ...] = ()  # origins of other services on the same log

    @property
    def rules(self) -> RequestRules:
        """What requests must fulfil: off loopback they may also name this machine."""
        own = () if is_loopback(self.host) else (socket.gethostname(), socket.getfqdn())
        names = frozenset(name.lower() for name in (self.host, *own, *self.names))
        return RequestRules(names, self.hsts_s, self.also_at)

    def url(self, port: int) -> str:
        """Return the URL of the server."""
        scheme = "https" if self.certificate is not None else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"


def serve(
    service: Service,
    authenticator: Authenticator,
    address: ListenAddress,
    started: Callable[[str], None],
    oidc: OidcLogin | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; `started` is called with the URL."""
    app = build(service, authenticator, address.rules, oidc)
    app.state.audit.tokens_of_new_log()
    listening = _listen(address)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        server_header=False,
        proxy_headers=False,  # any local client could claim another address
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


def _listen(address: ListenAddress) -> socket.socket:
    """Open the listening socket, or raise with one line that says why not."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it, answers wait 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except OSError as error:
        listening.close()
        raise CrannyError(f"cannot listen on {address.host}:{address.port}: {error.strerror}") from None
    return listening
