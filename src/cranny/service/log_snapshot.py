"""Snapshots of the log: the events from which the present state follows, and counts of all that came before.

A snapshot holds no state of the engine, so that another version can read it. It has the events of jobs that are
not over or were over last, of the cluster and of the policy; what jobs before them left behind is known as
numbers, and what operators and the manager of the cluster have said as it stands. An event of the log names its
digest: one that was altered, or not stored whole, is not used.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import sqlalchemy as sa

from cranny.core.engine import Engine
from cranny.core.snapshot import Waiting
from cranny.service import foreign_jobs
from cranny.service.engines import follow_availability, replay
from cranny.service.event_chain import BEGIN, ChainHead, EventRow, StoredEvent
from cranny.service.job_records import JobRecords
from cranny.service.learned_profile import LearnedProfile
from cranny.service.locations import Location
from cranny.service.log_schema import EVENTS, SNAPSHOTS
from cranny.service.store import EventStore
from cranny.service.utilization import UtilizationHistory, UtilizationPoint
from cranny.service.writer_lock import LogIntegrityError

MAX_POINTS = 2_000  # of utilization
AT_A_TIME = 500  # bodies of events in memory while a snapshot is restored
# Events that a snapshot keeps none of: it says what they have come to.
STATED = frozenset({"drained", "resumed", "availability", "foreign", "reservations", "prioritized"})
PLAIN = ("submitted", "saved", "cluster_digest", "log_id", "about", "mode", "epoch_s", "last_s")


class LogSnapshot(NamedTuple):
    """What a log has come to with an event."""

    head: ChainHead
    known: dict[str, Any]
    rows: list[StoredEvent]  # in order, but not all

    def text(self) -> str:
        """Return the snapshot as lines of JSON."""
        return "\n".join([json.dumps(self.known), *(json.dumps(row) for row in self.rows)])

    @classmethod
    def parse(cls, head: ChainHead, text: str) -> "LogSnapshot":
        """Read the lines of a snapshot."""
        known, *rows = text.split("\n")
        return cls(head, json.loads(known), [StoredEvent(*row) for row in joined(rows)])

    def events(self) -> Iterator[EventRow]:
        """Yield the events with their bodies read, many at a time."""
        for first in range(0, len(self.rows), AT_A_TIME):
            rows = self.rows[first : first + AT_A_TIME]
            for row, body in zip(rows, joined([row.body for row in rows]), strict=True):
                yield EventRow(row.seq, row.at_s, row.kind, row.job, body)


def joined(texts: Iterable[str]) -> list[Any]:
    """Read many JSON texts at once, which takes half as long as one by one."""
    found: list[Any] = json.loads(f"[{','.join(texts)}]")
    return found


def known_now(engine: Engine, records: JobRecords, history: UtilizationHistory) -> dict[str, Any]:
    """Return what does not follow from the events that a snapshot keeps."""
    controls = {
        job_id: record.attempts[-1].control_seq
        for job_id, record in records.jobs.items()
        if record.attempts and not record.over
    }
    return {
        **{name: getattr(records, name) for name in PLAIN},
        "counts": dict(records.counts),
        "profiles": [[*key, profile.values()] for key, profile in records.profiles.items()],
        "location": None if records.location is None else records.location._asdict(),
        "queue": [waiting.job.id for waiting in engine.queue],
        "controls": controls,
        "history": history.since(0.0, MAX_POINTS),
        "managed": {
            **records.managed.values(),
            "held": foreign_jobs.held(engine.state),
            "drained": sorted(records.drained),
            "priorities": {
                job_id: record.external_priority
                for job_id, record in records.jobs.items()
                if record.external_priority is not None and not record.over
            },
            "layouts": records.layouts,
        },
    }


def restore(snapshot: LogSnapshot, engine: Engine, records: JobRecords, history: UtilizationHistory) -> Engine:
    """Bring an empty engine and empty records to where a snapshot was taken; return the engine then."""
    known = snapshot.known
    records.epoch_s = known["epoch_s"]
    # Jobs that are not over are as their names were seen last, whatever was known when they came.
    records.profiles = {(user, name): LearnedProfile.of(values) for user, name, values in known["profiles"]}
    for row in snapshot.events():
        engine = replay(row, engine, records)
    for name in PLAIN:
        setattr(records, name, known[name])
    records.counts.clear()
    records.counts.update(known["counts"])
    records.location = None if known["location"] is None else Location(**known["location"])
    if "managed" in known:  # as in all since there are clusters that change
        _restore_managed(known["managed"], engine, records)
    records.seq = records.snapshot_seq = snapshot.head.seq
    for job_id, seq in known["controls"].items():
        records.jobs[job_id].attempts[-1].control_seq = seq
    waiting: list[Waiting] = [engine.queue.take(job_id) for job_id in known["queue"]]
    engine.queue.fill(each._replace(job=records.jobs[each.job.id].job) for each in waiting)
    history.fill(UtilizationPoint(*point) for point in known["history"])
    return engine


def _restore_managed(known: dict[str, Any], engine: Engine, records: JobRecords) -> None:
    """Restore what the manager of the cluster says, and what operators have drained."""
    records.managed.fill(known)
    records.drained, records.layouts = set(known["drained"]), known["layouts"]
    for job_id, priority in known["priorities"].items():
        record = records.jobs[job_id]
        record.external_priority, record.job = priority, replace(record.job, priority=priority)
    foreign_jobs.hold_as_before(engine.state, known["held"], records.managed.foreign.values())
    follow_availability(engine.state, records)


def kept_rows(rows: Iterable[StoredEvent], jobs: Collection[str]) -> list[StoredEvent]:
    """Return the events without which the state of these jobs would be another.

    Numbers of machines are those of the cluster at the time of an event, so all other clusters since are kept.
    """
    kept: list[StoredEvent] = []
    opened: StoredEvent | None = None  # the last start of the service, if it is not kept yet
    before: dict[str, StoredEvent] = {}  # what held when the first of them began
    for row in rows:
        layout = row.kind == "cluster" or (row.kind == "opened" and '"layout"' in row.body)
        if row.kind in STATED:
            continue
        if not kept and (layout or row.kind in {"opened", "policy"}):
            before |= {"layout": row} if layout else {}
            before |= {row.kind: row} if row.kind != "cluster" else {}
        elif row.kind == "opened" and not layout:
            opened = row
        elif layout or row.kind == "policy" or _concerns(row, jobs):
            if not kept:
                kept += _in_order(before.values())
            if opened is not None and row.kind not in {"opened", "policy"}:
                kept.append(opened)
            opened = opened if row.kind == "policy" else None
            kept.append(row)
    return kept or _in_order(before.values())


def _in_order(rows: Iterable[StoredEvent]) -> list[StoredEvent]:
    """Return events in the order of the log, each once."""
    return [row for _, row in sorted({row.seq: row for row in rows}.items())]


def _concerns(row: StoredEvent, jobs: Collection[str]) -> bool:
    if row.kind == "fenced":
        return any(job_id in jobs for job_id, _ in row.parsed().body["attempts"])
    return row.kind != "profiled" and row.job in jobs


def take(store: EventStore, head: ChainHead, known: dict[str, Any], jobs: Collection[str]) -> str:
    """Store a snapshot of the log up to an event; return its digest, which an event must confirm."""
    before = latest(store)
    rows = _rows(store, before, head)
    snapshot = LogSnapshot(head, known, kept_rows(rows, jobs))
    text = snapshot.text()
    digest = hashlib.sha256(text.encode()).hexdigest()
    old = SNAPSHOTS.c.seq < (before.head.seq if before is not None else 0)
    unconfirmed = SNAPSHOTS.c.seq == head.seq
    store.write(
        sa.delete(SNAPSHOTS).where(old | unconfirmed),
        sa.insert(SNAPSHOTS).values(seq=head.seq, hash=head.hash, body=text),
    )
    return digest


def _rows(store: EventStore, before: LogSnapshot | None, head: ChainHead) -> Iterator[StoredEvent]:
    """Yield what an earlier snapshot has kept, and the events from there to a head."""
    after = 0
    if before is not None:
        yield from before.rows
        after = before.head.seq
    yield from store.stored(after, head.seq - after)


def latest(store: EventStore) -> LogSnapshot | None:
    """Return the latest snapshot that an event of the log confirms; None if there is none."""
    for head, text in _confirmed(store):
        if text is not None:
            return LogSnapshot.parse(head, text)
    return None


def check_snapshots(store: EventStore) -> None:
    """Raise if a snapshot was altered."""
    for head, text in _confirmed(store):
        if text is None:
            raise LogIntegrityError(f"the snapshot of the event log at event {head.seq} was altered")


def _confirmed(store: EventStore) -> Iterator[tuple[ChainHead, str | None]]:
    """Yield the snapshots that the log says were taken, the latest first; None for one that was altered."""
    columns = SNAPSHOTS.c.seq, SNAPSHOTS.c.hash
    with store.reading() as connection:
        found = connection.execute(sa.select(*columns).order_by(SNAPSHOTS.c.seq.desc())).all()
        for seq, chain_hash in found:
            confirms = sa.select(EVENTS.c.body).where((EVENTS.c.seq > seq) & (EVENTS.c.kind == "snapshot"))
            bodies = [_fields(body) for (body,) in connection.execute(confirms)]
            digests = [body.get("digest") for body in bodies if body.get("through") == seq]
            if digests:
                text = connection.execute(sa.select(SNAPSHOTS.c.body).where(SNAPSHOTS.c.seq == seq)).scalar_one()
                whole = isinstance(text, str) and hashlib.sha256(text.encode()).hexdigest() in digests
                yield ChainHead(seq, chain_hash), text if whole else None


def _fields(body: Any) -> dict[str, Any]:
    """Return the body of an event that is not verified yet; one that was altered says nothing."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def first_head(store: EventStore) -> ChainHead:
    """Return after which event the log in the database begins: 0, or the last one that was archived."""
    with store.reading() as connection:
        first = connection.execute(sa.select(sa.func.min(EVENTS.c.seq))).scalar()
        if first is None or first == 1:
            return BEGIN
        archived = sa.select(EVENTS.c.body).where(EVENTS.c.kind == "archived").order_by(EVENTS.c.seq.desc())
        for (body,) in connection.execute(archived):
            match _fields(body):
                case {"after": int(after), "through": int(through), "hash": str(last)}:
                    if after < first <= through + 1:  # perhaps not all of them are deleted yet
                        return ChainHead(through, last)
    raise LogIntegrityError(
        "the event log is damaged: event 1 is missing"
        if first == 2
        else f"the event log is damaged: events 1 to {first - 1} are missing"
    )
