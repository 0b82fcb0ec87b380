"""Rebuilds the state of the scheduler from the event log, and refuses a log that cannot have led to it."""

from cranny.core.engine import Engine
from cranny.model.cluster import Cluster
from cranny.model.cluster_values import cluster_of_values
from cranny.model.errors import CrannyError, InputError
from cranny.service import log_snapshot
from cranny.service.engines import replay
from cranny.service.event_chain import BEGIN, EventRow
from cranny.service.job_record import JobRecord
from cranny.service.job_records import JobRecords
from cranny.service.limits import NotFoundError
from cranny.service.store import EventStore
from cranny.service.utilization import UtilizationHistory
from cranny.service.writer_lock import LogIntegrityError, StoreError

# What an event raises whose fields are missing, of another type, or at odds with the events before it.
UNUSABLE = (CrannyError, KeyError, IndexError, TypeError, ValueError, AttributeError)


def rebuild(store: EventStore, engine: Engine, records: JobRecords, history: UtilizationHistory) -> Engine:
    """Bring an empty engine and empty records to where the log ends; return the engine then.

    What a snapshot has is not read again.
    """
    head = BEGIN
    snapshot = log_snapshot.latest(store)
    if snapshot is not None:
        head = snapshot.head
        try:
            engine = log_snapshot.restore(snapshot, engine, records, history)
        except UNUSABLE as error:
            raise LogIntegrityError(
                f"the snapshot of the event log at event {head.seq} is unusable: {error}"
            ) from None
    else:
        archived = log_snapshot.first_head(store)
        if archived.seq:
            raise LogIntegrityError(
                f"events 1 to {archived.seq} were archived, and no snapshot of them is valid: restore a backup"
            )
    for row in store.verified(head):
        try:
            engine = replay(row, engine, records)
        except StoreError:
            raise
        except UNUSABLE as error:
            raise _unusable(row, error) from None
        history.note(records, engine.state)
    return engine


def first_cluster(store: EventStore) -> Cluster | None:
    """Return the first cluster that the log names; None if it is older than such events."""
    layout = store.first_layout()
    return None if layout is None else cluster_of_values(layout)


def read_job(store: EventStore, records: JobRecords, job_id: str) -> JobRecord:
    """Return the record of a job that was over long ago, from its events alone."""
    alone = JobRecords(records.cluster)
    for row in store.events_of(job_id, with_clusters=records.layouts > 1):
        if "layout" in row.body:
            alone.cluster = cluster_of_values(row.body["layout"])  # whose machines the next events number
        elif row.job is not None:
            alone.apply(row)
    if job_id not in alone.jobs:
        raise NotFoundError(f"{job_id} is over, and its events were archived")
    return alone.jobs[job_id]


def submitted_with(
    records: JobRecords, store: EventStore | None, user: str, key: str
) -> tuple[JobRecord, str] | None:
    """Return the job that was submitted with a client's key, and the digest of its body; None if none was."""
    if (user, key) in records.keys:
        job_id, digest = records.keys[user, key]
        return records.jobs[job_id], digest
    known = None if store is None else store.find_key(user, key)
    return None if store is None or known is None else (read_job(store, records, known[0]), known[1])


def _unusable(row: EventRow, error: Exception) -> CrannyError:
    """Say which event cannot be applied; a log of another cluster is the caller's mistake."""
    if isinstance(error, InputError) and row.kind == "opened":
        return error
    what = f"{row.kind} of {row.job}" if row.job is not None else row.kind
    text = f"the event log was altered, or belongs to another cluster: event {row.seq} ({what}) cannot follow"
    return LogIntegrityError(f"{text}: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    why = str(error) if isinstance(error, CrannyError) else f"{type(error).__name__}: {error}"
    return " ".join(why.split())
