"""The web server around a service, from its start to its end."""

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
from cranny.service.api.connection_limit import door
from cranny.service.auth import Authenticator
from cranny.service.service import Service

END_S = 3  # how long requests may still take when the server is to end
BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where the server listens."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None

    def url(self, port: int) -> str:
        """Return the address as people open it."""
        scheme = "https" if self.certificate is not None else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"


def serve(
    service: Service, authenticator: Authenticator, address: ListenAddress, started: Callable[[str], None]
) -> None:
    """Serve until somebody ends the process; `started` is told the address."""
    app = build(service, authenticator)
    listening = _listen(address)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=END_S,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
        server_header=False,
        backlog=BACKLOG,
        http=door(service.limits.connections),
    )
    server = _Server(config, lambda: started(address.url(listening.getsockname()[1])))
    leave = server.handle_exit

    def handle_exit(sig: int, frame: FrameType | None) -> None:
        app.state.notifier.close()  # lets those go at once who follow changes
        leave(sig, frame)

    server.handle_exit = handle_exit  # type: ignore[method-assign]
    if threading.current_thread() is threading.main_thread():
        # The server raises a signal again once it has ended in good order; that must not end us in bad order.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
    service.ended.append(lambda: setattr(server, "should_exit", True))
    server.run(sockets=[listening])
    if service.trouble:
        raise CrannyError(f"the service has failed: {service.trouble}; jobs go on, and so does the next service")


class _Server(uvicorn.Server):
    """A server that says when it takes requests, and so can be ended in good order."""

    def __init__(self, config: uvicorn.Config, tell: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell."""
        await super().startup(sockets)
        if self.started:
            self._tell()


def _listen(address: ListenAddress) -> socket.socket:
    """Open the socket, or say in one line why not."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except OSError as error:
        listening.close()
        raise CrannyError(f"cannot listen on {address.host}:{address.port}: {error.strerror}") from None
    return listening
