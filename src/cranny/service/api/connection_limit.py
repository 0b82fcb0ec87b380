"""Caps connections, and drops those that send no request within 20 s.

Every connection uses a file descriptor of this process; the cap leaves enough of them for jobs and the event log.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

SILENT_S = 20.0  # until the first request must have arrived
FULL = b"too many connections; retry later"
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\nretry-after: 5\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(FULL), FULL)
)

_Base: Any = AutoHTTPProtocol  # h11 or httptools, whichever is installed


def connection_limit(most: int) -> type[asyncio.Protocol]:
    """Return an HTTP protocol that accepts at most so many connections at a time."""

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
