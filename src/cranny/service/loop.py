"""The single writer: takes what is asked and reported, lets the desk decide, stores the events, then acts.

Nothing is answered or done before its events are stored. If they cannot be, the desk goes back to what the log
says, and whoever asked is told.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from cranny.backends.protocol import Backend, Launch, Rank
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.service.desk import Desk, Mode, Order, PolicyError
from cranny.service.hands import Hands, Launched, Report
from cranny.service.history import History
from cranny.service.ledger import Attempt, Record
from cranny.service.limits import Limits
from cranny.service.store import Store, StoreError
from cranny.service.trial import Stand

ROUND_S = 0.05  # what is asked for in this time is stored together; others want to look meanwhile
RETRY_S = 1.0  # between two tries to store what the world reported

_log = logging.getLogger("cranny.service")


class Call(NamedTuple):
    """Something to do at the desk, and who waits for it."""

    work: Callable[[float], Any]
    answer: Future[Any]


def wall_clock() -> float:
    """Return the seconds since 1970."""
    return datetime.now(UTC).timestamp()


class Service:
    """A running service; its methods may be called from any thread."""

    def __init__(
        self,
        store: Store,
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
        self.history = History()
        built = backend.nodes() if backend is not None else cluster
        self.desk = Desk(built or _none(), mode, limits or Limits(), self._watch)
        self.limits = self.desk.limits
        self.rounds: list[Callable[[float, float, float], None]] = []  # told of each round: decide, store, all
        self.listeners: list[Callable[[], None]] = []  # told when events were stored
        self.ended: list[Callable[[], None]] = []  # told when the loop has ended, for whatever reason
        self._policy = policy
        self._clock = clock
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._hands = Hands(backend, self._reported) if backend is not None else None
        self._thread = threading.Thread(target=self._run, name="cranny-loop", daemon=True)
        self._tick_s = math.inf
        self._open = False
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
        if self._hands is not None:
            self._hands.start()
            self._adopt()
        self._open = True
        self._thread.start()

    def _open_log(self) -> None:
        """Bring everything to where the log left off, and note that the service goes on from there."""
        with self.lock:
            self.desk.restore(self.store)
            now_s = self.now_s()
            self.desk.open(now_s)
            if self._policy is not None or not self.desk.ledger.policy:
                self.desk.set_policy(self._policy or {"name": "titan"}, "cranny serve", now_s)
            self.store.append(self.desk.rows)
            self.desk.rows.clear()
            self._stored = self.desk.ledger.seq

    def close(self) -> None:
        """Stop working; jobs go on, and another service finds them."""
        self._open = False
        self._calls.put(None)
        self._thread.join()
        if self._hands is not None:
            self._hands.close()
        self.store.close()

    @property
    def ready(self) -> bool:
        """Whether it takes jobs."""
        return self._open and self._thread.is_alive() and (self._hands is None or self._hands.alive)

    @property
    def stored(self) -> int:
        """The number of the last event that is stored."""
        return self._stored

    def now_s(self) -> float:
        """Return the present time, which never goes back."""
        return max(self._clock(), self.desk.ledger.last_s)

    # -- asking ----------------------------------------------------------------------------------------

    def ask(self, work: Callable[[float], Any]) -> Future[Any]:
        """Have something done at the desk; the answer comes when its events are stored."""
        answer: Future[Any] = Future()
        if not self.ready:
            answer.set_exception(StoreError("the service is not ready"))
        else:
            self._calls.put(Call(work, answer))
        return answer

    def submit(self, user: str, value: Any, key: str | None = None) -> Future[tuple[Record, bool]]:
        """Take in a job; the answer is its record, and whether it is new."""
        return self.ask(lambda now_s: self.desk.submit(user, value, key, now_s))

    def stand(self) -> Stand:
        """Return how things stand, to try something on."""
        with self.lock:
            return Stand.of(self.desk.engine, self.desk.ledger)

    # -- the loop --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                wait_s = None if math.isinf(self._tick_s) else max(0.0, self._tick_s - self.now_s())
                try:
                    call = self._calls.get(timeout=wait_s)
                except Empty:
                    self._round(())
                    continue
                if call is None:
                    break
                self._round(self._coming(call))
        finally:
            self._let_go()

    def _coming(self, call: Call) -> Iterator[Call]:
        """Yield a call and those that wait behind it, as many as can be done in a short time."""
        until_s = time.perf_counter() + ROUND_S
        yield call
        while time.perf_counter() < until_s:
            try:
                after = self._calls.get_nowait()
            except Empty:
                return
            if after is None:
                self._calls.put(None)  # when this round is over
                return
            yield after

    def _let_go(self) -> None:
        """Tell all who wait that nothing more comes."""
        for told in self.ended:
            told()
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                return
            if call is not None:
                call.answer.set_exception(StoreError("the service ends"))

    def _round(self, coming: Iterable[Call]) -> None:
        begin_s = time.perf_counter()
        calls: list[Call] = []
        answers: list[tuple[Future[Any], Any, CrannyError | None]] = []
        with self.lock:
            now_s = self.now_s()
            try:
                for call in coming:
                    calls.append(call)
                    answers.append(self._do(call, now_s))
                if now_s >= self._tick_s:
                    self.desk.tick(now_s)
                decided_s = time.perf_counter()
                self._store()
            except (StoreError, PolicyError) as error:
                _log.error("%s", error)
                answers = [(call.answer, None, error) for call in calls]
                decided_s = time.perf_counter()
                self._back_to_the_log()
            self._tick_s = self.desk.engine.next_tick_s(now_s)
        stored_s = time.perf_counter()
        for answer, value, problem in answers:
            answer.set_exception(problem) if problem is not None else answer.set_result(value)
        self._carry_out()
        for told in self.rounds:
            told(decided_s - begin_s, stored_s - decided_s, time.perf_counter() - begin_s)
        for listener in self.listeners:
            listener()

    def _do(self, call: Call, now_s: float) -> tuple[Future[Any], Any, CrannyError | None]:
        """Do one thing at the desk; a refusal comes before any change, and concerns only the one who asked."""
        try:
            return call.answer, call.work(now_s), None
        except (StoreError, PolicyError):
            raise
        except CrannyError as error:
            return call.answer, None, error

    def _store(self) -> None:
        if self.desk.rows:
            self.store.append(self.desk.rows)
            self.desk.rows.clear()
            self._stored = self.desk.ledger.seq

    def _back_to_the_log(self) -> None:
        """Forget what could not be stored."""
        while True:
            try:
                self.desk.restore(self.store)
            except StoreError as error:
                _log.error("%s", error)
                time.sleep(RETRY_S)
            else:
                self._stored = self.desk.ledger.seq
                self._order_again()
                return

    def _order_again(self) -> None:
        """Order all that the log says is under way; the hands know what they have done already."""
        for record in self.desk.ledger.jobs.values():
            if record.leaving is not None or record.status == "stopping":
                self.desk.orders.append(Order("stop", record, record.leaving or record.attempts[-1]))
            if record.status == "starting":
                self.desk.orders.append(Order("launch", record, record.attempts[-1]))

    def _carry_out(self) -> None:
        """Do in the world what is now stored."""
        while self.desk.orders:
            order = self.desk.orders.popleft()
            if self._hands is None:
                continue
            if order.do == "stop":
                self._hands.stop(order.record.id, order.attempt.number)
            else:
                self._hands.launch(self.launch_of(order.record, order.attempt))

    def _reported(self, reports: Sequence[Report]) -> None:
        """Take in what the hands report; what cannot be stored is tried again, for it has happened."""
        for report in reports:
            if isinstance(report, Launched):
                self._insist(partial(self.desk.launched, report))
            else:
                self._insist(partial(self.desk.gone, report))

    def _insist(self, work: Callable[[float], Any]) -> None:
        answer: Future[Any] = Future()

        def again(done: Future[Any]) -> None:
            if isinstance(done.exception(), StoreError | PolicyError) and self._open:
                timer = threading.Timer(RETRY_S, self._insist, (work,))
                timer.daemon = True
                timer.start()

        answer.add_done_callback(again)
        self._calls.put(Call(work, answer))

    # -- launching -------------------------------------------------------------------------------------

    def log_folder(self, job_id: str, attempt: int) -> Path:
        """Return where the ranks of an attempt write."""
        return self.folder / "jobs" / job_id / f"attempt-{attempt}"

    def launch_of(self, record: Record, attempt: Attempt) -> Launch:
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
        for record in self.desk.ledger.jobs.values():
            if record.leaving is not None:
                leaving.append(self.launch_of(record, record.leaving))
            if record.status in {"starting", "running", "stopping"}:
                current.append(self.launch_of(record, record.attempts[-1]))
        hands = self._hands
        if hands is None:
            return
        hands.adopt(current, leaving)
        for record in self.desk.ledger.jobs.values():
            if record.status == "stopping":
                hands.stop(record.id, record.attempts[-1].number)
        self._carry_out()

    def _watch(self, desk: Desk) -> None:
        self.history.note(desk.ledger, desk.engine.state)


def _none() -> Cluster:
    raise CrannyError("there is no cluster")
