"""The door of the server: only so many may come in at a time, and who comes in must say what he wants.

Whoever connects uses up a file of this process, known or not. The door keeps enough of them for jobs and the log.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

SILENT_S = 20.0  # how long a connection may stay open before the first request is there
FULL = b"too many connections; try again later"
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\nretry-after: 5\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(FULL), FULL)
)

_Base: Any = AutoHTTPProtocol  # which one depends on what is installed


def door(most: int) -> type[asyncio.Protocol]:
    """Return what speaks HTTP with at most so many clients at a time."""

    class Door(_Base):  # type: ignore[misc]
        """One connection."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            """Let somebody in, or not."""
            self._refused = len(self.connections) >= most
            if self._refused:
                transport.write(REFUSAL)
                transport.close()
                return
            super().connection_made(transport)
            self.loop.call_later(SILENT_S, self._close_if_silent)

        def data_received(self, data: bytes) -> None:
            """Take in what a client says, if it was let in."""
            if not self._refused:
                super().data_received(data)

        def eof_received(self) -> None:
            """Take in that a client says no more."""
            if not self._refused:
                super().eof_received()

        def connection_lost(self, exc: Exception | None) -> None:
            """Take leave."""
            if not self._refused:
                super().connection_lost(exc)

        def _close_if_silent(self) -> None:
            if self.cycle is None and not self.transport.is_closing():
                self.transport.abort()

    return Door
