"""What is done to services, to the supervisors of their jobs, to the database, the disk and the clock."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from cranny.backends.attempt_files import read
from cranny.backends.process import Process
from tests.chaos.served import RoundFiles, Services
from tests.service.postgres import Postgres
from tests.service.small_disk import fill

PAUSE_S, LONG_PAUSE_S = 0.3, 1.5  # at most; one of ten is long, so that many jobs end
WAIT_S = 60.0  # for a service that is to serve; on a busy machine the next fault comes without
MAX_KILLS_OF_A_JOB = 2  # after four lost attempts in a row a job is over
JUMPS_S = (-86_400.0, -3_700.0, -90.0, 90.0, 3_700.0, 2 * 86_400.0, 366 * 86_400.0)


class Supervisor(NamedTuple):
    """A supervisor that runs, and the job that it runs."""

    job: str
    process: Process


@dataclass
class Target:
    """What faults are done to, and how many were."""

    services: Services
    files: RoundFiles
    rng: random.Random
    postgres: Postgres | None = None
    has_small_disk: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    supervisors_killed: Counter[str] = field(default_factory=Counter)  # by job

    def pause(self) -> None:
        """Let some time pass."""
        time.sleep(self.rng.uniform(0.0, PAUSE_S if self.rng.random() < 0.9 else LONG_PAUSE_S))

    def pause_or_kill(self) -> None:
        """Let some time pass, in which a service may be killed and started again."""
        self.pause()
        if self.rng.random() < 0.5:
            self.kill_any()
            self.services.keep_running()
            self.pause()

    def kill_any(self) -> None:
        """Kill one of the services."""
        number = self.rng.randrange(self.services.count)
        waits = self.services.count > 1 and number not in self.services.serving
        self.counts["standby killed" if waits else "service killed"] += self.services.kill(number)

    def await_serving(self) -> None:
        """Wait until one of the services serves."""
        end = time.monotonic() + WAIT_S
        while not self.services.serving and time.monotonic() < end:
            self.services.keep_running()
            time.sleep(0.01)

    def supervisors(self) -> list[Supervisor]:
        """Return the supervisors that run and whose jobs may lose another attempt."""
        found = []
        for path in sorted(self.files.disk.glob("service-*/jobs/*/*/attempt-*/attempt-*.pid")):
            job = path.parent.parent.name
            try:
                known = read(path)
            except OSError:
                continue
            if known is not None and self.supervisors_killed[job] < MAX_KILLS_OF_A_JOB:
                process = Process(known["pid"], known["started"])
                if process.alive():
                    found.append(Supervisor(job, process))
        return found


def kill_service(target: Target) -> None:
    """Kill a service at any moment of its life."""
    target.pause()
    target.kill_any()


def kill_all_services(target: Target) -> None:
    """Kill the service and its standby at once."""
    for number in range(target.services.count):
        target.counts["service and standby killed"] += target.services.kill(number)


def stop_service(target: Target) -> None:
    """Stop a service for a while; then it goes on, or is killed."""
    number = target.rng.randrange(target.services.count)
    target.services.send(number, signal.SIGSTOP)
    target.pause()
    if target.rng.random() < 0.5:
        target.counts["stopped service killed"] += target.services.kill(number)
    else:
        target.services.send(number, signal.SIGCONT)
    target.counts["service stopped"] += 1


def kill_supervisor(target: Target) -> None:
    """Kill a supervisor: its job is lost, and starts again."""
    found = target.supervisors()
    if found:
        _kill(target, target.rng.choice(found))
        target.pause_or_kill()


def stop_supervisor(target: Target) -> None:
    """Stop a supervisor for a while; then it goes on, or is killed."""
    found = target.supervisors()
    if not found:
        return
    victim = target.rng.choice(found)
    victim.process.send(signal.SIGSTOP)
    target.counts["supervisor stopped"] += 1
    try:
        target.pause_or_kill()
    finally:
        if target.rng.random() < 0.5:
            _kill(target, victim)
        victim.process.send(signal.SIGCONT)


def _kill(target: Target, victim: Supervisor) -> None:
    target.supervisors_killed[victim.job] += 1
    victim.process.send(signal.SIGKILL)
    target.counts["supervisor killed"] += 1


def crash_database(target: Target) -> None:
    """End the database without a checkpoint, so that it recovers from its log."""
    if target.postgres is None:
        return
    target.postgres.stop("immediate")
    try:
        target.pause_or_kill()
    finally:
        target.postgres.start()
    target.counts["database crashed"] += 1


def stop_service_without_database(target: Target) -> None:
    """Stop the service that serves until it has lost its lock, and let it go on beside its standby."""
    serving = target.services.serving
    if target.postgres is None or not serving:
        return
    target.services.send(serving[0], signal.SIGSTOP)
    try:
        target.postgres.stop("immediate")
        target.postgres.start()
        end = time.monotonic() + WAIT_S
        while target.services.serving == serving and time.monotonic() < end:
            time.sleep(0.05)
        target.pause()
    finally:
        target.services.send(serving[0], signal.SIGCONT)
    target.counts["database crashed"] += 1
    target.counts["stopped service lost its log"] += 1


def fill_disk(target: Target) -> None:
    """Fill the disk for a while."""
    if target.has_small_disk:
        filler = fill(target.files.disk)
        try:
            target.pause_or_kill()
        finally:
            filler.unlink()
        target.counts["disk filled"] += 1


def jump_clock(target: Target) -> None:
    """Set the clock for a while, or until the next jump."""
    target.services.clock.set(target.rng.choice(JUMPS_S))
    target.counts["clock jumped"] += 1
    target.pause_or_kill()
    if target.rng.random() < 0.7:
        target.services.clock.set(0.0)
        target.counts["clock jumped"] += 1


# With how often each is drawn.
FAULTS: dict[Callable[[Target], None], int] = {
    kill_service: 60,
    kill_supervisor: 12,
    stop_supervisor: 6,
    stop_service: 6,
    jump_clock: 6,
    fill_disk: 4,
    crash_database: 4,
    kill_all_services: 4,
    stop_service_without_database: 2,
}


def do_fault(target: Target) -> None:
    """Do the next fault; three times of four a service may come to serve first."""
    target.services.keep_running()
    if target.rng.random() < 0.75:
        target.await_serving()
    target.rng.choices(list(FAULTS), list(FAULTS.values()))[0](target)
