"""Takes snapshots of the log from time to time, and archives old events, beside the service loop."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from cranny.model.errors import CrannyError
from cranny.service import log_snapshot
from cranny.service.event_chain import ChainHead
from cranny.service.log_archive import delete_archived, export_old
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore

EVENTS = 2_000  # between two snapshots; what comes after the last one is read at the start

_log = logging.getLogger("cranny.service")


class SnapshotWriter:
    """Takes a snapshot when enough events were stored since the last one."""

    def __init__(
        self,
        store: EventStore,
        scheduler: Scheduler,
        call: Callable[[Callable[[float], Any]], Future[Any]],
        archive: Path,
    ) -> None:
        self._store, self._scheduler, self._call = store, scheduler, call
        self._archive = archive  # the folder for archives
        self._thread: threading.Thread | None = None
        self._tried = 0  # the event of the last attempt

    def consider(self, head: ChainHead | None) -> None:
        """Take a snapshot if it is time to; the caller holds the lock, and the scheduler is where the log is."""
        records = self._scheduler.records
        busy = self._thread is not None and self._thread.is_alive()
        if head is None or busy or head.seq - max(records.snapshot_seq, self._tried) < EVENTS:
            return
        self._tried = head.seq
        known = log_snapshot.known_now(self._scheduler.engine, records, self._scheduler.history)
        work = partial(self._take, head, known, frozenset(records.jobs))
        self._thread = threading.Thread(target=work, name="cranny-snapshot", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for a snapshot that is being taken."""
        if self._thread is not None:
            self._thread.join()

    def _take(self, head: ChainHead, known: dict[str, Any], jobs: frozenset[str]) -> None:
        """Take a snapshot and, if events are not kept for ever, archive old ones that it has made superfluous."""
        keep_s = self._scheduler.limits.keep_events_s
        try:
            digest = log_snapshot.take(self._store, head, known, jobs)
            self._log("snapshot", {"through": head.seq, "digest": digest})
            old = None if keep_s is None else export_old(self._store, self._archive, known["last_s"] - keep_s)
            if old is not None:
                self._log("archived", old.event())
                delete_archived(self._store, old.head.seq)
        except (CrannyError, OSError) as error:  # the next one comes later
            _log.warning("no snapshot of the event log was taken, or old events were not archived: %s", error)

    def _log(self, kind: str, body: dict[str, Any]) -> None:
        """Log an event, and wait until it is stored."""
        self._call(lambda now_s: self._scheduler.log(kind, None, body, now_s)).result()
