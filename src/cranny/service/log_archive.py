"""Archives: moves old events from the database to files, once a snapshot has what later ones need of them."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from cranny.service.event_chain import ChainHead, EventRow
from cranny.service.log_file import LogFileHeader, verify_log_file, write_log_file
from cranny.service.log_schema import EVENTS, PAGE
from cranny.service.log_snapshot import first_head, latest
from cranny.service.store import EventStore


class Archived(NamedTuple):
    """Events that are in a file."""

    path: Path
    begin: ChainHead
    head: ChainHead

    def event(self) -> dict[str, Any]:
        """Return the body of the event that says so."""
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        head = {"through": self.head.seq, "hash": self.head.hash}
        return {"after": self.begin.seq, **head, "file": self.path.name, "digest": digest}


def export_old(store: EventStore, folder: Path, before_s: float) -> Archived | None:
    """Write the events before a time to a file, and verify it; None if a snapshot needs all that are left."""
    snapshot = latest(store)
    if snapshot is None:
        return None
    begin = first_head(store)
    with store.reading() as connection:
        late = sa.select(sa.func.min(EVENTS.c.seq)).where((EVENTS.c.at_s >= before_s) & (EVENTS.c.seq > begin.seq))
        first_late = connection.execute(late).scalar()
        last = snapshot.head.seq if first_late is None else min(snapshot.head.seq, first_late - 1)
        found = connection.execute(sa.select(EVENTS.c.hash).where(EVENTS.c.seq == last)).scalar()
    if last <= begin.seq or found is None:
        return None
    head = ChainHead(last, found)
    path = folder / f"{snapshot.known['log_id'] or 'log'}-{begin.seq + 1}-{last}.jsonl.gz"
    header = LogFileHeader(begin, head, {EVENTS.name: EVENTS.columns.keys()})
    write_log_file(path, header, ((EVENTS.name, row) for row in store.stored(begin.seq, last - begin.seq)))
    verify_log_file(path)
    return Archived(path, begin, head)


def delete_archived(store: EventStore, through: int) -> None:
    """Delete events that are in an archive, a few at a time: others must not wait for it."""
    with store.reading() as connection:
        first = int(connection.execute(sa.select(sa.func.min(EVENTS.c.seq))).scalar() or through)
    while first < through:
        first = min(first + PAGE, through)  # at the end, all of them
        store.write(sa.delete(EVENTS).where(EVENTS.c.seq <= first))


def archive(store: EventStore, folder: Path, before_s: float, now_s: float) -> Archived | None:
    """Archive old events while no service runs."""
    store.acquire()
    found = export_old(store, folder, before_s)
    if found is not None and store.head is not None:
        store.append([EventRow(store.head.seq + 1, now_s, "archived", None, found.event())])
        delete_archived(store, found.head.seq)
    return found
