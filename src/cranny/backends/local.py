"""The local backend: jobs as real processes on this machine.

Every attempt has a supervisor (see `supervisor`), which survives the service. Both communicate through files in
the attempt's log folder (see `attempt_files`).
"""

import contextlib
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast, get_args

from cranny.backends import attempt_files as io
from cranny.backends import local_machine
from cranny.backends.attempt_files import AttemptFiles
from cranny.backends.process import Process, carrying
from cranny.backends.protocol import GRACE_S, BackendError, Ended, JobChannel, Launch, Reason, Slots
from cranny.backends.ranks import CHANNEL, LAUNCH, commands
from cranny.model.cluster import Cluster

SOURCE = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class _Running:
    """An attempt that has not been reported as ended."""

    what: Launch
    files: AttemptFiles
    supervisor: Process
    token: str
    port: int | None  # None if an earlier service chose it


class LocalBackend:
    """Runs jobs on this machine, which may emulate a cluster of several machines.

    With at least as many real GPUs as the cluster has slots, each slot is one of them. With fewer, slots are
    logical and jobs see no GPU, since no two may share one. With none, CUDA_VISIBLE_DEVICES contains slot numbers.
    """

    def __init__(self, cluster: Cluster, devices: Sequence[str] | None = None, grace_s: float = GRACE_S) -> None:
        self._cluster = cluster
        self._slots = Slots(cluster)
        self._running: dict[str, _Running] = {}  # by job
        self._grace_s = grace_s
        found = tuple(index for index, _ in local_machine.gpus()) if devices is None else tuple(devices)
        slots = [(machine, gpu) for machine, each in enumerate(cluster.machines) for gpu in range(each.gpus)]
        if not found:
            self._device = {slot: str(slot[1]) for slot in slots}
        elif len(found) >= len(slots):
            self._device = dict(zip(slots, found, strict=False))
        else:
            self._device = dict.fromkeys(slots, "")

    @classmethod
    def this_machine(cls) -> "LocalBackend":
        """Return a backend for this machine: its GPUs or, if it has none, as many slots as it has processors."""
        found = local_machine.gpus()
        return cls(local_machine.cluster_of(found), tuple(index for index, _ in found))

    def nodes(self) -> Cluster:
        """Return the machines and their GPU slots."""
        return self._cluster

    def launch(self, what: Launch) -> None:
        """Start the supervisor of an attempt."""
        if what.job_id in self._running:
            raise BackendError(f"job {what.job_id!r} runs already")
        self._slots.take(what)
        try:
            self._running[what.job_id] = self._start(what)
        except (OSError, BackendError) as error:
            self._slots.release(what)
            if isinstance(error, BackendError):
                raise
            spot = f"{error.filename}: " if error.filename else ""
            raise BackendError(f"job {what.job_id!r} cannot start: {spot}{error.strerror}") from error

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        """Signal the supervisor of a job to end it."""
        running = self._running.get(job_id)
        if running is None:
            return
        _ask_to_end(running.files, self._grace_s if grace_s is None else grace_s, running.supervisor.send)

    def signal(self, job_id: str, number: int) -> None:
        """Let the supervisor of a job signal its processes."""
        running = self._running.get(job_id)
        if running is not None:
            io.write(running.files.signal, number)
            running.supervisor.send(signal.SIGUSR1)

    def channel(self, job_id: str) -> JobChannel | None:
        """Return the channel to a running job."""
        running = self._running.get(job_id)
        if running is None:
            return None
        folder = running.what.log_dir.absolute() / CHANNEL
        return JobChannel(folder, running.token) if folder.is_dir() and not folder.is_symlink() else None

    def poll(self) -> Sequence[Ended]:
        """Return the attempts whose supervisors have ended."""
        found: list[Ended] = []
        trouble: OSError | None = None
        for running in list(self._running.values()):
            try:
                ended = self._look(running)
            except OSError as error:  # for example no more files may be opened: the others are still polled
                trouble = error
                continue
            if ended is not None:
                found.append(ended)
        if trouble is not None and not found:  # ends are reported only once, and must not be lost
            raise trouble
        return found

    def adopt(self, launches: Sequence[Launch]) -> Sequence[Ended]:
        """Find the supervisors of an earlier service; launches that were not claimed are withdrawn."""
        ended = []
        for what in launches:
            other = self._running.get(what.job_id)
            if other is not None and other.what.attempt == what.attempt:
                continue
            files = AttemptFiles.of(what.log_dir.absolute(), what.attempt)
            claimed = None if other is not None or io.remove(files.launch) else io.read(files.pid)
            match claimed:
                case {"pid": int(pid), "started": str(started), "token": str(token)}:
                    running = _Running(what, files, Process(pid, started), token, port=None)
                    end = self._look(running)
                case _:  # it never started; or it ended and was reported, and is reported again now
                    end = _result(what, files) or Ended(what.job_id, what.attempt, None, "lost")
            if end is not None:
                ended.append(end)
            else:
                self._slots.hold(what)
                self._running[what.job_id] = running
        return ended

    def close(self) -> None:
        """Forget all attempts, which keep running."""
        for running in self._running.values():
            with contextlib.suppress(OSError):  # the next backend checks again
                running.supervisor.alive()  # reaps those that have ended
        self._running.clear()

    def _start(self, what: Launch) -> _Running:
        """Write the launch file and start the supervisor, which reads it."""
        log_dir = what.log_dir.absolute()
        files = AttemptFiles.of(log_dir, what.attempt)
        base = local_machine.base_environment()
        _check_command(what, {**base, **what.env}["PATH"])
        _private_folder(log_dir / CHANNEL)
        if any(os.path.lexists(path) for path in (files.launch, files.pid, files.result)):
            raise BackendError(f"job {what.job_id!r}: attempt {what.attempt} was launched before in {log_dir}")
        token = secrets.token_hex(16)
        port = local_machine.free_port(
            {running.port for running in self._running.values() if running.port is not None}
        )
        devices = {rank: self._device[rank.machine, rank.gpu] for rank in what.ranks}
        ranks = commands(what, base, devices, port, token, log_dir)
        document = {
            "token": token,
            "cwd": None if what.cwd is None else str(what.cwd),
            "time_limit_s": what.time_limit_s,
            "grace_s": self._grace_s,
            "ranks": [command._asdict() for command in ranks],
        }
        try:
            io.write(files.launch, document, new=True)
            pid = _spawn(log_dir, what.attempt, files, base)
        except OSError:
            io.remove(files.launch)  # it holds the environment
            raise
        try:
            return _Running(what, files, Process.of(pid), token, port)
        except OSError:  # without its start time it could not be identified later
            if io.remove(files.launch):  # withdrawn before it was claimed: nothing has started
                os.kill(pid, signal.SIGKILL)
            else:  # only the supervisor knows what it has started
                _ask_to_end(files, 0.0, partial(os.kill, pid))
            os.waitpid(pid, 0)
            raise

    def _look(self, running: _Running) -> Ended | None:
        """Return how an attempt ended; None if anything of it still runs."""
        if running.supervisor.alive():
            return None
        what, files = running.what, running.files
        ended = _result(what, files)
        if ended is None:
            # The supervisor was killed. Its ranks died with it, but perhaps not all their children.
            if left := carrying(LAUNCH, running.token):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                return None
            ended = Ended(what.job_id, what.attempt, None, "lost")
        # All but the result, which may be read again.
        for path in (files.launch, files.pid, files.stop, files.signal, files.reserve):
            io.remove(path)
        if self._running.pop(what.job_id, None) is not None:
            self._slots.release(what)
        return ended


def _ask_to_end(files: AttemptFiles, grace_s: float, send: Callable[[int], None]) -> None:
    """Signal a supervisor to end its attempt within a grace period."""
    with contextlib.suppress(OSError):  # on a full disk the default grace period applies
        io.write(files.stop, grace_s)
    send(signal.SIGTERM)
    send(signal.SIGCONT)  # a job may have sent it SIGSTOP


def _result(what: Launch, files: AttemptFiles) -> Ended | None:
    """Read how an attempt ended; None if its supervisor has not written that, or the file is invalid."""
    match io.read(files.result):
        case {"exit_code": int() | None as exit_code, "reason": str(reason)} if reason in get_args(Reason):
            return Ended(what.job_id, what.attempt, exit_code, cast("Reason", reason))
    return None


def _spawn(log_dir: Path, attempt: int, files: AttemptFiles, base: dict[str, str]) -> int:
    """Start a supervisor in a session of its own, with signals blocked until it has its handlers."""
    # Without `site`: the supervisor needs the standard library and this package only.
    argv = [sys.executable, "-P", "-S", "-m", "cranny.backends.supervisor", str(log_dir), str(attempt)]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(files.errors), flags, 0o600),
    ]
    blocked = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    env = {**base, "PYTHONPATH": SOURCE}
    return os.posix_spawn(sys.executable, argv, env, file_actions=actions, setsid=True, setsigmask=blocked)


def _check_command(what: Launch, path: str) -> None:
    """Raise `BackendError` if the command or the folder to run it in is not there."""
    cwd = Path.cwd() if what.cwd is None else what.cwd
    if not cwd.is_dir():
        raise BackendError(f"job {what.job_id!r}: there is no folder {cwd}")
    command = what.argv[0]
    if what.torchrun and command.endswith(".py"):  # not a program; torchrun's own Python runs it
        return
    if not shutil.which(cwd / command if "/" in command else command, path=path):
        raise BackendError(f"job {what.job_id!r}: there is no command {command!r}")


def _private_folder(folder: Path) -> None:
    """Create a folder and its parents, readable by the owner only."""
    if folder.is_dir():
        return
    _private_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
