"""The executor: one thread that drives the backend, launching and stopping attempts, and reports what happened.

A launch is deferred until the processes that held its GPUs before have exited.
"""

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from cranny.backends.protocol import NOT_STARTED, Backend, BackendError, Ended, Launch
from cranny.model.errors import CrannyError

POLL_S = 0.05
# A shortage of resources, not the job's fault.
TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})

_log = logging.getLogger("cranny.service")


class AttemptLaunched(NamedTuple):
    """The processes of an attempt were started."""

    job_id: str
    attempt: int


ExecutorReport = AttemptLaunched | Ended  # its processes have exited, or were never started
Task = Callable[[], list[ExecutorReport]]


class Executor:
    """Executes launches and stops in order, and polls the backend.

    While the system is short of a resource, such as open files, a task stays pending and is retried.
    """

    def __init__(
        self,
        backend: Backend,
        report: Callable[[Sequence[ExecutorReport]], None],
        died: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._backend = backend
        self._report = report
        self._died = died  # called if an error ends the thread
        self._inbox: SimpleQueue[Task | None] = SimpleQueue()
        self._pending: deque[Task] = deque()  # taken from the inbox, not yet executed
        self._live: dict[str, Launch] = {}  # attempts that may have processes
        self._latest: dict[str, int] = {}  # the latest attempt of each job
        self._deferred: list[Launch] = []  # launches that wait for their GPUs to be vacated
        self._short = False  # of a resource
        self._thread = threading.Thread(target=self._run, name="cranny-executor", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def launch(self, what: Launch) -> None:
        """Start an attempt as soon as its GPUs are vacated."""
        self._inbox.put(lambda: self._defer(what))

    def stop(self, job_id: str, attempt: int) -> None:
        """Stop an attempt."""
        self._inbox.put(lambda: self._stop(job_id, attempt))

    def adopt(self, launches: Sequence[Launch], leaving: Sequence[Launch]) -> None:
        """Take over the attempts of an earlier service, and stop those that it was stopping."""
        self._inbox.put(lambda: self._adopt_all(launches, leaving))

    def close(self) -> None:
        """End the thread; jobs keep running."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        working = True
        try:
            while working:
                working = self._receive()
                reports = [*self._execute(), *self._poll()]
                if working:
                    reports += self._launch_deferred()
                if reports:
                    self._report(reports)
            self._backend.close()
        except Exception as error:  # noqa: BLE001 - any error must end the service
            self._died(error)

    def _receive(self) -> bool:
        """Take the tasks that have arrived, waiting if there is nothing else to do; return whether to continue."""
        busy = self._live or self._deferred or self._pending
        try:
            task = self._inbox.get(timeout=POLL_S if busy else None)
            while task is not None:
                self._pending.append(task)
                task = self._inbox.get_nowait()
        except Empty:
            return True
        return False

    def _execute(self) -> list[ExecutorReport]:
        """Execute tasks in order; one that fails for lack of a resource is retried, before those behind it."""
        reports: list[ExecutorReport] = []
        try:
            while self._pending:
                reports += self._pending[0]()
                self._pending.popleft()
        except OSError as error:
            self._log_shortage(error)
        return reports

    def _poll(self) -> list[ExecutorReport]:
        if not self._live:
            return []
        try:
            ended = self._backend.poll()
        except OSError as error:
            self._log_shortage(error)
            return []
        self._log_recovery()
        for each in ended:
            self._live.pop(each.job_id, None)
        return list(ended)

    def _log_shortage(self, error: OSError) -> None:
        """Log that the system is short of a resource, once until it recovers."""
        if not self._short:
            self._short = True
            _log.error("jobs cannot be started, watched or stopped: %s; retrying", error)

    def _log_recovery(self) -> None:
        if self._short and not self._pending:
            self._short = False
            _log.warning("jobs can be started, watched and stopped again")

    def _launch_deferred(self) -> list[ExecutorReport]:
        reports: list[ExecutorReport] = []
        waiting, self._deferred = self._deferred, []
        held = {rank[1:] for launch in self._live.values() for rank in launch.ranks} if waiting else set()
        for what in waiting:
            slots = {rank[1:] for rank in what.ranks}
            if what.job_id in self._live or held & slots:
                self._deferred.append(what)
                held |= slots  # later launches must not overtake it on its own GPUs
                continue
            try:
                self._backend.launch(what)
            except (BackendError, OSError) as error:
                if isinstance(why := error.__cause__ or error, OSError) and why.errno in TRANSIENT:
                    self._log_shortage(why)
                    self._deferred.append(what)
                    held |= slots
                    continue
                # The report names the job already.
                text = str(error).removeprefix(f"job {what.job_id!r}").removeprefix(":").strip()
                reports.append(Ended(what.job_id, what.attempt, None, "failed", text))
                continue
            self._log_recovery()
            self._live[what.job_id] = what
            held |= slots
            reports.append(AttemptLaunched(what.job_id, what.attempt))
        return reports

    def _defer(self, what: Launch) -> list[ExecutorReport]:
        if self._latest.get(what.job_id, 0) < what.attempt:  # a launch may be requested twice
            self._latest[what.job_id] = what.attempt
            self._deferred.append(what)
        return []

    def _stop(self, job_id: str, attempt: int) -> list[ExecutorReport]:
        for what in self._deferred:
            if (what.job_id, what.attempt) == (job_id, attempt):
                self._deferred.remove(what)
                return [Ended(job_id, attempt, None, "cancelled")]
        if job_id in self._live and self._live[job_id].attempt == attempt:
            self._backend.stop(job_id)
        return []

    def _adopt_all(self, launches: Sequence[Launch], leaving: Sequence[Launch]) -> list[ExecutorReport]:
        self._latest |= {what.job_id: what.attempt for what in launches}
        reports: list[ExecutorReport] = [each for each in self._adopt(leaving) if isinstance(each, Ended)]
        for what in leaving:
            if what.job_id in self._live:
                self._backend.stop(what.job_id)
        # A job whose previous attempt is still stopping cannot have launched the next one.
        ending = [what for what in launches if what.job_id in self._live]
        reports += self._adopt([what for what in launches if what.job_id not in self._live])
        self._deferred += ending
        return reports

    def _adopt(self, launches: Sequence[Launch]) -> list[ExecutorReport]:
        try:
            ended = self._backend.adopt(launches)
        except CrannyError as error:
            return [Ended(each.job_id, each.attempt, None, "lost", str(error)) for each in launches]
        over = {(each.job_id, each.attempt) for each in ended}
        running = [each for each in launches if (each.job_id, each.attempt) not in over]
        self._live |= {each.job_id: each for each in running}
        # Every rank creates its log when it starts.
        unborn = {(each.job_id, each.attempt) for each in launches if not any(each.log_dir.glob("*.log"))}
        reports: list[ExecutorReport] = []
        for each in ended:
            withdrawn = each.reason == "lost" and each[:2] in unborn
            reports.append(each._replace(reason=NOT_STARTED) if withdrawn else each)
        return reports + [AttemptLaunched(each.job_id, each.attempt) for each in running]
