"""The hash chain over the event log: each event's hash covers the event and the hash of the one before.

An event that was altered, removed or put in another place no longer matches; so does everything after it.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cranny.service.writer_lock import LogIntegrityError


class EventRow(NamedTuple):
    """An event of the log."""

    seq: int
    at_s: float
    kind: str
    job: str | None
    body: dict[str, Any]


class StoredEvent(NamedTuple):
    """An event as the database holds it."""

    seq: int
    at_s: float
    kind: str
    job: str | None
    body: str  # JSON
    hash: str | None  # None in a database older than hashes

    def parsed(self) -> EventRow:
        """Return the event with its body read."""
        try:
            body = json.loads(self.body)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise LogIntegrityError(f"the event log is damaged: the body of event {self.seq} is not a JSON object")
        return EventRow(self.seq, self.at_s, self.kind, self.job, body)


class ChainHead(NamedTuple):
    """The last event of a log: its number, and its hash."""

    seq: int
    hash: str

    def after(self, event: StoredEvent) -> "ChainHead":
        """Return the head of the chain with one more event; its own `hash` is not looked at."""
        fields = [self.hash, event.seq, event.at_s, event.kind, event.job, event.body]
        content = json.dumps(fields, default=repr)  # SQLite lets others store bytes, which match no hash
        return ChainHead(event.seq, hashlib.sha256(content.encode()).hexdigest())


BEGIN = ChainHead(0, "0" * 64)  # of an empty log


def linked(events: Iterable[EventRow], head: ChainHead) -> list[StoredEvent]:
    """Return events as they are stored after a head; they must be numbered from there."""
    stored = []
    for row in events:
        if row.seq != head.seq + 1:
            raise LogIntegrityError(f"event {row.seq} cannot be stored after event {head.seq}")
        event = StoredEvent(*row[:4], json.dumps(row.body), None)
        head = head.after(event)
        stored.append(event._replace(hash=head.hash))
    return stored


def verified(events: Iterable[StoredEvent], head: ChainHead = BEGIN) -> Iterator[StoredEvent]:
    """Yield the events after a head as long as they continue its chain; raise at the first that does not."""
    for event in events:
        if event.seq > head.seq + 1:
            one = event.seq == head.seq + 2
            missing = f"event {head.seq + 1} is" if one else f"events {head.seq + 1} to {event.seq - 1} are"
            raise LogIntegrityError(f"the event log is damaged: {missing} missing")
        following = head.after(event)
        if event.hash != following.hash:
            raise LogIntegrityError(
                f"the event log was altered: event {event.seq} ({event.kind}) does not match its hash"
            )
        head = following
        yield event
