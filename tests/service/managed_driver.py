"""Drives a scheduler on a fake manager through time, without threads: what happens is done one after the other."""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.reference.invariants import check
from tests.service.standing import standing

from cranny.backends.cluster_reading import ClusterReading
from cranny.backends.fake_manager import FakeManager
from cranny.backends.protocol import BackendError, Ended
from cranny.model.cluster import Machine
from cranny.service import log_snapshot
from cranny.service.adoption import Adoption
from cranny.service.attempts import launch_of, stop_of
from cranny.service.controls import control_of
from cranny.service.executor import AttemptLaunched, AttemptStop
from cranny.service.job_record import HELD, Attempt, JobRecord
from cranny.service.limits import Limits
from cranny.service.locations import Location
from cranny.service.reconcile import Reconciler
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore

POLICY = {"name": "titan", "order": "backfill"}


class ManagedDriver:
    """A scheduler, its log and the manager below; `restart` begins anew from the log."""

    def __init__(self, folder: Path, machines: dict[str, int], policy: dict[str, Any] | None = None) -> None:
        self.now_s = 100.0
        self.manager = FakeManager(lambda: self.now_s)
        for name, gpus in machines.items():
            self.manager.join(Machine(name, gpus), f"rack-{name[0]}")
        self.store = EventStore(str(folder / "log.db"))
        self.location = Location.here(folder)
        self.folder = folder
        self._policy = policy or POLICY
        self.scheduler, self.reconciler = self._new()

    def _new(self) -> tuple[Scheduler, Reconciler]:
        first = self.manager.read()
        scheduler = Scheduler(first.cluster, "run", Limits())
        scheduler.restore(self.store)
        scheduler.open(self.now_s, self.location)
        self.scheduler, self.reconciler = scheduler, Reconciler(scheduler)
        self.reconciler.take(first, self.now_s, self.now_s)
        if not scheduler.records.policy:
            scheduler.set_policy(dict(self._policy), "root", self.now_s)
        found = Adoption.of(scheduler.records, self.location, self._launch_of, self._stop_of)
        self._report([*self.manager.adopt([*found.leaving, *found.current])])
        for what in found.leaving:
            self.manager.stop(what.job_id)
        self._store()
        return scheduler, self.reconciler

    def restart(self, *, snapshot: bool = False) -> None:
        """Begin anew from the log, as a service that was killed does; with a snapshot of the log if asked for."""
        if snapshot:
            records, head = self.scheduler.records, self.store.head
            assert head is not None
            known = log_snapshot.known_now(self.scheduler.engine, records, self.scheduler.history)
            digest = log_snapshot.take(self.store, head, known, frozenset(records.jobs))
            self.scheduler.log("snapshot", None, {"through": head.seq, "digest": digest}, self.now_s)
            self._store()
        before = standing(self.scheduler)
        again = Scheduler(self.scheduler.cluster, "run", Limits())
        again.restore(self.store)
        assert standing(again) == before
        self._new()

    def read(self, reading: ClusterReading | None = None, asked_s: float | None = None) -> None:
        """Take a reading over: of now, or one that was taken before."""
        now = self.manager.read() if reading is None else reading
        self.reconciler.take(now, self.now_s if asked_s is None else asked_s, self.now_s)
        self.act()

    def submit(self, gpus: int, run_s: float) -> str:
        """Submit a job here, not to the manager."""
        spec = {"command": ["run", str(run_s)], "gpus": gpus}
        record, _ = self.scheduler.submit("ann", spec, None, self.now_s)
        self.act()
        return record.id

    def cancel(self, job_id: str) -> None:
        """Cancel a job here."""
        if not self.scheduler.find(job_id).over:
            self.scheduler.cancel(job_id, "ann", self.now_s)
            self.act()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and hear what has ended."""
        self.now_s += seconds
        self._report(self.manager.poll())
        self.act()

    def check(self) -> None:
        """Check what must hold at any time."""
        state, records = self.scheduler.engine.state, self.scheduler.records
        check(state)
        queued = Counter(waiting.job.id for waiting in self.scheduler.engine.queue)
        for job_id, record in records.jobs.items():
            expected = (record.status == "waiting", record.status in HELD)
            assert (queued[job_id] == 1, job_id in state) == expected, (job_id, record.status)
            assert all(len(each.placement.machines) == record.job.gpus for each in record.attempts)
        live = [job.attempt for job in self.manager.jobs.values() if job.state in ("running", "released")]
        assert all(count == 1 for attempt, count in Counter(live).items() if attempt is not None)

    def act(self) -> None:
        """Store events, and carry out what was decided."""
        self._store()
        while self.scheduler.instructions:
            do, record, attempt = self.scheduler.instructions.popleft()
            if do in ("stop", "leave"):
                self.manager.stop(record.id)
            elif do == "launch" and record.attempt is attempt:
                self._launch(record, attempt)
            self._store()

    def _launch(self, record: JobRecord, attempt: Attempt) -> None:
        try:
            self.manager.launch(self._launch_of(record, attempt))
        except BackendError as error:
            self._report([Ended(record.id, attempt.number, None, "failed", str(error))])
            return
        launched = AttemptLaunched(record.id, attempt.number, self.manager.external_id(record.id))
        self.scheduler.attempt_launched(launched, self.now_s)

    def _report(self, ended: list[Ended] | Any) -> None:
        for each in ended:
            self.scheduler.attempt_ended(each, self.now_s)

    def _store(self) -> None:
        if self.scheduler.rows:
            self.store.append(self.scheduler.rows)
            self.scheduler.rows.clear()

    def _launch_of(self, record: JobRecord, attempt: Attempt) -> Any:
        return launch_of(record, attempt, self.folder / record.id)

    def _stop_of(self, record: JobRecord, attempt: Attempt) -> AttemptStop:
        return stop_of(record, attempt, control_of(record, attempt, self.scheduler.cluster, 0.0))
