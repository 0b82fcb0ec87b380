"""The hands of the service: a thread that alone talks to the backend, and reports what happened.

A launch waits until the processes that held its GPUs before are gone, whatever the engine has already decided.
"""

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from cranny.backends.protocol import Backend, BackendError, Launch
from cranny.model.errors import CrannyError

POLL_S = 0.05
NOT_STARTED = "never began"  # the outcome of an attempt that the end of the service called off
SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})  # passes, and is not the job's fault

_log = logging.getLogger("cranny.service")


class AttemptLaunched(NamedTuple):
    """The processes of an attempt were started."""

    job_id: str
    attempt: int


class AttemptEnded(NamedTuple):
    """The processes of an attempt are no more, or never were."""

    job_id: str
    attempt: int
    outcome: str  # as the backend says, or NEVER
    exit_code: int | None = None
    detail: str = ""


ExecutorReport = AttemptLaunched | AttemptEnded


class Executor:
    """Carries out launches and stops in order, and polls.

    What the system has no means for at the moment, such as files that may be opened, is tried again until it has.
    """

    def __init__(
        self,
        backend: Backend,
        report: Callable[[Sequence[ExecutorReport]], None],
        died: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._backend = backend
        self._report = report
        self._died = died  # is told what ended the thread if nobody asked for that
        self._orders: SimpleQueue[Callable[[], list[ExecutorReport]] | None] = SimpleQueue()
        self._todo: deque[Callable[[], list[ExecutorReport]]] = (
            deque()
        )  # orders that were taken and not carried out yet
        self._live: dict[str, Launch] = {}  # what may have processes
        self._last: dict[str, int] = {}  # the latest attempt of each job
        self._later: list[Launch] = []  # waits for GPUs to be vacated
        self._short = False  # of means
        self._thread = threading.Thread(target=self._run, name="cranny-hands", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it can carry out anything."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def launch(self, what: Launch) -> None:
        """Start an attempt as soon as its GPUs are vacated."""
        self._orders.put(lambda: self._put_off(what))

    def stop(self, job_id: str, attempt: int) -> None:
        """End an attempt."""
        self._orders.put(lambda: self._stop(job_id, attempt))

    def adopt(self, launches: Sequence[Launch], leaving: Sequence[Launch]) -> None:
        """Take over what an earlier service had started, and end what it was ending."""
        self._orders.put(lambda: self._adopt_all(launches, leaving))

    def close(self) -> None:
        """Stop working; jobs go on."""
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        working = True
        try:
            while working:
                working = self._take_orders()
                reports = [*self._carry_out(), *self._poll()]
                if working:
                    reports += self._start_those_that_can()
                if reports:
                    self._report(reports)
            self._backend.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody must end the service
            self._died(error)

    def _take_orders(self) -> bool:
        """Take the orders that have come, or wait for one if there is nothing else to do; say whether to go on."""
        busy = self._live or self._later or self._todo
        try:
            order = self._orders.get(timeout=POLL_S if busy else None)
            while order is not None:
                self._todo.append(order)
                order = self._orders.get_nowait()
        except Empty:
            return True
        return False

    def _carry_out(self) -> list[ExecutorReport]:
        """Carry out orders as they came; one that cannot be now is tried again, and so are those behind it."""
        reports: list[ExecutorReport] = []
        try:
            while self._todo:
                reports += self._todo[0]()
                self._todo.popleft()
        except OSError as error:
            self._complain(error)
        return reports

    def _poll(self) -> list[ExecutorReport]:
        if not self._live:
            return []
        try:
            ended = self._backend.poll()
        except OSError as error:
            self._complain(error)
            return []
        self._work_again()
        for each in ended:
            self._live.pop(each.job_id, None)
        return [AttemptEnded(each.job_id, each.attempt, each.reason, each.exit_code) for each in ended]

    def _complain(self, error: OSError) -> None:
        """Say that the system is short of something; once, until it is so no more."""
        if not self._short:
            self._short = True
            _log.error("jobs cannot be started, watched or stopped at the moment: %s; tried again", error)

    def _work_again(self) -> None:
        """Say that the system is short of nothing any more."""
        if self._short and not self._todo:
            self._short = False
            _log.warning("jobs can be started, watched and stopped again")

    def _start_those_that_can(self) -> list[ExecutorReport]:
        reports: list[ExecutorReport] = []
        waiting, self._later = self._later, []
        held = {rank[1:] for launch in self._live.values() for rank in launch.ranks} if waiting else set()
        for what in waiting:
            slots = {rank[1:] for rank in what.ranks}
            if what.job_id in self._live or held & slots:
                self._later.append(what)
                held |= slots  # nobody passes it on its own GPUs
                continue
            try:
                self._backend.launch(what)
            except (BackendError, OSError) as error:
                if isinstance(why := error.__cause__ or error, OSError) and why.errno in SHORT:
                    self._complain(why)
                    self._later.append(what)
                    held |= slots
                    continue
                # Whoever reads it knows which job it is about.
                text = str(error).removeprefix(f"job {what.job_id!r}").removeprefix(":").strip()
                reports.append(AttemptEnded(what.job_id, what.attempt, "failed", None, text))
                continue
            self._work_again()
            self._live[what.job_id] = what
            held |= slots
            reports.append(AttemptLaunched(what.job_id, what.attempt))
        return reports

    def _put_off(self, what: Launch) -> list[ExecutorReport]:
        if self._last.get(what.job_id, 0) < what.attempt:  # an order may come twice
            self._last[what.job_id] = what.attempt
            self._later.append(what)
        return []

    def _stop(self, job_id: str, attempt: int) -> list[ExecutorReport]:
        for what in self._later:
            if (what.job_id, what.attempt) == (job_id, attempt):
                self._later.remove(what)
                return [AttemptEnded(job_id, attempt, "cancelled")]
        if job_id in self._live and self._live[job_id].attempt == attempt:
            self._backend.stop(job_id)
        return []

    def _adopt_all(self, launches: Sequence[Launch], leaving: Sequence[Launch]) -> list[ExecutorReport]:
        self._last |= {what.job_id: what.attempt for what in launches}
        reports: list[ExecutorReport] = [
            report for report in self._adopt(leaving) if isinstance(report, AttemptEnded)
        ]
        for what in leaving:
            if what.job_id in self._live:
                self._backend.stop(what.job_id)
        # The next attempt of a job whose last still ends cannot have been launched.
        ending = [what for what in launches if what.job_id in self._live]
        reports += self._adopt([what for what in launches if what.job_id not in self._live])
        self._later += ending
        return reports

    def _adopt(self, launches: Sequence[Launch]) -> list[ExecutorReport]:
        try:
            ended = self._backend.adopt(launches)
        except CrannyError as error:
            return [AttemptEnded(each.job_id, each.attempt, "lost", None, str(error)) for each in launches]
        over = {(each.job_id, each.attempt) for each in ended}
        going = [each for each in launches if (each.job_id, each.attempt) not in over]
        self._live |= {each.job_id: each for each in going}
        unfinished_secret = {(each.job_id, each.attempt): _begun(each) for each in launches}
        reports: list[ExecutorReport] = []
        for each in ended:
            unborn = each.reason == "lost" and not unfinished_secret[each.job_id, each.attempt]
            reports.append(
                AttemptEnded(each.job_id, each.attempt, NOT_STARTED if unborn else each.reason, each.exit_code)
            )
        return reports + [AttemptLaunched(each.job_id, each.attempt) for each in going]


def _begun(what: Launch) -> bool:
    """Say whether any rank of an attempt has begun: each has a log from its first moment."""
    return any(what.log_dir.glob("*.log"))
