"""The executor: one thread that drives the backend, launching and stopping attempts, and reports what happened.

A launch is deferred until the processes that held its GPUs before have exited. An attempt that can save is asked
to, and stopped once it has, or when its time to do so is over. Controls of attempts go into their channels.
"""

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from signal import SIGTERM, Signals
from typing import NamedTuple

from cranny.backends.protocol import (
    NOT_STARTED,
    Backend,
    BackendError,
    ChoosesGpus,
    Ended,
    GivenGpus,
    Launch,
    LeavesProcesses,
    NamesJobs,
    numbered,
)
from cranny.channel.control import Control
from cranny.channel.report import report_file
from cranny.model.errors import CrannyError
from cranny.service.clock import wall_clock
from cranny.service.reports import ReportReader, WatchedAttempt

POLL_S = 0.05
WITHIN_GBPS = 14_400.0  # between GPUs of one machine, by the fastest links that there are
# A shortage of resources, not the job's fault: files, processes, memory, space on the disk.
TRANSIENT = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})

_log = logging.getLogger("cranny.service")


class AttemptLaunched(NamedTuple):
    """The processes of an attempt were started."""

    job_id: str
    attempt: int
    external: str = ""  # what the manager calls the job, if there is one


class AttemptStop(NamedTuple):
    """An attempt that leaves its GPUs: at once, or once it has saved what it was asked to."""

    job_id: str
    attempt: int
    control: Control | None = None  # with the request to save
    signal: Signals | None = None  # by which it is asked as well

    @property
    def by_s(self) -> float:
        """When it is stopped at the latest."""
        asked = None if self.control is None else self.control.checkpoint
        return 0.0 if asked is None else asked.by_s


ExecutorReport = AttemptLaunched | GivenGpus | Ended  # its processes have exited, or were never started
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
        *,
        reports: ReportReader | None = None,
        now_s: Callable[[], float] = wall_clock,
    ) -> None:
        self._backend = backend
        self._reports = ReportReader(now_s) if reports is None else reports
        self._now_s = now_s
        self._controls: dict[str, tuple[int, Control]] = {}  # of the latest attempt of each job
        self._unwritten: set[str] = set()  # jobs whose controls are not in their channels yet
        self._saving: dict[str, AttemptStop] = {}  # attempts that were asked to save
        self._report = report
        self._died = died  # called if an error ends the thread
        self._inbox: SimpleQueue[Task | None] = SimpleQueue()
        self._pending: deque[Task] = deque()  # taken from the inbox, not yet executed
        self._live: dict[str, Launch] = {}  # attempts that may have processes
        self._away: dict[tuple[str, int], Launch] = {}  # attempts that may have processes on other hosts
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
        """Stop an attempt at once."""
        self._inbox.put(lambda: self._stop(AttemptStop(job_id, attempt)))

    def leave(self, what: AttemptStop) -> None:
        """Stop an attempt, once it has saved if it is asked to."""
        self._inbox.put(lambda: self._stop(what))

    def set_control(self, job_id: str, attempt: int, control: Control) -> None:
        """Put the control of an attempt into its channel."""
        self._inbox.put(lambda: self._set_control(job_id, attempt, control))

    def adopt(
        self, launches: Sequence[Launch], leaving: Sequence[Launch], stopping: Sequence[AttemptStop] = ()
    ) -> None:
        """Take over the attempts of an earlier service, and stop those that it was stopping.

        `stopping` says of some that leave how they do; the others are stopped at once.
        """
        self._inbox.put(lambda: self._adopt_all(launches, leaving, stopping))

    def hold(self, launches: Sequence[Launch]) -> None:
        """Keep the GPUs of attempts that may run where they cannot be seen, until they are given up."""
        self._inbox.put(lambda: self._hold(launches))

    def give_up(self, job_id: str, attempt: int) -> None:
        """Report an attempt that was held as lost."""
        self._inbox.put(lambda: self._give_up(job_id, attempt))

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
                    self._write_controls()
                    self._stop_saved()
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
        if isinstance(self._backend, LeavesProcesses):
            self._reports.left = self._backend.left()
        for each in ended:
            self._live.pop(each.job_id, None)
            self._saving.pop(each.job_id, None)
            if self._controls.get(each.job_id, (0, None))[0] == each.attempt:
                del self._controls[each.job_id]
                self._unwritten.discard(each.job_id)
            self._reports.forget(each.job_id, each.attempt)
        given = self._backend.given() if isinstance(self._backend, ChoosesGpus) else ()
        return [*given, *ended]

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
        holders = [*self._live.values(), *self._away.values()] if waiting else []
        held = {slot for launch in holders for slot in launch.slots}
        away = {job_id for job_id, _ in self._away}
        for what in waiting:
            slots = what.slots
            if what.job_id in self._live or what.job_id in away or held & slots:
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
            self._follow(what, self._now_s())
            held |= slots
            reports.append(AttemptLaunched(what.job_id, what.attempt, self._external(what.job_id)))
        return reports

    def _external(self, job_id: str) -> str:
        """Return what the manager calls a job, if there is a manager."""
        return self._backend.external_id(job_id) if isinstance(self._backend, NamesJobs) else ""

    def _defer(self, what: Launch) -> list[ExecutorReport]:
        if self._latest.get(what.job_id, 0) < what.attempt:  # a launch may be requested twice
            self._latest[what.job_id] = what.attempt
            self._deferred.append(what)
        return []

    def _hold(self, launches: Sequence[Launch]) -> list[ExecutorReport]:
        for what in launches:
            self._away[what.job_id, what.attempt] = what
            self._latest[what.job_id] = max(self._latest.get(what.job_id, 0), what.attempt)
        return []

    def _give_up(self, job_id: str, attempt: int) -> list[ExecutorReport]:
        if self._away.pop((job_id, attempt), None) is None:
            return []
        return [Ended(job_id, attempt, None, "lost", "the host that ran it is dead")]

    def _follow(self, what: Launch, launched_s: float) -> None:
        """Follow an attempt that runs, and its reports."""
        self._live[what.job_id] = what
        channel = self._backend.channel(what.job_id)
        if channel is not None:
            cluster = self._backend.nodes()
            index = {machine.name: number for number, machine in enumerate(cluster.machines)}
            there = [rank.machine for rank in what.ranks]
            if what.machines and all(name in index for name in what.machines):
                there = [index[name] for name in what.machines]
            machines = [each for each in numbered(there, torchrun=what.torchrun) if each < len(cluster.machines)]
            types = tuple(cluster.machines[each].gpu_type for each in machines)
            fastest = (
                max(cluster.uplink_gbps[each] for each in machines) if len(set(machines)) > 1 else WITHIN_GBPS
            )
            watched = WatchedAttempt(what.job_id, what.attempt, channel, types, launched_s, fastest * 1e9 / 8)
            self._reports.watch(watched)
        if self._controls.get(what.job_id, (0, None))[0] == what.attempt:
            self._unwritten.add(what.job_id)

    def _set_control(self, job_id: str, attempt: int, control: Control) -> list[ExecutorReport]:
        before = self._controls.get(job_id)
        if before is None or (before[0], before[1].number) < (attempt, control.number):
            self._controls[job_id] = attempt, control
            self._unwritten.add(job_id)
        return []

    def _write_controls(self) -> None:
        """Write what is new for live attempts; that of a launch that is deferred is written when it runs."""
        for job_id in list(self._unwritten):
            attempt, control = self._controls[job_id]
            if job_id not in self._live or self._live[job_id].attempt != attempt:
                if self._latest.get(job_id, 0) > attempt:
                    self._unwritten.discard(job_id)
                continue
            if self._write(job_id, control):
                self._unwritten.discard(job_id)

    def _write(self, job_id: str, control: Control) -> bool:
        """Write a control into the channel of a job; return False if that is to be tried again."""
        channel = self._backend.channel(job_id)
        if channel is None:
            return True
        try:
            control.write(channel.folder)
        except OSError as error:
            if error.errno in TRANSIENT:
                return False
            # The folder is the job's own: it may have removed it, or put something else in the place of the file.
            self._reports.complain(job_id, f"its control cannot be written: {error.strerror}")
        return True

    def _stop(self, what: AttemptStop) -> list[ExecutorReport]:
        job_id, attempt = what.job_id, what.attempt
        for launch in self._deferred:
            if (launch.job_id, launch.attempt) == (job_id, attempt):
                self._deferred.remove(launch)
                return [Ended(job_id, attempt, None, "cancelled")]
        if job_id not in self._live or self._live[job_id].attempt != attempt:
            return []
        if what.control is None:
            self._saving.pop(job_id, None)
            self._backend.stop(job_id)
        elif job_id not in self._saving:
            self._ask_to_save(what, what.control)
        return []

    def _ask_to_save(self, what: AttemptStop, control: Control) -> None:
        """Ask an attempt to save before it is stopped; one that could not hear that is stopped at once."""
        job_id, left_s = what.job_id, what.by_s - self._now_s()
        if what.signal == SIGTERM:  # by which it is stopped anyway: it has longer until SIGKILL
            self._backend.stop(job_id, max(0.0, left_s))
            return
        channel = self._backend.channel(job_id)
        hears = channel is not None and report_file(channel.folder, 0).exists()
        if left_s <= 0 or (what.signal is None and not hears):
            self._backend.stop(job_id)
            return
        self._write(job_id, control)
        if what.signal is not None:
            self._backend.signal(job_id, what.signal)
        self._saving[job_id] = what

    def _stop_saved(self) -> None:
        """Stop attempts that have saved, or whose time to save is over."""
        now_s = self._now_s() if self._saving else 0.0
        for job_id, what in list(self._saving.items()):
            asked = None if what.control is None else what.control.checkpoint
            done = asked is not None and self._reports.answered(job_id, what.attempt, asked.number)
            if done or now_s >= what.by_s:
                try:
                    self._backend.stop(job_id)
                except OSError as error:
                    self._log_shortage(error)
                else:
                    del self._saving[job_id]

    def _adopt_all(
        self, launches: Sequence[Launch], leaving: Sequence[Launch], stopping: Sequence[AttemptStop]
    ) -> list[ExecutorReport]:
        self._latest |= {what.job_id: what.attempt for what in launches}
        reports: list[ExecutorReport] = [each for each in self._adopt(leaving) if isinstance(each, Ended)]
        how = {(each.job_id, each.attempt): each for each in stopping}
        for what in leaving:
            key = what.job_id, what.attempt
            if what.job_id in self._live and self._live[what.job_id].attempt == what.attempt:
                self._stop(how.get(key, AttemptStop(*key)))
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
        for what in running:
            self._follow(what, what.launched_s or self._now_s())
        # Every rank has a log when it starts.
        unborn = {(each.job_id, each.attempt) for each in launches if not any(each.log_dir.glob("*.log"))}
        reports: list[ExecutorReport] = []
        for each in ended:
            withdrawn = each.reason == "lost" and each[:2] in unborn
            reports.append(each._replace(reason=NOT_STARTED) if withdrawn else each)
        return reports + [
            AttemptLaunched(each.job_id, each.attempt, self._external(each.job_id)) for each in running
        ]
