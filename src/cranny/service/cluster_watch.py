"""Watches a cluster: reads it from its source every few seconds, in a thread of its own, and hands readings over.

A source that fails, hangs or answers late changes nothing: the service goes on with what it knows, says so, and
catches up with the next reading.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from cranny.backends.cluster_reading import ClusterReading, ClusterSource
from cranny.backends.protocol import BackendError, ShowsReasons
from cranny.model.errors import CrannyError
from cranny.model.validate import counted
from cranny.service.explain import WaitContext, quick_reason
from cranny.service.reconcile import Reconciled, Reconciler
from cranny.service.scheduler import Scheduler

EVERY_S = 2.0  # between two readings
SLOW_S = 30.0  # after which a reading that has not come is a problem
MAX_SHOWN = 100  # reasons that are shown to users of the manager after a reading
TAKE_S = 60.0  # that the service may take to store what a reading has changed

_log = logging.getLogger("cranny.service")


class Watching(Protocol):
    """What the thread needs of the service."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, to be used under the lock only."""
        ...

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock of the scheduler."""
        ...

    def call(self, work: Callable[[float], Any]) -> Future[Any]:
        """Run work in the service loop."""
        ...

    def now_s(self) -> float:
        """Return the current time."""
        ...


class ClusterWatch:
    """The thread that reads a cluster, and what it has last heard of it."""

    def __init__(self, source: ClusterSource, service: Watching, every_s: float = EVERY_S) -> None:
        self._source, self._service, self._every_s = source, service, every_s
        self._reconciler = Reconciler(service.scheduler)
        self._closed = threading.Event()
        self._problem = ""
        self._read_s = 0.0  # when the last reading was asked for that was taken over
        self._asked_s: float | None = None  # when the one was asked for that has not come yet
        self._refused: Mapping[str, str] = {}
        self._overfull: tuple[str, ...] = ()
        self._shown: dict[str, str] = {}  # reasons, by the manager's ids of jobs
        self._thread = threading.Thread(target=self._run, name="cranny-cluster-watch", daemon=True)

    @property
    def problem(self) -> str:
        """Why the cluster cannot be read; empty if it can."""
        asked_s, now_s = self._asked_s, self._service.now_s()
        if asked_s is not None and now_s > asked_s + SLOW_S:
            return f"the cluster's manager has not answered for {now_s - asked_s:.0f} s"
        return self._problem

    @property
    def status(self) -> dict[str, Any]:
        """What is known of the source, as values of JSON."""
        managed = self._service.scheduler.records.managed
        return {
            "read_s": self._read_s,
            "foreign_jobs": len(managed.foreign),
            "reservations": [each.name for each in managed.reservations],
            "problem": self.problem,
            "refused": dict(list(self._refused.items())[:MAX_SHOWN]),
            "overfull": list(self._overfull),
        }

    def begin(self, first: ClusterReading, now_s: float) -> None:
        """Take over the reading that the service was built with; the caller stores the events."""
        self._note(self._reconciler.take(first, now_s, now_s), now_s)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; one that waits for its source is left to it."""
        self._closed.set()
        self._thread.join(timeout=1.0)

    def read_now(self) -> None:
        """Read the cluster once and hand the reading over; what goes wrong is a problem, and never an error."""
        self._asked_s = asked_s = self._service.now_s()
        try:
            reading = self._source.read()
            self._service.call(partial(self._take, reading, asked_s)).result(TAKE_S)
            self._show()
            self._say("")
        except (BackendError, OSError, TimeoutError) as error:
            self._say(f"the cluster cannot be read: {error}")
        except CrannyError as error:  # it could not be stored now; the next reading repeats it
            self._say(f"what the cluster's manager says cannot be taken over: {error}")
        finally:
            self._asked_s = None

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self.read_now()
            except Exception as error:  # noqa: BLE001 - whatever a source does, the thread goes on
                _log.exception("the cluster cannot be read")
                self._problem = f"the cluster cannot be read: {type(error).__name__}: {error}"

    def _take(self, reading: ClusterReading, asked_s: float, now_s: float) -> None:
        self._note(self._reconciler.take(reading, asked_s, now_s), asked_s)

    def _note(self, found: Reconciled, asked_s: float) -> None:
        self._read_s, self._refused = max(self._read_s, asked_s), found.refused
        if found.change:
            _log.warning("the cluster has changed: %s", found.change.describe())
        if (overfull := tuple(found.overfull)) != self._overfull:
            self._overfull = overfull
            if overfull:
                names = ", ".join(overfull)
                _log.warning("others hold more GPUs than are free on %s, which count as full", names)

    def _say(self, problem: str) -> None:
        """Log that a problem has come or gone, once."""
        if problem and not self._problem:
            _log.error("%s; retrying", problem)
        elif self._problem and not problem:
            _log.warning("the cluster can be read again")
        self._problem = problem

    def _show(self) -> None:
        """Show users of the manager why their jobs wait, where that has changed."""
        if not isinstance(self._source, ShowsReasons):
            return
        reasons = self._reasons()
        new = {external: why for external, why in reasons.items() if self._shown.get(external) != why}
        some = dict(list(new.items())[:MAX_SHOWN])
        if some:
            self._source.show(some)
        self._shown = {external: why for external, why in self._shown.items() if external in reasons} | some

    def _reasons(self) -> dict[str, str]:
        """Return why jobs of the manager wait, or were refused, in one line each."""
        found, now_s = dict(self._refused), self._service.now_s()
        with self._service.lock:
            engine, records = self._service.scheduler.engine, self._service.scheduler.records
            context = WaitContext(engine.state.snapshot(now_s, engine.queue), records)
            first = engine.queue[0].job.id if engine.queue else None
            for before, waiting in enumerate(engine.queue[: 10 * MAX_SHOWN]):
                record = records.jobs[waiting.job.id]
                if record.external_spec is not None:
                    reason = quick_reason(record, context, first, engine.period_s)[1]
                    found[record.external] = f"{reason}; {counted(before, 'job')} before it"
        return found
