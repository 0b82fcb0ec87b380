"""A backend in memory for tests of its users: it starts no processes, and reads the time from a given clock."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from signal import SIGKILL, SIGTERM

from cranny.backends.protocol import GRACE_S, BackendError, Ended, JobChannel, Launch, Reason, Slots, as_numbered
from cranny.backends.ranks import CHANNEL
from cranny.model.cluster import Cluster


@dataclass(frozen=True)
class FakeRun:
    """The course of an attempt that is not stopped."""

    run_s: float = 1.0
    exit_code: int = 0
    stubborn: bool = False  # ignores SIGTERM


@dataclass
class _Process:
    """An attempt: how and when it ends, as of now."""

    course: FakeRun
    ends_at: float
    exit_code: int | None
    reason: Reason
    asked_at: float = math.inf  # to end


class FakeProcesses:
    """The processes of a fake cluster, which outlive the service that started them."""

    def __init__(self) -> None:
        self.by_attempt: dict[tuple[str, int], _Process] = {}  # by job and attempt; kept when they end


class FakeBackend:
    """Pretends to run jobs.

    `course` returns the course of an attempt, or raises `BackendError`. To test a restart, pass the processes of
    one fake to another. With `channels`, folders for channels are made in the log folders.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float],
        course: Callable[[Launch], FakeRun] = lambda _: FakeRun(),
        processes: FakeProcesses | None = None,
        *,
        channels: bool = False,
    ) -> None:
        self.processes = FakeProcesses() if processes is None else processes
        self.launches: list[Launch] = []  # all that this backend has started
        self.signals: list[tuple[str, int]] = []  # jobs and the signals that they got
        self._cluster, self._clock, self._course = cluster, clock, course
        self._channels = channels
        self._slots = Slots(cluster)
        self._running: dict[str, Launch] = {}  # by job

    def nodes(self) -> Cluster:
        """Return the machines and their GPU slots."""
        return self._cluster

    def launch(self, what: Launch) -> None:
        """Pretend to start an attempt."""
        if what.job_id in self._running:
            raise BackendError(f"job {what.job_id!r} runs already")
        if _key(what) in self.processes.by_attempt:
            raise BackendError(f"job {what.job_id!r}: attempt {what.attempt} was launched before")
        what = as_numbered(what, self._cluster)
        self._slots.take(what)
        try:
            course = self._course(what)
        except BackendError:
            self._slots.release(what)
            raise
        reason: Reason = "failed" if course.exit_code else "finished"
        process = _Process(course, self._clock() + course.run_s, course.exit_code, reason)
        if what.time_limit_s is not None and what.time_limit_s < course.run_s:
            _end(process, "timed out", self._clock() + what.time_limit_s, GRACE_S)
        if self._channels:
            (what.log_dir / CHANNEL).mkdir(parents=True, exist_ok=True)
        self.processes.by_attempt[_key(what)] = process
        self._running[what.job_id] = what
        self.launches.append(what)

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        """Pretend to end a job."""
        if job_id in self._running:
            process = self.processes.by_attempt[_key(self._running[job_id])]
            if self._clock() < process.ends_at:
                _end(process, "cancelled", self._clock(), GRACE_S if grace_s is None else grace_s)

    def signal(self, job_id: str, number: int) -> None:
        """Note a signal."""
        if job_id in self._running:
            self.signals.append((job_id, number))

    def channel(self, job_id: str) -> JobChannel | None:
        """Return the channel to a running job, if there are channels."""
        what = self._running.get(job_id)
        if what is None or not self._channels:
            return None
        return JobChannel(what.log_dir / CHANNEL, f"token of {what.job_id}, {what.attempt}")

    def lose(self, job_id: str) -> None:
        """Lose a running job without a trace, as if its machine had failed."""
        process = self.processes.by_attempt[_key(self._running[job_id])]
        process.ends_at, process.exit_code, process.reason = self._clock(), None, "lost"

    def poll(self) -> Sequence[Ended]:
        """Return what ended since the last poll, in the order in which it ended."""
        over = [what for what in self._running.values() if self._over(what)]
        over.sort(key=lambda what: self.processes.by_attempt[_key(what)].ends_at)
        for what in over:
            del self._running[what.job_id]
            self._slots.release(what)
        return [self._ended(what) for what in over]

    def adopt(self, launches: Sequence[Launch]) -> Sequence[Ended]:
        """Take over what an earlier backend started."""
        ended = []
        for what in launches:
            other = self._running.get(what.job_id)
            if other is not None and other.attempt == what.attempt:
                continue
            if other is not None or _key(what) not in self.processes.by_attempt or self._over(what):
                ended.append(self._ended(what))
            else:
                self._slots.hold(what)
                self._running[what.job_id] = what
        return ended

    def close(self) -> None:
        """Forget all attempts, which keep running."""
        self._running.clear()

    def _over(self, what: Launch) -> bool:
        return self.processes.by_attempt[_key(what)].ends_at <= self._clock()

    def _ended(self, what: Launch) -> Ended:
        process = self.processes.by_attempt.get(_key(what))
        if process is None:
            return Ended(what.job_id, what.attempt, None, "lost")
        return Ended(what.job_id, what.attempt, process.exit_code, process.reason)


def _key(what: Launch) -> tuple[str, int]:
    return what.job_id, what.attempt


def _end(process: _Process, reason: Reason, asked_at: float, grace_s: float) -> None:
    """Let a process end early: at SIGTERM or, if it is stubborn, at SIGKILL."""
    if asked_at < process.asked_at:  # the first reason counts
        process.reason, process.asked_at = reason, asked_at
    stubborn = process.course.stubborn
    ends_at = asked_at + grace_s if stubborn else asked_at
    if ends_at < process.ends_at:
        process.ends_at, process.exit_code = ends_at, -SIGKILL if stubborn else -SIGTERM
