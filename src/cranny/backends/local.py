"""The local backend: jobs as real processes on this machine.

Every attempt has a supervisor (see `supervisor`), which survives the service. Both communicate through files in
the attempt's log folder (see `attempt_files`).
"""

import contextlib
import math
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import cast, get_args

from cranny.backends import attempt_files as io
from cranny.backends import local_machine
from cranny.backends.attempt_files import AttemptFiles
from cranny.backends.control_group import AttemptGroups
from cranny.backends.device_filter import DeviceNumber
from cranny.backends.launcher import Launcher, enforceable, spawn_supervisor
from cranny.backends.process import Process, carrying, command_of, descendants, writing_to_pipes
from cranny.backends.protocol import GRACE_S, BackendError, Ended, JobChannel, Launch, Reason, Slots, as_numbered
from cranny.backends.rank_logs import LOG_LIMIT_BYTES, log_of
from cranny.backends.ranks import CHANNEL, LAUNCH, commands
from cranny.backends.resource_limits import NO_LIMITS, ResourceLimits
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError

LATE_S = 30.0  # beyond limit and grace, that a supervisor may be late on a busy machine
LOOK_S = 2.0  # between two looks at what does not end
MOST_LEFT = 10  # processes that are named
NO_CORE_DUMP = {"core": 0}  # of another user's job: it would hold secrets, and anything else
ENTERED = 0o711  # of folders in which other accounts may reach what belongs to them, but list nothing


@dataclass(frozen=True)
class _Running:
    """An attempt that has not been reported as ended."""

    what: Launch
    files: AttemptFiles
    supervisor: Process
    token: str
    port: int | None  # None if an earlier service chose it
    overdue_at: float  # by the monotonic clock: its supervisor should have ended it by then


class LocalBackend:
    """Runs jobs on this machine, which may emulate a cluster of several machines.

    With at least as many real GPUs as the cluster has slots, each slot is one of them. With fewer, slots are
    logical and jobs see no GPU, since no two may share one. With none, CUDA_VISIBLE_DEVICES contains slot numbers.
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        devices: Sequence[str] | None = None,
        grace_s: float = GRACE_S,
        launcher: Launcher | None = None,
        limits: ResourceLimits = NO_LIMITS,
        device_files: Sequence[Path] | None = None,
        log_limit: int = LOG_LIMIT_BYTES,
        process_limits: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Run jobs on the GPUs of this machine, or of a cluster that it emulates.

        Limits are for each GPU of a job, and for each process of one. `device_files` of GPUs are in their order.
        """
        real = local_machine.gpus() if devices is None else ()
        cluster = local_machine.cluster_of(real) if cluster is None else cluster
        self._cluster = cluster
        self._limits = limits
        self._process_limits = (NO_CORE_DUMP if launcher else {}) | dict(process_limits)
        self._log_limit = log_limit  # bytes of each rank that are kept
        self._launcher = launcher  # if jobs run under the accounts of their users
        self._slots = Slots(cluster)
        self._running: dict[str, _Running] = {}  # by job
        self._grace_s = grace_s
        self._ending: dict[
            str, float
        ] = {}  # when jobs that were stopped should have ended, by the monotonic clock
        self._left: dict[str, list[int]] = {}  # processes of jobs that should have ended
        found = tuple(index for index, _ in real) if devices is None else tuple(devices)
        slots = [(machine, gpu) for machine, each in enumerate(cluster.machines) for gpu in range(each.gpus)]
        if not found:
            self._device = {slot: str(slot[1]) for slot in slots}
        elif len(found) >= len(slots):
            self._device = dict(zip(slots, found, strict=False))
        else:
            self._device = dict.fromkeys(slots, "")
        numbers = local_machine.gpu_numbers() if device_files is None else list(map(DeviceNumber.of, device_files))
        self._gpu_numbers = {str(index): number for index, number in enumerate(numbers)}

    def check_user(self, user: str) -> None:
        """Raise `CrannyError` if a user has no account under which jobs could run."""
        if self._launcher is not None:
            self._launcher.account(user)

    @property
    def has_gpu_devices(self) -> bool:
        """Whether the device files of GPUs are known."""
        return bool(self._gpu_numbers)

    @property
    def enforced(self) -> list[str]:
        """What control groups enforce here: limits by their controllers, and `devices` that jobs were given."""
        return enforceable() if self._launcher is None else self._launcher.enforced

    def nodes(self) -> Cluster:
        """Return the machines and their GPU slots."""
        return self._cluster

    def launch(self, what: Launch) -> None:
        """Start the supervisor of an attempt."""
        if what.job_id in self._running:
            raise BackendError(f"job {what.job_id!r} runs already")
        what = as_numbered(what, self._cluster)
        self._slots.take(what)
        try:
            self._running[what.job_id] = self._start(what)
        except (OSError, CrannyError) as error:
            self._slots.release(what)
            if isinstance(error, BackendError):
                raise
            if isinstance(error, CrannyError):
                raise BackendError(f"job {what.job_id!r}: {error}") from error
            spot = f"{error.filename}: " if error.filename else ""
            raise BackendError(f"job {what.job_id!r} cannot start: {spot}{error.strerror}") from error

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        """Signal the supervisor of a job to end it."""
        running = self._running.get(job_id)
        if running is None:
            return
        grace_s = self._grace_s if grace_s is None else grace_s
        self._ending.setdefault(job_id, time.monotonic() + grace_s + LOOK_S)
        _ask_to_end(running.files, grace_s, running.supervisor.send)

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

    def left(self) -> Mapping[str, Sequence[str]]:
        """Return the processes of attempts that should have ended, with what they run."""
        return {
            job_id: [f"process {pid} ({command})" for pid in pids[:MOST_LEFT] if (command := command_of(pid))]
            for job_id, pids in self._left.items()
        }

    def adopt(self, launches: Sequence[Launch]) -> Sequence[Ended]:
        """Find the supervisors of an earlier service; launches that were not claimed are withdrawn."""
        ended = []
        for what in launches:
            other = self._running.get(what.job_id)
            if other is not None and other.what.attempt == what.attempt:
                continue
            files = AttemptFiles.of(what.log_dir.absolute(), what.attempt)
            if other is None:
                self._forbid_launch(files)
            claimed = None if other is not None or io.remove(files.launch) else io.read(files.pid)
            match claimed:
                case {"pid": int(pid), "started": str(started), "token": str(token)}:
                    running = _Running(what, files, Process(pid, started), token, None, self._overdue_at(what))
                    end = self._look(running)
                case _:  # it never started; or it ended and was reported, and is reported again now
                    end = _result(what, files) or Ended(what.job_id, what.attempt, None, "lost")
            if end is not None:
                ended.append(end)
            else:
                self._slots.hold(what)
                self._running[what.job_id] = running
        return ended

    def _forbid_launch(self, files: AttemptFiles) -> None:
        """Keep an earlier service, which may only have been stopped, from launching what it has not launched yet.

        It looks for this file once its launch file is written, and `adopt` for the launch file once this one is:
        so one of both finds the other's.
        """
        if not files.launched:
            _make_folder(files.withdrawn.parent, self._folder_mode)
            io.write(files.withdrawn, None)

    @property
    def _folder_mode(self) -> int:
        return 0o700 if self._launcher is None else ENTERED

    def close(self) -> None:
        """Forget all attempts, which keep running."""
        for running in self._running.values():
            with contextlib.suppress(OSError):  # the next backend checks again
                running.supervisor.alive()  # reaps those that have ended
        for kept in (self._running, self._left, self._ending):
            kept.clear()

    def _start(self, what: Launch) -> _Running:
        """Write the launch file and start the supervisor, which reads it."""
        log_dir = what.log_dir.absolute()
        files = AttemptFiles.of(log_dir, what.attempt)
        account = None if self._launcher is None else self._launcher.account(what.user)
        base = local_machine.base_environment(account=account)
        if account is None:  # what other accounts can read is seen when the job starts
            _check_command(what, {**base, **what.env}["PATH"])
        _make_folder(log_dir / CHANNEL, self._folder_mode)
        if files.launched:
            raise BackendError(f"job {what.job_id!r}: attempt {what.attempt} was launched before in {log_dir}")
        token = secrets.token_hex(16)
        port = local_machine.free_port(
            {running.port for running in self._running.values() if running.port is not None}
        )
        devices = {rank: self._device[rank.machine, rank.gpu] for rank in what.ranks}
        denied = [number for index, number in self._gpu_numbers.items() if index not in devices.values()]
        ranks = commands(what, base, devices, port, token, log_dir)
        document = {
            "token": token,
            "cwd": str(what.cwd) if what.cwd is not None else account and account.home,
            "time_limit_s": what.time_limit_s,
            "grace_s": self._grace_s,
            "limits": what.limits.at_most(self._limits.times(len(what.ranks))),
            "ranks": [command._asdict() for command in ranks],
            "channel": str(log_dir / CHANNEL),
            # torchrun's agents have logs, and so have their ranks.
            "logs": sorted(
                {each.log for each in ranks} | {str(log_of(log_dir, each.rank)) for each in what.ranks}
            ),
            "log_limit": self._log_limit,
            "process_limits": self._process_limits,
        }
        try:
            io.write(files.launch, document, new=True)
            if files.withdrawn.exists():
                raise BackendError(f"job {what.job_id!r}: another service has withdrawn attempt {what.attempt}")
            if self._launcher is None:
                pid = spawn_supervisor(log_dir, what.attempt, base, denied=denied)
            else:
                pid = self._launcher.start(what.user, log_dir, what.attempt, denied)
        except (OSError, CrannyError):
            io.remove(files.launch)  # it holds the environment
            raise
        try:
            return _Running(what, files, Process.of(pid), token, port, self._overdue_at(what))
        except OSError:  # without its start time it could not be identified later
            if io.remove(files.launch):  # withdrawn before it was claimed: nothing has started
                os.kill(pid, signal.SIGKILL)
            else:  # only the supervisor knows what it has started
                _ask_to_end(files, 0.0, partial(os.kill, pid))
            if self._launcher is None:
                os.waitpid(pid, 0)
            raise

    def _overdue_at(self, what: Launch) -> float:
        """Return when an attempt is ended without its supervisor, if that has not reacted to its time limit.

        An attempt that was adopted counts from now: how long it has run only clocks say that may have been set.
        """
        return time.monotonic() + (what.time_limit_s or math.inf) + self._grace_s + LATE_S

    def _look(self, running: _Running) -> Ended | None:
        """Return how an attempt ended; None if anything of it still runs."""
        late_s = time.monotonic() - running.overdue_at
        if running.supervisor.alive():
            if late_s >= 0.0:  # something keeps stopping the supervisor: its ranks die with it
                running.supervisor.send(signal.SIGKILL)
            elif late_s >= -LATE_S:
                running.supervisor.send(signal.SIGCONT)  # a job may have sent it SIGSTOP
            self._note_unended(running)
            return None
        what, files = running.what, running.files
        ended = _result(what, files)
        if ended is None:
            # The supervisor was killed. Its ranks died with it, but perhaps not all their children.
            left = _kill_left(running)
            if left is not None:
                self._left[what.job_id] = left
                return None
            ended = Ended(what.job_id, what.attempt, None, "timed out" if late_s >= 0.0 else "lost")
        # All but the result, which may be read again.
        for path in (files.launch, files.pid, files.stop, files.signal, files.reserve):
            io.remove(path)
        if self._running.pop(what.job_id, None) is not None:
            self._slots.release(what)
        for kept in (self._left, self._ending):
            kept.pop(what.job_id, None)
        return ended

    def _note_unended(self, running: _Running) -> None:
        """Note what a supervisor cannot end: processes that wait for a device, for example."""
        job_id, now_s = running.what.job_id, time.monotonic()
        if now_s >= self._ending.get(job_id, running.overdue_at - LATE_S + LOOK_S):
            self._ending[job_id] = now_s + LOOK_S
            own = command_of(running.supervisor.pid)  # its log writer has the same
            below = descendants(running.supervisor.pid)
            self._left[job_id] = sorted(pid for pid in below if command_of(pid) != own)


def _kill_left(running: _Running) -> list[int] | None:
    """Kill what is left of an attempt whose supervisor was killed, and return it; None if nothing is left.

    With a control group it is all that is in it. Otherwise it is what was started with the attempt's variable and
    still has it, and what still writes to its logs.
    """
    match io.read(running.files.pid):
        case {"groups": list(folders)}:
            groups = AttemptGroups.read(folders)
            if groups.whole is not None and not groups.whole.is_empty:
                left = groups.whole.pids  # those that are ending already are in it, but not listed
                groups.whole.kill()
                return left
            groups.remove()
    left = sorted({*carrying(LAUNCH, running.token), *writing_to_pipes(running.what.log_dir.absolute())})
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return left or None


def _ask_to_end(files: AttemptFiles, grace_s: float, send: Callable[[int], None]) -> None:
    """Signal a supervisor to end its attempt within a grace period."""
    with contextlib.suppress(OSError):  # on a full disk the default grace period applies
        io.write(files.stop, grace_s)
    send(signal.SIGTERM)
    send(signal.SIGCONT)  # a job may have sent it SIGSTOP


def _result(what: Launch, files: AttemptFiles) -> Ended | None:
    """Read how an attempt ended; None if its supervisor has not written that, or the file is invalid."""
    match io.read(files.result):
        case {"exit_code": int() | None as exit_code, "reason": str(reason), **rest} if reason in get_args(Reason):
            detail = str(rest.get("detail", ""))
            return Ended(what.job_id, what.attempt, exit_code, cast("Reason", reason), detail)
    return None


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


def _make_folder(folder: Path, mode: int) -> None:
    """Create a folder and its parents."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, mode)
    folder.mkdir(mode=mode, exist_ok=True)
    folder.chmod(mode)  # whatever the umask is
