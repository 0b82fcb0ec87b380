"""The services of one event log, as processes that can be killed, stopped and started at any time."""

import mmap
import os
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cranny.backends.local import LocalBackend
from cranny.service.clock import wall_clock
from cranny.service.service import Service
from cranny.service.standby import open_as_writer
from cranny.service.writer_lock import StoreError
from tests.service.crash_driver import CLUSTER, submit
from tests.service.reports import lines

MAX_OPEN = 16  # jobs that wait or run: this bounds the processes
TIME_LIMIT_S = 3_600.0  # of jobs; clocks jump further than that
GAVE_UP = 3  # exit code of a service that ended with a reason: another has its log, or it cannot be opened
PAUSE_S = 0.02


class SharedClock:
    """A wall clock that is set for all services at once, also for those that run."""

    def __init__(self) -> None:
        self._ahead = mmap.mmap(-1, 8)
        self.set(0.0)

    def set(self, ahead_s: float) -> None:
        """Set it ahead of the system's clock."""
        self._ahead[:] = struct.pack("d", ahead_s)

    def __call__(self) -> float:
        """Return the seconds since the epoch."""
        ahead: tuple[float] = struct.unpack("d", self._ahead[:])
        return wall_clock() + ahead[0]


class RoundFiles(NamedTuple):
    """Where services and jobs write."""

    disk: Path  # the folders of services, and the log if it is SQLite's; this disk is filled
    reports: Path  # what is checked; this one never is

    @property
    def accepted(self) -> Path:
        """The jobs that were accepted, by their keys."""
        return self.reports / "accepted"

    @property
    def serving(self) -> Path:
        """The processes that have become the writer of the log."""
        return self.reports / "serving"

    @property
    def drain(self) -> Path:
        """Exists once no more jobs are to be submitted."""
        return self.reports / "drain"

    @property
    def errors(self) -> Path:
        """What services write to their standard error stream."""
        return self.reports / "errors"


def serve(database: str, files: RoundFiles, number: int, clock: Callable[[], float], parent: int) -> int:
    """Be a service that submits jobs to itself: until the parent has ended, or no job is open when it drains."""
    folder = files.disk / f"service-{number}"
    folder.mkdir(exist_ok=True)
    service = Service(open_as_writer(database, lambda _: None), LocalBackend(CLUSTER, ()), folder, clock=clock)
    service.start()
    with files.serving.open("a") as serving:
        serving.write(f"{os.getpid()}\n")
    accepted = os.open(files.accepted, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # The last ones may have been accepted although that was not written: the same keys are sent again then.
    following = 1 + max((int(line.split()[0].removeprefix("key-")) for line in lines(files.accepted)), default=-1)
    while os.getppid() == parent and not service.failure:
        with service.lock:
            open_jobs = service.scheduler.records.open_jobs.total
        if files.drain.exists():
            if not open_jobs:
                service.close()
                return 0
        elif open_jobs < MAX_OPEN:
            try:
                submit(service, files.reports, accepted, following, time_limit_s=TIME_LIMIT_S)
                following += 1
                continue
            except (StoreError, TimeoutError):
                # No database, no space, no longer the writer, or stopped for a minute: a client would try again.
                pass
        time.sleep(PAUSE_S)
    sys.stderr.write(f"{service.failure}\n")
    return GAVE_UP


@dataclass
class Services:
    """The processes of one or two services on the same log."""

    database: str
    files: RoundFiles
    count: int
    clock: SharedClock = field(default_factory=SharedClock)
    pids: dict[int, int] = field(default_factory=dict)  # by the number of the service
    drained: bool = False  # one has ended since no job was open
    gave_up: int = 0
    failed: list[int] = field(default_factory=list)  # exit codes that a service must not have

    def keep_running(self) -> None:
        """Start the services that do not run."""
        for number in range(self.count):
            if not self.runs(number):
                self.pids[number] = self._fork(number)

    def runs(self, number: int) -> bool:
        """Return whether a service runs; note how it ended if it did by itself."""
        pid = self.pids.get(number)
        if pid is None:
            return False
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return True
        del self.pids[number]
        code = os.waitstatus_to_exitcode(status)
        self.drained |= code == 0
        self.gave_up += code == GAVE_UP
        if code not in {0, GAVE_UP}:
            self.failed.append(code)
        return False

    def kill(self, number: int) -> bool:
        """Kill a service with SIGKILL; return whether it still ran."""
        if not self.runs(number):
            return False
        pid = self.pids.pop(number)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        return os.WIFSIGNALED(status)

    def send(self, number: int, signal_number: int) -> None:
        """Send a signal to a service."""
        if self.runs(number):
            os.kill(self.pids[number], signal_number)

    @property
    def serving(self) -> list[int]:
        """The services that run and have become the writer of the log."""
        known = set(lines(self.files.serving))
        return [number for number, pid in self.pids.items() if str(pid) in known]

    def _fork(self, number: int) -> int:
        sys.stdout.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            errors = os.open(self.files.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(errors, 2)
            code = serve(self.database, self.files, number, self.clock, parent)
        except StoreError as error:  # as `cranny serve` ends, in one line
            sys.stderr.write(f"{error}\n")
            code = GAVE_UP
        except BaseException:  # noqa: BLE001 - a forked process must not go on with what its parent does
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
