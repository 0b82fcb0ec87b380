"""The cap on connections, which slow or half-sent requests cannot use up.

Every connection uses a file descriptor of this process; the cap leaves enough of them for jobs and the event log.
Where it is reached, a new connection takes the place of one that keeps the server waiting: for a request, for the
rest of one, or because it does not read its answer. If there is none, it takes that of a request without a valid
token. Only requests of users are never ended for others.
"""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

SILENT_S = 20.0  # within which the head of a request must have arrived
# For which a connection stays open after an answer: longer than load balancers keep it (nginx 60 s, Google 600 s).
# Otherwise one may send a request just when the server closes the connection.
KEEP_ALIVE_S = 620
STALLED_S = 60.0  # for which an answer may wait for a client that does not read it
CHECK_S = 5.0  # between two looks at a connection
USER = "cranny.user"  # where the scope of an authenticated request has its user
FULL = b"too many connections; retry later"
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\nretry-after: 5\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(FULL), FULL)
)

_Base: Any = AutoHTTPProtocol  # h11 or httptools, whichever is installed


def network_of(client: tuple[str, int] | None) -> str:
    """Return what counts as one client: an address, or the /64 network that a host has of IPv6."""
    host = client[0] if client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


class LimitedConnection(_Base):  # type: ignore[misc]
    """One connection, which knows since when it keeps the server waiting."""

    most = 0  # connections; set by `connection_limit`

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Accept a connection, in place of a waiting one if there are too many, or refuse it."""
        self._since_s = self.loop.time()
        self._stalled = self._kept_alive = self.evicted = False
        self._refused = not self._admit()
        if self._refused:
            transport.write(REFUSAL)
            transport.close()
            return
        super().connection_made(transport)
        self.loop.call_later(min(CHECK_S, SILENT_S), self._end_if_late)

    def _admit(self) -> bool:
        if len(self.connections) < self.most:
            return True
        staying = [each for each in self.connections if not each.evicted]
        if len(staying) < self.most:
            return True
        waiting = longest_waiting(staying)
        if waiting is not None:
            waiting.evict()
        return waiting is not None

    def evict(self) -> None:
        """End this connection for a new one."""
        self.evicted = True
        self.transport.abort()

    @property
    def served(self) -> bool:
        """Whether a request has fully arrived and is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    @property
    def waits(self) -> bool:
        """Whether the server waits for the client, and not the client for the server."""
        return self._stalled or not self.served

    @property
    def protected(self) -> bool:
        """Whether it is never ended for another: it waits for the answer to a request of a user."""
        return not self.waits and USER in self.cycle.scope

    @property
    def since_s(self) -> float:
        """When it began to wait, or to be served."""
        return float(self._since_s)

    def data_received(self, data: bytes) -> None:
        """Handle data of an accepted connection."""
        if self._kept_alive:  # the head of the next request begins
            self._kept_alive, self._since_s = False, self.loop.time()
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

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn closes the connection after `timeout_keep_alive`."""
        self._kept_alive, self._since_s = True, self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client does not read its answer."""
        self._stalled, self._since_s = True, self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._stalled = False
        super().resume_writing()

    def shutdown(self) -> None:
        """End at once if the server only waits for the client; finish a request that has fully arrived."""
        if self.waits:
            self.transport.abort()
        else:
            super().shutdown()

    def _end_if_late(self) -> None:
        """End a connection that sends no request, or does not read its answer; bodies have their own limit."""
        if self.transport.is_closing():
            return
        waited_s = self.loop.time() - self._since_s
        body = self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete
        silent = not self.served and not body and not self._kept_alive
        if (self._stalled and waited_s > STALLED_S) or (silent and waited_s >= SILENT_S):
            self.transport.abort()
        else:
            self.loop.call_later(min(CHECK_S, SILENT_S), self._end_if_late)


def longest_waiting(connections: Collection[LimitedConnection]) -> LimitedConnection | None:
    """Return the connection to end for a new one: the longest waiting one of the client that has most of them."""
    found = [each for each in connections if not each.protected]
    found = [each for each in found if each.waits] or found
    of_client = Counter(network_of(each.client) for each in found)
    return min(found, key=lambda each: (-of_client[network_of(each.client)], each.since_s), default=None)


def connection_limit(most: int) -> type[LimitedConnection]:
    """Return an HTTP protocol that has at most so many connections."""
    return type("ConnectionLimit", (LimitedConnection,), {"most": most})
