"""The service loop, the single writer: handles calls and reports, stores their events, then answers and acts.

Nothing is answered or executed before its events are stored. If storing fails, or anything else goes wrong, the
scheduler is restored from the event log and the callers get the error.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import chain
from pathlib import Path
from queue import Empty
from typing import Any, Literal

from cranny.backends.cluster_reading import ClusterSource
from cranny.backends.protocol import Backend, Ended, GivenGpus, Launch
from cranny.channel.control import Control
from cranny.channel.report import Record, Resumed
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.service.adoption import Adoption
from cranny.service.attempts import launch_of, stop_of
from cranny.service.calls import RETRY_S, ROUND_S, Call, CallQueue, CallResult, answer
from cranny.service.clock import Clock, wall_clock
from cranny.service.cluster_watch import ClusterWatch
from cranny.service.controls import control_of
from cranny.service.engines import Fork
from cranny.service.event_chain import EventRow
from cranny.service.executor import AttemptLaunched, AttemptStop, Executor, ExecutorReport
from cranny.service.fencing import warn_of_held
from cranny.service.given_gpus import log_given
from cranny.service.head_file import HeadFile
from cranny.service.job_record import Attempt, JobRecord, LastStep, ResumedAt
from cranny.service.learned_profile import LearnedProfile
from cranny.service.learning import Learner
from cranny.service.limits import Limits
from cranny.service.locations import Location
from cranny.service.paces import iteration_s
from cranny.service.reports import RankState, ReportReader, WatchedAttempt
from cranny.service.scheduler import FIRST_SETTING, Instruction, Mode, PolicyError, Scheduler
from cranny.service.snapshot_writer import SnapshotWriter
from cranny.service.store import Append, EventStore
from cranny.service.user_rights import Rights
from cranny.service.warmup import start_warmup
from cranny.service.writer_lock import LogIntegrityError, StoreError

CHECK_S = 2.0  # how often an idle service checks that it is still the writer of the log
MAX_TRIES = 30  # to restore the scheduler from the log
RECENT = 1_000  # events kept in memory for event streams

_log = logging.getLogger("cranny.service")


class InternalError(CrannyError):
    """An unexpected error; the server's log has the traceback."""


FAULTS = (StoreError, PolicyError, InternalError)  # after which a fact is stored later


class Service:
    """A running service; its methods may be called from any thread."""

    def __init__(
        self,
        store: EventStore,
        backend: Backend | None,
        folder: Path,
        *,
        cluster: Cluster | None = None,
        policy: dict[str, Any] | None = None,
        limits: Limits | None = None,
        rights: Rights | None = None,
        clock: Callable[[], float] = wall_clock,
        location: Location | None = None,
        source: ClusterSource | None = None,
    ) -> None:
        """Run jobs through a backend; without one, only recommend placements on a cluster.

        With a source the cluster is what that says, at the start and while the service runs.
        """
        self._first = None if source is None else source.read()
        built = backend.nodes() if backend is not None else cluster
        if self._first is not None:
            built = self._first.cluster
        if built is None:
            raise CrannyError("a service needs a backend, or a cluster to recommend for")
        mode: Mode = "recommend" if backend is None else "run"
        self.store = store
        self.folder = folder
        self.location = location or Location.here(folder)
        self.lock = threading.RLock()
        self.scheduler = Scheduler(built, mode, limits or Limits())
        self.scheduler.log_store = store
        self.limits, self.rights = self.scheduler.limits, rights or Rights()
        self.on_round: list[Callable[..., None]] = []  # get the seconds to decide, to store, and in all
        self.on_stored: list[Callable[[], None]] = []
        self.on_ended: list[Callable[[], None]] = []
        self.recent: deque[EventRow] = deque(maxlen=RECENT)  # the last stored events
        self.stored = 0  # the number of the last stored event
        self.failure = ""  # the error that ended the service, if one did
        self._policy = policy
        self._clock = Clock(clock)
        self._calls = CallQueue()
        self.reports = ReportReader(self.now_s, self._measured)
        self.learner = Learner(self._learned, self._continued, self.reports.complain)
        self._executor = None
        if backend is not None:
            self._executor = Executor(backend, self._reported, self._fail, reports=self.reports, now_s=self.now_s)
        self._thread = threading.Thread(target=self._run, name="cranny-service", daemon=True)
        self._head_file: HeadFile | None = None
        self._snapshots = SnapshotWriter(store, self.scheduler, self.call, folder / "archive")
        self.watch = None if source is None else ClusterWatch(source, self)
        self._tick_s = math.inf
        self._open = False  # accepts calls
        self._warm = False  # the policy has loaded and compiled its code

    def start(self) -> None:
        """Acquire the writer lock, restore the scheduler from the log, and start the threads."""
        try:
            self.store.acquire()
            with self.lock:
                self.scheduler.restore(self.store)
                last_s = self.scheduler.records.last_s
                self._tick_s = self.scheduler.engine.next_tick_s(last_s)  # may be in the past
                now_s = self._clock.begin_s(last_s, idle=not self.scheduler.records.open_jobs.total)
                self.scheduler.open(now_s, self.location)
                if self.watch is not None and self._first is not None:
                    self.watch.begin(self._first, now_s)
                switched = self._policy is not None or not self.scheduler.records.policy
                if switched:
                    self.scheduler.switch(self._policy or FIRST_SETTING, "cranny serve", now_s)
                if switched or self.scheduler.asked_at_start:
                    self._calls.put(Call(self.scheduler.tick, Future()))  # handled after the warm-up
                self._head_file = HeadFile.of(self.folder, self.scheduler.records.log_id)
                self._head_file.check(self.store)
                self._store(self.store.append)
        except CrannyError:
            self.store.close()
            raise
        if self._executor is not None:
            self._executor.start()
            self.reports.start()
            self._adopt(self._executor)
        self._open = True
        self._thread.start()
        if self.watch is not None:
            self.watch.start()

    def close(self) -> None:
        """End the service; jobs keep running, and the next service adopts them."""
        if self.watch is not None:
            self.watch.close()
        self._open = False
        self._calls.put(None)
        self._thread.join()
        if self._executor is not None:
            self._executor.close()
            self.reports.close()
        self._snapshots.close()
        self.store.close()

    @property
    def ready(self) -> bool:
        """Whether jobs are accepted and decided about at once."""
        return not self.why_not_ready

    @property
    def why_not_ready(self) -> str:
        """Why no jobs are accepted now; empty if they are."""
        if self.failure or not self._alive:
            return self.failure or "the service loop does not run"
        warming = "" if self._warm else "the policy is warming up"
        return self.store.problem or self.store.reserve.problem or warming

    @property
    def _alive(self) -> bool:
        return self._open and self._thread.is_alive() and (self._executor is None or self._executor.alive)

    def now_s(self) -> float:
        """Return the current time, which never decreases."""
        return self._clock.now_s(self.scheduler.records.last_s)

    def call(self, work: Callable[[float], Any]) -> Future[Any]:
        """Run work in the service loop; the future completes when its events are stored."""
        future: Future[Any] = Future()
        if not self._alive:
            future.set_exception(StoreError("the service is not ready"))
            return future
        self._calls.put(Call(work, future))
        if not self._open:  # the loop has ended meanwhile, and may have missed this call
            self._calls.refuse_all(StoreError("the service is shutting down"))
        return future

    def submit(self, user: str, value: Any, key: str | None = None, rights: Rights | None = None) -> Future[Any]:
        """Submit a job; the result is its record, and whether it is new."""
        if (full := self.store.reserve.problem) and self._alive:
            refused: Future[tuple[JobRecord, bool]] = Future()
            refused.set_exception(StoreError(full))
            return refused
        return self.call(lambda now_s: self.scheduler.submit(user, value, key, now_s, rights))

    def set_policy(self, setting: dict[str, Any], by: str) -> Future[Any]:
        """Switch to another policy; see `prepare`."""
        return self.call(lambda now_s: self.scheduler.set_policy(setting, by, now_s))

    def prepare(self, setting: dict[str, Any], *, resizable: bool = False) -> "Future[None]":
        """Warm up a policy before it is set, or before the first job that can be resized."""
        needed = resizable or self.scheduler.records.open_jobs.resizable > 0
        return start_warmup(setting, self.scheduler.cluster, resizable=needed)

    def fork(self) -> Fork:
        """Return a copy of the current state on which decisions can be tried."""
        with self.lock:
            return Fork.of(self.scheduler.engine, self.scheduler.records)

    def _run(self) -> None:
        try:
            ready = self.prepare(self.scheduler.records.policy)
            while self._open and not wait([ready], ROUND_S).done:
                pass
            self._warm = True
            while True:
                wait_s = min(CHECK_S, max(0.0, self._tick_s - self.now_s()))
                try:
                    call = self._calls.get(wait_s)
                except Empty:
                    self._round(()) if self.now_s() >= self._tick_s else self.store.check_writable()
                    continue
                if call is None:
                    break
                self._round(self._calls.batch(call))
        except Exception as error:  # noqa: BLE001 - on any error, pending calls must be answered
            self._fail(error)
        finally:
            self._open = False
            self._calls.close(StoreError("the service is shutting down"))
            self._notify(self.on_ended)

    def _fail(self, error: Exception) -> None:
        """End the service because of an error."""
        known = isinstance(error, CrannyError)
        _log.error("the service ends: %s", error, exc_info=None if known else error)
        self.failure = str(error) if known else f"{type(error).__name__}: {error}"
        self._open = False
        self._notify(self.on_ended)

    @staticmethod
    def _notify(callbacks: Iterable[Callable[[], None]]) -> None:
        for callback in callbacks:
            callback()

    def _round(self, batch: Iterable[Call]) -> None:
        """Handle calls, store their events, answer and act; the lock is taken once the database is writable."""
        try:
            with self.store.writing() as append, self.lock:
                begin_s = time.perf_counter()
                now_s = self.now_s()
                due = [Call(self.scheduler.tick, Future())] if now_s >= self._tick_s else []
                results, decided_s = self._handle(chain(batch, due), now_s, append)
                self._tick_s = self.scheduler.engine.next_tick_s(now_s)
                stored_s = time.perf_counter()
        except StoreError as error:  # before any call was handled
            self._tick_s = max(self._tick_s, self.now_s() + RETRY_S)
            answer([(call, None, error) for call in batch])
            if isinstance(error, LogIntegrityError):
                raise
            return
        answer(results)
        self._execute()
        for observe in self.on_round:
            observe(decided_s - begin_s, stored_s - decided_s, time.perf_counter() - begin_s)
        self._notify(self.on_stored)

    def _handle(self, batch: Iterable[Call], now_s: float, append: Append) -> tuple[list[CallResult], float]:
        """Run calls and store their events, all or none; return the results, and when the last was decided.

        If one of several calls fails, each is run by itself, so that only the faulty one is refused.
        """
        calls: list[Call] = []
        try:
            results = []
            for call in batch:
                calls.append(call)
                results.append(self._run_call(call, now_s))
            decided_s = time.perf_counter()
            self._store(append)
        except Exception as error:  # noqa: BLE001 - after any error the scheduler must be restored
            if isinstance(error, StoreError | PolicyError):
                _log.error("%s", error)
                reported: CrannyError = error
            else:
                _log.error("internal error; the service continues from the stored events", exc_info=error)
                reported = InternalError("internal error; see the server log")
            try:
                self._restore()
            except Exception as worse:
                answer([(call, None, reported) for call in calls])
                if isinstance(worse, LogIntegrityError):  # this one must not go on from the log
                    raise
                raise RuntimeError(f"the state cannot be restored from the event log: {worse}") from worse
            if len(calls) == 1 or isinstance(error, StoreError):
                return [(call, None, reported) for call in calls], time.perf_counter()
            results = [result for call in calls for result in self._handle([call], now_s, append)[0]]
            decided_s = time.perf_counter()
        return results, decided_s

    def _run_call(self, call: Call, now_s: float) -> CallResult:
        """Run one call; a refusal must come before any change, and concerns its caller only."""
        logged = len(self.scheduler.rows)
        try:
            return call, call.work(now_s), None
        except (StoreError, PolicyError):
            raise
        except CrannyError as error:
            if len(self.scheduler.rows) != logged:
                raise InternalError(f"refused after a change: {error}") from error
            return call, None, error

    def _store(self, append: Append) -> None:
        if self.scheduler.rows:
            append(self.scheduler.rows)
            if self._head_file is not None:
                self._head_file.write(self.store.head)
            self.recent.extend(self.scheduler.rows)
            self.scheduler.rows.clear()
            self.stored = self.scheduler.records.seq
            self._snapshots.consider(self.store.head)

    def _restore(self) -> None:
        """Restore the scheduler from the event log, and repeat its instructions; raise after several failures."""
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                self.store.acquire()  # from here on nothing is appended, not even late by a lost session
                self.scheduler.restore(self.store)
            except StoreError as error:
                if not tries_left or isinstance(error, LogIntegrityError):
                    raise
                _log.error("%s", error)
                time.sleep(RETRY_S)
            else:
                break
        self.stored = self.scheduler.records.seq
        # For all attempts in progress; the executor ignores those instructions that it has executed.
        for record in self.scheduler.records.jobs.values():
            self.scheduler.instructions.extend(Instruction("leave", record, attempt) for attempt in record.leaving)
            if record.status in {"starting", "stopping"}:
                do: Literal["launch", "stop"] = "launch" if record.status == "starting" else "stop"
                self.scheduler.instructions.append(Instruction(do, record, record.attempts[-1]))

    def _execute(self) -> None:
        """Pass the stored instructions to the executor."""
        while self.scheduler.instructions:
            do, record, attempt = self.scheduler.instructions.popleft()
            if self._executor is None:
                continue
            if do == "stop":
                self._executor.stop(record.id, attempt.number)
            elif do == "give up":
                self._executor.give_up(record.id, attempt.number)
            elif do == "leave":
                self._executor.leave(self._stopping(record, attempt))
            else:
                self._executor.set_control(record.id, attempt.number, self.control_of(record, attempt))
            if do == "launch":
                self._follow(record)
                self._executor.launch(self.launch_of(record, attempt))

    def _measured(self, watched: WatchedAttempt, rank: int, records: Sequence[Record], state: RankState) -> None:
        """Learn from reports, and let the periods of a shifted job follow its iterations; in another thread."""
        self.learner.take(watched, rank, records, state)
        if watched.job_id not in self.scheduler.records.shifted:
            return
        found_s = iteration_s(self.reports.points(watched.job_id), watched.attempt, self.scheduler.paced_s)
        if found_s is None:
            return
        with self.lock:
            wanted = self.scheduler.measures(watched.job_id, watched.attempt, found_s, self.now_s())
        if wanted:
            self._calls.put(
                Call(partial(self.scheduler.measured, watched.job_id, watched.attempt, found_s), Future())
            )

    def _reported(self, reports: Sequence[ExecutorReport]) -> None:
        """Handle reports of the executor; they are facts, so storing them is retried until it succeeds."""
        for report in reports:
            if isinstance(report, AttemptLaunched):
                self._calls.put_until_stored(partial(self.scheduler.attempt_launched, report), FAULTS)
            elif isinstance(report, GivenGpus):
                self._calls.put_until_stored(partial(log_given, self.scheduler, report), FAULTS)
            else:
                last = self.learner.last(report.job_id, report.attempt)
                self._calls.put_until_stored(partial(self._ended, report, last), FAULTS)

    def _ended(self, report: Ended, last: LastStep | None, now_s: float) -> None:
        self.scheduler.attempt_ended(report, now_s, last)
        if self.scheduler.find(report.job_id).over:
            self.learner.forget(report.job_id)

    def _learned(self, job_id: str, profile: LearnedProfile) -> None:
        """Adopt what a job has shown of itself; if that cannot be stored now, it comes again."""
        self.call(lambda now_s: self.scheduler.profiled(job_id, profile, now_s))

    def _continued(self, job_id: str, attempt: int, resumed: Resumed, lost: int | None) -> None:
        """Log from where an attempt went on."""
        at = ResumedAt(resumed.step, resumed.took_s, lost)
        self.call(lambda now_s: self.scheduler.continued(job_id, attempt, at, now_s))

    def _follow(self, record: JobRecord) -> None:
        """Learn from a job that starts, or that an earlier service has started."""
        self.learner.follow(record, self.scheduler.records.profiles.get(record.key))

    def log_folder(self, job_id: str, attempt: int) -> Path:
        """Return the log folder of an attempt, of the service that launched it if that is on this host."""
        log_id, known = self.scheduler.records.log_id, self.scheduler.records.jobs.get(job_id)
        found = [each for each in known.attempts if each.number == attempt] if known is not None else []
        where = self.location.reaches(found[0].location, log_id, job_id, attempt) if found else None
        return where or self.location.attempt_folder(log_id, job_id, attempt)

    def launch_of(self, record: JobRecord, attempt: Attempt) -> Launch:
        """Return the launch of an attempt for the backend."""
        return launch_of(record, attempt, self.log_folder(record.id, attempt.number))

    def control_of(self, record: JobRecord, attempt: Attempt) -> Control:
        """Return the settings of an attempt."""
        epoch_s = self.scheduler.records.epoch_s or 0.0
        return control_of(record, attempt, self.scheduler.cluster, epoch_s)

    def _stopping(self, record: JobRecord, attempt: Attempt) -> AttemptStop:
        """Return how an attempt leaves its GPUs."""
        return stop_of(record, attempt, self.control_of(record, attempt))

    def _adopt(self, executor: Executor) -> None:
        """Take over the processes of an earlier service, and stop those that it was stopping.

        Those that were launched elsewhere, and cannot be seen from here, are held.
        """
        records = self.scheduler.records
        found = Adoption.of(records, self.location, self.launch_of, self._stopping)
        for record in found.followed:
            self._follow(record)
        found.hand_over(executor, records, self.control_of)
        self._execute()
        warn_of_held(self.location, records)
