"""The single writer: takes what is asked and reported, lets the desk decide, stores the events, then acts.

Nothing is answered or done before its events are stored. If they cannot be, or anything else goes wrong, the desk
goes back to what the log says, and whoever asked is told.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from cranny.backends.protocol import Backend, Launch, Rank
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.service.clock import Clock, wall_clock
from cranny.service.executor import AttemptLaunched, Executor, ExecutorReport
from cranny.service.fork import Fork
from cranny.service.job_records import Attempt, JobRecord
from cranny.service.limits import Limits
from cranny.service.scheduler import Instruction, Mode, PolicyError, Scheduler
from cranny.service.store import Append, EventRow, EventStore, OtherWriterError, StoreError
from cranny.service.utilization import UtilizationHistory
from cranny.service.warmup import start_warmup

ROUND_S = 0.05  # what is asked for in this time is stored together; others want to look meanwhile
LOOK_S = 2.0  # when there is nothing to do, the log is looked at so often: it may have been lost to another
RETRY_S = 1.0  # between two tries to store what the world reported; from then on twice as long each time
MAX_RETRY_S = 60.0
MAX_TRIES = 30  # to go back to what the log says
RECENT = 1_000  # events that are kept at hand for those who follow changes

_log = logging.getLogger("cranny.service")


class Call(NamedTuple):
    """Something to do at the desk, and who waits for it."""

    work: Callable[[float], Any]
    answer: Future[Any]


Answer = tuple[Call, Any, CrannyError | None]


class InternalError(CrannyError):
    """Something that nobody foresaw; the log has it all."""


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
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        """Run jobs through a backend, or without one only recommend what to do on a cluster."""
        if backend is None and cluster is None:
            raise CrannyError("a service needs a backend, or a cluster to recommend for")
        mode: Mode = "recommend" if backend is None else "run"
        self.store = store
        self.folder = folder
        self.lock = threading.RLock()
        self.history = UtilizationHistory()
        built = backend.nodes() if backend is not None else cluster
        self.scheduler = Scheduler(built or _none(), mode, limits or Limits(), self._watch)
        self.limits = self.scheduler.limits
        self.rounds: list[Callable[[float, float, float], None]] = []  # told of each round: decide, store, all
        self.listeners: list[Callable[[], None]] = []  # told when events were stored
        self.ended: list[Callable[[], None]] = []  # told when it works no more, for whatever reason
        self.recent: deque[EventRow] = deque(maxlen=RECENT)  # the last events that were stored
        self.trouble = ""  # what ended it, if nobody wanted that
        self._policy = policy
        self._clock = Clock(clock)
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._executor = Executor(backend, self._reported, self._fail) if backend is not None else None
        self._thread = threading.Thread(target=self._run, name="cranny-loop", daemon=True)
        self._tick_s = math.inf
        self._open = False  # takes calls
        self._warm = False  # the policy can decide without having to load and compile first
        self._stored = 0

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the log over, bring everything to where it left off, and begin to work."""
        try:
            self.store.take()
            self._open_log()
        except CrannyError:
            self.store.close()
            raise
        if self._executor is not None:
            self._executor.start()
            self._adopt()
        self._open = True
        self._thread.start()

    def _open_log(self) -> None:
        """Bring everything to where the log left off, and note that the service goes on from there."""
        with self.lock:
            self.scheduler.restore(self.store)
            self._tick_s = self.scheduler.engine.next_tick_s(
                self.scheduler.records.last_s
            )  # may have passed meanwhile
            now_s = self.now_s()
            self.scheduler.open(now_s)
            if self._policy is not None or not self.scheduler.records.policy:
                self.scheduler.switch(self._policy or {"name": "titan"}, "cranny serve", now_s)
                self._calls.put(Call(self.scheduler.tick, Future()))  # once it is warm
            self._store(self.store.append)

    def close(self) -> None:
        """Stop working; jobs go on, and another service finds them."""
        self._open = False
        self._calls.put(None)
        self._thread.join()
        if self._executor is not None:
            self._executor.close()
        self.store.close()

    @property
    def ready(self) -> bool:
        """Whether it takes jobs and decides at once."""
        return not self.why_not_ready

    @property
    def why_not_ready(self) -> str:
        """Why it takes no jobs now; empty if it does."""
        if self.trouble or not self._works:
            return self.trouble or "the loop does not run"
        return self.store.problem or ("" if self._warm else "the policy is being prepared")

    @property
    def _works(self) -> bool:
        return self._open and self._thread.is_alive() and (self._executor is None or self._executor.alive)

    @property
    def stored(self) -> int:
        """The number of the last event that is stored."""
        return self._stored

    def now_s(self) -> float:
        """Return the present time, which never goes back."""
        return self._clock.now_s(self.scheduler.records.last_s)

    # -- asking ----------------------------------------------------------------------------------------

    def call(self, work: Callable[[float], Any]) -> Future[Any]:
        """Have something done at the desk; the answer comes when its events are stored."""
        answer: Future[Any] = Future()
        if not self._works:
            answer.set_exception(StoreError("the service is not ready"))
            return answer
        self._calls.put(Call(work, answer))
        if not self._open:  # it has ended meanwhile, and may not have seen this
            self._refuse_all()
        return answer

    def submit(self, user: str, value: Any, key: str | None = None) -> Future[tuple[JobRecord, bool]]:
        """Take in a job; the answer is its record, and whether it is new."""
        return self.call(lambda now_s: self.scheduler.submit(user, value, key, now_s))

    def set_policy(self, setting: dict[str, Any], by: str) -> Future[Any]:
        """Let another policy decide from now on; see `prepare`."""
        return self.call(lambda now_s: self.scheduler.set_policy(setting, by, now_s))

    def prepare(self, setting: dict[str, Any]) -> "Future[None]":
        """Get a policy ready to decide, so that nobody waits for that when it is set."""
        return start_warmup(setting, self.scheduler.cluster)

    def fork(self) -> Fork:
        """Return how things stand, to try something on."""
        with self.lock:
            return Fork.of(self.scheduler.engine, self.scheduler.records)

    # -- the loop --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._get_warm()
            while True:
                wait_s = min(LOOK_S, max(0.0, self._tick_s - self.now_s()))
                try:
                    call = self._calls.get(timeout=wait_s)
                except Empty:
                    self._round(()) if self.now_s() >= self._tick_s else self.store.look()
                    continue
                if call is None:
                    break
                self._round(self._coming(call))
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for an answer for ever
            self._fail(error)
        finally:
            self._open = False
            self._refuse_all()
            self._tell_ended()

    def _get_warm(self) -> None:
        """Wait until the policy is ready to decide, unless the service ends before."""
        ready = self.prepare(self.scheduler.records.policy)
        while self._open and not wait([ready], ROUND_S).done:
            pass
        self._warm = True

    def _coming(self, call: Call) -> Iterator[Call]:
        """Yield a call and those that wait behind it, as many as can be done in a short time."""
        until_s = time.perf_counter() + ROUND_S
        following: Call | None = call
        while following is not None:
            if following.answer.set_running_or_notify_cancel():  # somebody still waits for it
                yield following
            if time.perf_counter() >= until_s:
                return
            try:
                following = self._calls.get_nowait()
            except Empty:
                return
        self._calls.put(None)  # when this round is over

    def _fail(self, error: Exception) -> None:
        """End the service: it cannot go on."""
        known = isinstance(error, CrannyError)
        _log.error("cranny cannot go on: %s", error, exc_info=None if known else error)
        self.trouble = str(error) if known else f"{type(error).__name__}: {error}"
        self._open = False
        self._tell_ended()

    def _tell_ended(self) -> None:
        for told in self.ended:
            told()

    def _refuse_all(self) -> None:
        """Tell all who wait that nothing more comes."""
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                return
            if call is not None and call.answer.set_running_or_notify_cancel():
                call.answer.set_exception(StoreError("the service ends"))

    def _round(self, coming: Iterable[Call]) -> None:
        """Do what was asked, store what follows, answer and act; while others write, nobody else has to wait."""
        try:
            with self.store.writing() as append, self.lock:
                begin_s = time.perf_counter()
                now_s = self.now_s()
                answers, decided_s = self._try(chain(coming, self._due(now_s)), now_s, append)
                self._tick_s = self.scheduler.engine.next_tick_s(now_s)
                stored_s = time.perf_counter()
        except StoreError as error:  # before anything was done
            self._tick_s = max(self._tick_s, self.now_s() + RETRY_S)
            _answer([(call, None, error) for call in coming])
            if isinstance(error, OtherWriterError):
                raise
            return
        _answer(answers)
        self._carry_out()
        for told in self.rounds:
            told(decided_s - begin_s, stored_s - decided_s, time.perf_counter() - begin_s)
        for listener in self.listeners:
            listener()

    def _due(self, now_s: float) -> Iterator[Call]:
        """Yield that the policy is to be asked, if it is time."""
        if now_s >= self._tick_s:
            yield Call(self.scheduler.tick, Future())

    def _try(self, coming: Iterable[Call], now_s: float, append: Append) -> tuple[list[Answer], float]:
        """Do some things at the desk and store what follows, or nothing; return answers, and when all was decided.

        Where one of several goes wrong, each is done by itself, so that only the one at fault is refused.
        """
        calls: list[Call] = []
        try:
            answers = []
            for call in coming:
                calls.append(call)
                answers.append(self._do(call, now_s))
            decided_s = time.perf_counter()
            self._store(append)
        except Exception as error:  # noqa: BLE001 - of whatever kind: the desk cannot stay as it is now
            told = _told(error)
            try:
                self._back_to_the_log()
            except Exception as worse:
                _answer([(call, None, told) for call in calls])
                if isinstance(worse, OtherWriterError):  # another goes on from there
                    raise
                raise RuntimeError(f"the state cannot be taken from the log: {worse}") from worse
            if len(calls) == 1 or isinstance(error, StoreError):
                return [(call, None, told) for call in calls], time.perf_counter()
            answers = [answer for call in calls for answer in self._try([call], now_s, append)[0]]
            decided_s = time.perf_counter()
        return answers, decided_s

    def _do(self, call: Call, now_s: float) -> Answer:
        """Do one thing at the desk; a refusal comes before any change, and concerns only the one who asked."""
        noted = len(self.scheduler.rows)
        try:
            return call, call.work(now_s), None
        except (StoreError, PolicyError):
            raise
        except CrannyError as error:
            if len(self.scheduler.rows) != noted:
                raise InternalError(f"refused too late: {error}") from error
            return call, None, error

    def _store(self, append: Append) -> None:
        if self.scheduler.rows:
            append(self.scheduler.rows)
            self.recent.extend(self.scheduler.rows)
            self.scheduler.rows.clear()
            self._stored = self.scheduler.records.seq

    def _back_to_the_log(self) -> None:
        """Forget what could not be stored, or done; raise if even that fails again and again."""
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                self.store.take()  # from here on nothing is added to it, not even late by a session that was lost
                self.history = UtilizationHistory()
                self.scheduler.restore(self.store)
            except StoreError as error:
                if not tries_left or isinstance(error, OtherWriterError):
                    raise
                _log.error("%s", error)
                time.sleep(RETRY_S)
            else:
                break
        self._stored = self.scheduler.records.seq
        self._order_again()

    def _order_again(self) -> None:
        """Order all that the log says is under way; the hands know what they have done already."""
        for record in self.scheduler.records.jobs.values():
            self.scheduler.instructions.extend(Instruction("stop", record, attempt) for attempt in record.leaving)
            if record.status == "stopping":
                self.scheduler.instructions.append(Instruction("stop", record, record.attempts[-1]))
            if record.status == "starting":
                self.scheduler.instructions.append(Instruction("launch", record, record.attempts[-1]))

    def _carry_out(self) -> None:
        """Do in the world what is now stored."""
        while self.scheduler.instructions:
            order = self.scheduler.instructions.popleft()
            if self._executor is None:
                continue
            if order.do == "stop":
                self._executor.stop(order.record.id, order.attempt.number)
            else:
                self._executor.launch(self.launch_of(order.record, order.attempt))

    def _reported(self, reports: Sequence[ExecutorReport]) -> None:
        """Take in what the hands report; what cannot be stored is tried again, for it has happened."""
        for report in reports:
            take = self.scheduler.launched if isinstance(report, AttemptLaunched) else self.scheduler.gone
            self._insist(partial(take, report))  # type: ignore[arg-type]

    def _insist(self, work: Callable[[float], Any], after_s: float = RETRY_S) -> None:
        answer: Future[Any] = Future()

        def again(done: Future[Any]) -> None:
            if isinstance(done.exception(), StoreError | PolicyError | InternalError) and self._open:
                timer = threading.Timer(after_s, self._insist, (work, min(2 * after_s, MAX_RETRY_S)))
                timer.daemon = True
                timer.start()

        answer.add_done_callback(again)
        self._calls.put(Call(work, answer))

    # -- launching -------------------------------------------------------------------------------------

    def log_folder(self, job_id: str, attempt: int) -> Path:
        """Return where the ranks of an attempt write: apart for each log, since all have a job-1."""
        return self.folder / "jobs" / self.scheduler.records.log_id / job_id / f"attempt-{attempt}"

    def launch_of(self, record: JobRecord, attempt: Attempt) -> Launch:
        """Return all that the backend must know to run an attempt."""
        spec, machines = record.spec, attempt.placement.machines
        ranks = [
            Rank(rank, machine, gpu)
            for rank, (machine, gpu) in enumerate(zip(machines, attempt.gpus, strict=True))
        ]
        return Launch(
            job_id=record.id,
            attempt=attempt.number,
            argv=spec.argv,
            ranks=tuple(ranks),
            env=spec.variables,
            cwd=Path(spec.cwd) if spec.cwd is not None else None,
            log_dir=self.log_folder(record.id, attempt.number),
            time_limit_s=spec.time_limit_s,
            torchrun=spec.by_torchrun,
            server=attempt.placement.server,
        )

    def _adopt(self) -> None:
        """Take over the processes that an earlier service left, and end those that it was ending."""
        current: list[Launch] = []
        leaving: list[Launch] = []
        for record in self.scheduler.records.jobs.values():
            leaving += [self.launch_of(record, attempt) for attempt in record.leaving]
            if record.status in {"starting", "running", "stopping"}:
                current.append(self.launch_of(record, record.attempts[-1]))
        executor = self._executor
        if executor is None:
            return
        executor.adopt(current, leaving)
        for record in self.scheduler.records.jobs.values():
            if record.status == "stopping":
                executor.stop(record.id, record.attempts[-1].number)
        self._carry_out()

    def _watch(self, scheduler: Scheduler) -> None:
        self.history.note(scheduler.records, scheduler.engine.state)


def _answer(answers: Iterable[Answer]) -> None:
    """Tell those who wait."""
    for call, value, problem in answers:
        call.answer.set_exception(problem) if problem is not None else call.answer.set_result(value)


def _told(error: Exception) -> CrannyError:
    """Note what went wrong, and return what those who asked are told."""
    if isinstance(error, StoreError | PolicyError):
        _log.error("%s", error)
        return error
    _log.error("something went wrong; the service goes on from what is stored", exc_info=error)
    return InternalError("something went wrong in cranny; its log says more")


def _none() -> Cluster:
    raise CrannyError("there is no cluster")
