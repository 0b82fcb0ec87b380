"""Faults at random against services that run jobs: `python -m tests.chaos --seconds 600 --seed 1`.

In rounds of a minute, alternately a service on SQLite, and a service with a standby on PostgreSQL. After each
round all its jobs are waited for and everything is checked; the first round in which something does not hold is
the last. Root is needed for a disk that can be filled. Processes are bounded by the jobs that are open at a time,
and the disk by its size and by the length of a round.
"""

import argparse
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.checks import Check, check_all
from tests.chaos.faults import Target, do_fault
from tests.chaos.served import RoundFiles, Services
from tests.service.conftest import end_jobs
from tests.service.crash_driver import load
from tests.service.postgres import Postgres, postgres_binaries, running_postgres
from tests.service.reports import lines
from tests.service.small_disk import small_disk

ROUND_S = 60.0
DISK_MB = 128
STUCK_S = 300.0  # in which no job has started or ended
MAX_SHOWN = 5  # violations of a kind


def main() -> int:
    """Run rounds until the time is over; return 1 if anything did not hold."""
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended first
    rounds = max(2, round(asked.seconds / ROUND_S))
    faults, checks = Counter[str](), dict[str, Check]()
    console = Console(stderr=True, width=120)
    console.print(f"seed {asked.seed}")
    end = time.monotonic() + asked.seconds
    with _postgres() as postgres:
        for number in range(rounds):
            seconds = max(1.0, (end - time.monotonic()) / (rounds - number))
            used = postgres if number % 2 else None
            target, found = _run_round(f"{asked.seed} {number}", seconds, used)
            faults.update(target.counts)
            for each in found:
                _, checked, violations = checks.get(each.name, Check(each.name, 0, []))
                checks[each.name] = Check(each.name, checked + each.checked, violations + each.violations)
            where = "SQLite" if used is None else "PostgreSQL, with a standby"
            killed = _kills(target.counts)
            console.print(
                f"round {number + 1} of {rounds}, {where}: {killed} kills, {faults.total()} faults so far"
            )
            if any(each.violations for each in found):
                break
    _show(faults, list(checks.values()))
    return 1 if any(check.violations for check in checks.values()) else 0


def _arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long faults go on")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="which faults are drawn")
    return parser.parse_args()


@contextmanager
def _postgres() -> Iterator[Postgres | None]:
    """Run a PostgreSQL server, where it is installed."""
    if postgres_binaries() is None:
        sys.stderr.write("PostgreSQL is not installed: no crashes of it, and no standby\n")
        yield None
        return
    with running_postgres() as server:
        yield server


def _run_round(seed: str, seconds: float, postgres: Postgres | None) -> tuple[Target, list[Check]]:
    """Do faults for a while, wait for all jobs, and check."""
    folder = Path(tempfile.mkdtemp(prefix="cranny-chaos-"))
    files = RoundFiles(folder / "disk", folder / "reports")
    files.reports.mkdir()
    failed = False
    try:
        with small_disk(files.disk, DISK_MB) as mounted:
            database = str(files.disk / "log.db") if postgres is None else postgres.create_database()
            services = Services(database, files, 1 if postgres is None else 2)
            rng = random.Random(seed)  # noqa: S311 - faults, not secrets
            target = Target(services, files, rng, postgres, mounted)
            try:
                load(database)
                _do_faults(target, seconds)
                checks = [_drain(target), *check_all(target)]
            finally:
                for number in range(services.count):
                    services.kill(number)
                end_jobs(files.disk)
            failed = any(check.violations for check in checks)
            if failed:  # for a closer look
                shutil.copytree(files.disk, folder / "kept", ignore=shutil.ignore_patterns("*.reserve"))
                sys.stderr.write(f"kept: {folder}\n")
    finally:
        if not failed:
            shutil.rmtree(folder)
    return target, checks


def _do_faults(target: Target, seconds: float) -> None:
    """Do faults for a while, on a busy machine until a job was accepted."""
    begin = time.monotonic()
    while time.monotonic() - begin < (seconds if target.files.accepted.exists() else STUCK_S):
        do_fault(target)


def _drain(target: Target) -> Check:
    """Submit no more jobs, and wait until a service says that none is open."""
    services, files = target.services, target.files
    services.clock.set(0.0)
    files.drain.touch()
    known, since = -1, time.monotonic()
    while not services.drained and time.monotonic() - since < STUCK_S:
        services.keep_running()
        written = sum(len(lines(files.reports / name)) for name in ("started", "finished"))
        if written != known:
            known, since = written, time.monotonic()
        time.sleep(0.05)
    stuck = [] if services.drained else [f"no job has started or ended for {STUCK_S:.0f} s"]
    target.counts["service ended by itself, with the reason"] += services.gave_up
    return Check("all jobs end after the last fault", len(lines(files.accepted)), stuck)


def _kills(faults: Counter[str]) -> int:
    return sum(times for name, times in faults.items() if name.endswith("killed"))


def _show(faults: Counter[str], checks: list[Check]) -> None:
    """Print what was done, and what held."""
    console = Console(width=120)
    table = Table("fault", "times", box=None)
    for name, times in sorted(faults.items()):
        table.add_row(name, f"{times:,}")
    table.add_row("kills in all", f"{_kills(faults):,}")
    console.print(table)
    table = Table("what must hold", "checked", "violations", "result", box=None)
    for check in checks:
        verdict = "VIOLATED" if check.violations else "holds"
        table.add_row(check.name, f"{check.checked:,}", f"{len(check.violations):,}", verdict)
    console.print(table)
    for check in checks:
        for text in check.violations[:MAX_SHOWN]:
            console.print(f"{check.name}: {text}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
