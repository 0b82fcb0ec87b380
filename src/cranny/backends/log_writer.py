"""The log writer of an attempt: keeps the newest output of its ranks, within a limit for each.

Ranks write into named pipes, so that no job has a file of its log open: it cannot get round the limit, nor change
what it wrote. The log writer reads them. It is a process of its own, which goes on if the supervisor is stopped or
killed: a rank never waits for a supervisor. If output cannot be stored, as on a full disk, it is dropped, and a
line says so later.

It imports little: it is a fork of the supervisor.
"""

import contextlib
import os
import resource
import select
import signal
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from cranny.backends.privileges import Account, give_up
from cranny.backends.rank_logs import PARTS, part_of, pipe_of

CHUNK = 65_536  # bytes; what a pipe holds
MOST_CHUNKS = 16  # of a pipe that are read at the end
FINISH_S = 30.0  # that a supervisor waits for the end of the log writer, whose disk may be slow
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
DONE = b"d"


class LimitedLog:
    """A log that is written, of which the newest bytes are kept."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path, self._part_bytes = path, max(1, limit // PARTS)
        self._file: int | None = None  # the last part
        self._starts: list[int] = []  # of the parts
        self._end = 0  # offset of the next byte
        self._dropped, self._why = 0, ""

    def add(self, data: bytes) -> None:
        """Append to the log; drop what cannot be stored."""
        note = f"cranny: {self._dropped} bytes of output were dropped: {self._why}\n" if self._dropped else ""
        rest = note.encode() + data
        try:
            while rest:
                rest = self._write(rest)
        except OSError as error:
            self._why = error.strerror or str(error)
        if len(rest) <= len(data):  # the note is written
            self._dropped = 0
        self._dropped += min(len(rest), len(data))

    def _write(self, data: bytes) -> bytes:
        """Write what the last part has space for, and return the rest; whole lines stay together if they can."""
        space = self._starts[-1] + self._part_bytes - self._end if self._file is not None else 0
        if len(data) > space:
            lines = data.rfind(b"\n", 0, space) + 1
            space = lines or (space if space == self._part_bytes else 0)
        if self._file is None or not space:
            self._begin_part()
            return data
        written = os.write(self._file, data[:space])
        self._end += written
        return data[written:]

    def _begin_part(self) -> None:
        """Begin another file, after deleting the oldest if there are enough."""
        while len(self._starts) >= PARTS:
            with contextlib.suppress(FileNotFoundError):
                part_of(self._path, self._starts[0]).unlink()
            del self._starts[0]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        begun = os.open(part_of(self._path, self._end), flags, 0o600)
        if self._file is not None:
            os.close(self._file)
        self._file = begun
        if self._end not in self._starts:
            self._starts.append(self._end)


def give_pipe(path: Path, account: Account) -> None:
    """Let an account have a pipe, which must be one of our own.

    A supervisor may give any file to an account, and the service, which may not, can replace what has this name.
    """
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        found = os.fstat(pipe)
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(f"{path.name} was replaced")
        os.fchmod(pipe, 0o660)  # the group stays that of the service, which opens the standard streams of ranks
        os.fchown(pipe, account.uid, -1)
    finally:
        os.close(pipe)


class LogWriter:
    """The supervisor's end: starts the log writer, and waits for its end."""

    def __init__(self, logs: Sequence[str], limit: int, account: Account | None) -> None:
        """Make the pipes, and start what reads them; `OSError` says why not."""
        paths = [Path(log) for log in logs]
        for path in paths:
            os.mkfifo(pipe_of(path), 0o600)
        (until, self._until), (ready, begun) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._until)
            os.close(ready)
            _become_log_writer(paths, limit, until, begun, account)
        for end in (until, begun):
            os.close(end)
        trouble = os.read(ready, CHUNK)
        os.close(ready)
        if trouble != DONE:
            raise OSError(trouble.decode(errors="replace") or "the log writer has ended")
        if account is not None:
            for path in paths:
                give_pipe(pipe_of(path), account)

    def finish(self) -> None:
        """Wait until all that was written is in the logs."""
        with contextlib.suppress(OSError):
            os.write(self._until, DONE)
        os.close(self._until)
        until = time.monotonic() + FINISH_S
        with contextlib.suppress(ChildProcessError):  # reaped before: it was killed
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
                time.sleep(0.002)


def _become_log_writer(logs: Sequence[Path], limit: int, until: int, begun: int, account: Account | None) -> None:
    """Turn this process, a fork of the supervisor, into the log writer of an attempt."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        if account is not None:
            give_up(None)  # what the supervisor may do as other users
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        try:
            pipes = {os.open(pipe_of(log), os.O_RDONLY | os.O_NONBLOCK): LimitedLog(log, limit) for log in logs}
        except OSError as error:
            os.write(begun, str(error).encode())
            return
        os.write(begun, DONE)
        os.close(begun)
        _keep(pipes, [pipe_of(log) for log in logs], until)
    finally:
        os._exit(0)


def _keep(pipes: dict[int, LimitedLog], names: Sequence[Path], until: int) -> None:
    """Read the pipes until the attempt is over."""
    poll = select.poll()
    for number in (*pipes, until):
        poll.register(number, select.POLLIN)
    left = set(pipes)
    while left:
        for number, _ in poll.poll():
            if number != until:
                if not _read(number, pipes[number]):  # all that could write have ended
                    poll.unregister(number)
                    left.discard(number)
                    os.close(number)
                continue
            poll.unregister(until)
            if os.read(until, 1) == DONE:
                for each in left:
                    for _ in range(MOST_CHUNKS):
                        if not _read(each, pipes[each]):
                            break
                left.clear()
                break
            for name in names:  # no supervisor is left: a pipe that was never opened would be waited for
                with contextlib.suppress(OSError):
                    os.close(os.open(name, os.O_WRONLY | os.O_NONBLOCK))
    for name in names:
        with contextlib.suppress(OSError):
            name.unlink()


def _read(number: int, log: LimitedLog) -> bool:
    """Move what is in a pipe to its log; return False at the end of the pipe."""
    try:
        data = os.read(number, CHUNK)
    except BlockingIOError:
        return True
    log.add(data)
    return bool(data)
