"""Records who got access and what administrators did, as events of the log."""

import logging
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from cranny.service.auth import Caller
from cranny.service.event_chain import EventRow
from cranny.service.service import Service
from cranny.service.store import EventStore, TokenRow

# Of events that an auditor wants to see: besides access, what changed the service or the jobs of others.
KINDS = frozenset(
    ("audit", "opened", "policy", "drained", "resumed", "cancelled", "stopping", "fenced", "archived")
)
BY_FILE = "cranny token --database"  # did what no request did
REFUSED_S = 60.0  # between two events about refused logins, so that strangers cannot fill the log

_log = logging.getLogger("cranny.service")


class AuditLog:
    """Writes audit events; an event that cannot be stored is reported in the log of the server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._refused = 0  # logins since the last event about them
        self._refused_at = -REFUSED_S

    def record(self, action: str, by: str, **body: Any) -> None:
        """Store an event, without waiting for that: a busy service must not keep users out."""
        log = self._service.scheduler.log

        def stored(done: Future[Any]) -> None:
            error = done.exception()
            if error is not None:
                _log.error("audit event not stored: %s by %s %s: %s", action, by, body, error)

        self._service.call(partial(log, "audit", None, {"action": action, "by": by, **body})).add_done_callback(
            stored
        )

    def logged_in(self, caller: Caller, address: str, how: str) -> None:
        """Record that a browser session was opened."""
        self.record("logged-in", caller.user, role=caller.role, address=address, method=how)

    def refused(self, address: str) -> None:
        """Record a credential that was refused; many within a minute are one event with their number."""
        with self._lock:
            self._refused += 1
            if time.monotonic() - self._refused_at < REFUSED_S:
                return
            count, self._refused, self._refused_at = self._refused, 0, time.monotonic()
        self.record("login-refused", "unknown", address=address, count=count)

    def token_found(self, row: TokenRow) -> None:
        """Record a token that was created or revoked beside the service."""
        action = "token-created" if row.revoked_s is None else "token-revoked"
        self.record(action, BY_FILE, **about(row))

    def tokens_of_new_log(self) -> None:
        """Record the tokens that were created before the first start of a service."""
        recent = list(self._service.recent)
        for row in self._service.store.tokens() if recent and recent[0].seq == 1 else ():
            self.token_found(row)


def about(row: TokenRow) -> dict[str, Any]:
    """Return what is recorded of a token."""
    return {"token": row.id, "user": row.user, "role": row.role, "expires_s": row.expires_s}


def record_offline(store: EventStore, action: str, row: dict[str, Any], now_s: float) -> None:
    """Store an audit event in a log that no service writes; a service that does records it itself.

    The first event of a log is that a service was opened; it records the tokens that there are.
    """
    last = list(store.read(max(0, store.last() - 1)))
    if last:
        at_s = max(now_s, last[-1].at_s)
        store.append([EventRow(last[-1].seq + 1, at_s, "audit", None, {"action": action, "by": BY_FILE, **row})])
