"""The supervisor of one attempt: starts its ranks, watches them, and writes how they ended.

    python -m cranny.backends.supervisor LOG_DIR ATTEMPT GROUP [ACCOUNT]

It runs in its own session, so that it survives the service; the next service finds it by its pid file, and the
result if it has ended. SIGTERM means that the job is to end: cancelled by the service, or lost if the service did
not request it, as when the system shuts down.

No process of a job outlives its supervisor. Ranks get sessions of their own, to be signalled with all their
children. The supervisor is their subreaper (Linux): a child that leaves its session, and then loses its parent,
becomes a child of the supervisor. If the supervisor itself is killed, the ranks die with it.

With an account, ranks run under it: the launcher has started the supervisor then, with the capabilities for that.
The supervisor itself has the account of the service, and its files are out of the reach of the job.

It imports little, to start quickly.
"""

import contextlib
import ctypes
import math
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from cranny.backends.attempt_files import RESERVED, AttemptFiles, keep_result, read, remove, write
from cranny.backends.control_group import AttemptGroups
from cranny.backends.log_writer import LogWriter
from cranny.backends.privileges import Account, become_rank, of_arguments
from cranny.backends.process import Process, catches, descendants
from cranny.backends.process_limits import set_process_limits
from cranny.backends.rank_logs import pipe_of
from cranny.backends.resource_limits import NO_LIMITS, ResourceLimits

TICK_S = 0.1  # between two polls of processes that are to end
CANCEL = (signal.SIGTERM, signal.SIGINT)
HANDLED = (*CANCEL, signal.SIGUSR1)  # by the supervisor itself
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2)  # that the service may send to ranks
CANNOT_START = 127  # exit code, as in shells
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Signals:
    """Wakes the supervisor when a child ends or the job is to end."""

    def __init__(self) -> None:
        self.cancelled = False
        self.forward = False
        self._read, wake = os.pipe()
        for end in (self._read, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in CANCEL:
            signal.signal(number, self._cancel)
        signal.signal(signal.SIGUSR1, self._forward)
        # The service starts the supervisor with signals blocked, so that none arrives before the handlers.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _cancel(self, _number: int, _frame: FrameType | None) -> None:
        self.cancelled = True

    def _forward(self, _number: int, _frame: FrameType | None) -> None:
        self.forward = True

    def take_forward(self) -> bool:
        """Return whether a request to signal the ranks has arrived since the last call."""
        forward, self.forward = self.forward, False
        return forward

    def take_cancel(self) -> bool:
        """Return whether a request to end has arrived since the last call."""
        cancelled, self.cancelled = self.cancelled, False
        return cancelled

    def wait(self, seconds: float) -> None:
        """Sleep until a signal arrives, or for some seconds."""
        timeout = None if math.isinf(seconds) else max(0.0, seconds)
        if select.select([self._read], [], [], timeout)[0]:
            os.read(self._read, 65536)


class SupervisedAttempt:
    """The ranks of an attempt, from their start to the end of the last of their children."""

    def __init__(
        self,
        what: dict[str, Any],
        files: AttemptFiles,
        signals: Signals,
        account: Account | None,
        groups: AttemptGroups,
        log_writer: LogWriter,
    ) -> None:
        self._what, self._files, self._signals, self._account = what, files, signals, account
        self._log_writer = log_writer  # a child that ends after all others
        self._groups_entered, self._group = groups, groups.whole
        self._ranks: set[int] = set()  # those that have not ended
        self._groups: list[int] = []
        # Linux's prctl, or a function that fails.
        self._prctl: Any = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else lambda *_: -1
        # On systems other than Linux a child that starts its own session escapes.
        self._subreaper = self._prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0
        self._exit_code: int | None = None
        self._reason = ""
        self._kill_at = math.inf

    def run(self) -> tuple[int | None, str]:
        """Run the ranks to their end; return exit code and reason."""
        if self._signals.take_cancel():
            return None, self._why()
        limit_at = time.monotonic() + (self._what["time_limit_s"] or math.inf)
        if self._account is not None:
            give_files(self._what, self._account)
        self._start()
        while not self._all_exited():
            now = time.monotonic()
            if not self._reason and not self._ranks:
                self._end("finished")
            if self._signals.take_forward():
                self._forward(read(self._files.signal))
            if self._signals.take_cancel():
                self._end(self._why(), read(self._files.stop))
            if not self._reason and now >= limit_at:
                self._end("timed out")
            if now >= self._kill_at:
                self._signal_all(signal.SIGKILL)
            self._signals.wait(TICK_S if self._reason else limit_at - now)
        return None if self._reason == "lost" else self._exit_code, self._reason or "finished"

    def _why(self) -> str:
        """Return the reason of a SIGTERM: the service writes a stop file first, a system shutdown does not."""
        return "cancelled" if self._files.stop.exists() else "lost"

    def _start(self) -> None:
        # Blocked: a signal to a forked child must wait until it has become a rank.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            for rank in self._what["ranks"]:
                pid = os.fork()
                if pid == 0:
                    self._become(rank)
                self._ranks.add(pid)
                self._groups.append(pid)
        except OSError as error:
            log_error(f"cannot start a process: {error.strerror}")
            self._end("failed")
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)

    def _become(self, rank: dict[str, Any]) -> None:
        """Turn this process, a forked child of the supervisor, into a rank."""
        parent = os.getppid()
        cwd, command = self._what["cwd"], rank["argv"][0]
        trying = f"start {command}"
        try:
            os.setsid()
            self._groups_entered.enter()
            null = os.open(os.devnull, os.O_RDONLY)
            # A log says that its rank has started.
            os.close(os.open(rank["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600))
            log = os.open(pipe_of(Path(rank["log"])), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            os.set_blocking(log, True)
            for ours, theirs in ((null, 0), (log, 1), (log, 2)):
                os.dup2(ours, theirs)
            trying = "set its limits"
            set_process_limits(self._what["process_limits"])
            if self._account is not None:
                trying = f"act as {self._account.name}"
                become_rank(self._account)
            trying = f"start {command}"
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # last: another account would clear it
            if parent != os.getppid():  # the supervisor was killed just before
                return
            if cwd is not None:
                trying = f"enter {cwd}"
                os.chdir(cwd)
                trying = f"start {command}"
            for number in (*HANDLED, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):  # we changed them
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execvpe(command, rank["argv"], rank["env"])  # noqa: S606 - what the job asked for
        except OSError as error:
            log_error(f"cannot {trying}: {error.strerror}")
        finally:
            os._exit(CANNOT_START)

    def _all_exited(self) -> bool:
        """Reap exited processes; return whether none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                return not self._ranks and self._none_left()
            if pid in self._ranks:
                self._ranks.remove(pid)
                exit_code = os.waitstatus_to_exitcode(status)
                self._exit_code = self._exit_code or exit_code  # the first that is not 0
                if exit_code and not self._reason:
                    self._end("failed")

    def _none_left(self) -> bool:
        """Return whether no process of the attempt runs, after all its ranks have ended."""
        if self._group is not None and not self._group.is_empty:
            return False
        if not self._subreaper:
            return not any(map(_exists, self._groups))
        try:
            return not self._below()
        except OSError as error:  # no more files may be opened: look again later
            log_error(f"cannot list processes: {error.strerror}")
            return False

    def _below(self) -> dict[int, int]:
        """Return the processes of the attempt that descend from this one, each with its process group."""
        below = descendants(os.getpid())
        below.pop(self._log_writer.pid, None)
        return below

    def _end(self, reason: str, grace_s: float | None = None) -> None:
        """Send SIGTERM, and set when SIGKILL follows; the first reason and the shortest grace period win."""
        if not self._reason:
            self._reason = reason
            self._signal_all(signal.SIGTERM)
        grace_s = self._what["grace_s"] if grace_s is None else grace_s
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)

    def _forward(self, number: object) -> None:
        """Signal the processes that have a handler for it; the others would die of it."""
        if isinstance(number, int) and number in FORWARDED:
            for pid in self._below():
                if catches(pid, number):
                    _send(os.kill, pid, number)

    def _signal_all(self, number: int) -> None:
        """Signal every process of the attempt, whole groups at once so that none escapes by forking."""
        if self._group is not None and number == signal.SIGKILL:
            self._group.kill()
            return
        try:
            below = self._below()
        except OSError as error:  # no more files may be opened: signal the sessions of the ranks for now
            log_error(f"cannot list processes: {error.strerror}")
            below = {rank: rank for rank in self._ranks}
        groups = set(below.values()) if self._subreaper else set(self._groups)
        for group in groups - {os.getpgrp()}:
            _send(os.killpg, group, number)
        for pid, group in below.items():
            if group == os.getpgrp():  # it has just been forked
                _send(os.kill, pid, number)


def _send(send: Any, target: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # ended meanwhile, or another user's by now
        send(target, number)


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def log_error(text: str) -> None:
    """Write a line to the standard error stream: a rank's log, or the supervisor's own."""
    os.write(2, f"cranny: {text}\n".encode(errors="replace"))


def claim(files: AttemptFiles, what: Any, groups: AttemptGroups) -> bool:
    """Claim an attempt; return False if the service has withdrawn it."""
    own = Process.of(os.getpid())
    found = {"pid": own.pid, "started": own.started, "token": what["token"]}
    write(files.pid, found | {"groups": groups.folders})
    write(files.reserve, None, size=RESERVED)
    if remove(files.launch):
        return True
    remove(files.pid)
    remove(files.reserve)
    return False


def give_files(what: dict[str, Any], account: Account) -> None:
    """Let the account of a job have its channel."""
    folder = os.open(what["channel"], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    # The group stays that of the service, also of the files that the job makes there: so both can read them.
    os.fchmod(folder, 0o2770)
    os.fchown(folder, account.uid, -1)
    os.close(folder)


def run(
    what: dict[str, Any], files: AttemptFiles, signals: Signals, account: Account | None, groups: AttemptGroups
) -> tuple[int | None, str, str]:
    """Run an attempt to its end, and return exit code, reason and what else is to say; its logs are complete."""
    try:
        log_writer = LogWriter(what["logs"], what["log_limit"], account)
    except OSError as error:
        return None, "failed", f"its logs cannot be written: {error.strerror or error}"
    ended = SupervisedAttempt(what, files, signals, account, groups, log_writer).run()
    log_writer.finish()
    killed = groups.killed_for_memory
    return *ended, f"at its limit of memory the kernel killed {killed} of its processes" if killed else ""


def main(log_dir: Path, attempt: int, group: str, account: Account | None) -> None:
    """Run an attempt, unless the service has withdrawn it, and write its result."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # ranks must not inherit files of the service
    files = AttemptFiles.of(log_dir, attempt)
    signals = Signals()
    what = read(files.launch)
    if what is None:  # withdrawn
        AttemptGroups.make(group, NO_LIMITS).remove()  # which the launcher may have made
        return
    try:
        groups, trouble = AttemptGroups.make(group, ResourceLimits(*what["limits"])), ""
    except OSError as error:
        groups, trouble = AttemptGroups(None, ()), f"its limits cannot be set: {error.strerror or error}"
    claimed = claim(files, what, groups)
    if claimed and trouble:
        keep_result(files, None, "failed", trouble)
    elif claimed:
        keep_result(files, *run(what, files, signals, account, groups))
    groups.remove()
    if claimed and os.fstat(2).st_size == 0:
        remove(files.errors)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], of_arguments(*sys.argv[4:]) if sys.argv[4:] else None)
