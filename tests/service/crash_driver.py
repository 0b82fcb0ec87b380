"""Runs a service in a child that is killed again and again: python crash_driver.py DATABASE FOLDER JOBS KILLS."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.service.reports import reporting

from cranny.backends.local import LocalBackend
from cranny.model.cluster import Cluster
from cranny.model.validate import counted
from cranny.service.scheduler import FIRST_SETTING
from cranny.service.service import Service
from cranny.service.store import EventStore
from cranny.service.warmup import start_warmup

CLUSTER = Cluster.fat_tree(2, 2, 8)


def load(database: str) -> None:
    """Load what a service loads when it starts, once for all that are forked, so that their lives are short."""
    EventStore(database).close()
    start_warmup(FIRST_SETTING, CLUSTER).result()


def submit(service: Service, reports: Path, accepted: int, number: int, **spec: Any) -> None:
    """Submit a job with a key of its own, and write to a file that it was accepted."""
    key = f"key-{number}"
    sleep_s = 0.15 if number % 8 else 1.0  # the latter outlive services however slow these are
    wanted = reporting(reports, 1 + number % 3, sleep_s=sleep_s, **spec)
    record, _ = service.submit("ann", wanted, key).result(60)
    os.write(accepted, f"{key} {record.id}\n".encode())


def life(database: str, folder: Path, jobs: int, started: int, *, last: bool) -> None:
    """Be the service: take the jobs that were not accepted yet and run, in the last life until all are over."""
    service = Service(EventStore(database), LocalBackend(CLUSTER, ()), folder)
    service.start()
    os.write(started, b"!")
    accepted = os.open(folder / "accepted", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    known = {key for _, key in service.scheduler.records.keys}
    for number in range(jobs):
        if f"key-{number}" not in known:
            submit(service, folder / "reports", accepted, number)
    parent = os.getppid()  # if it is gone, nothing would kill us any more
    while os.getppid() == parent:
        if last and all(record.over for record in service.scheduler.records.jobs.values()):
            break
        time.sleep(0.02)
    service.close()


def main(database: str, folder: Path, jobs: int, kills: int) -> None:
    """Kill the service until it was killed often enough, then let it finish."""
    load(database)
    rng = random.Random(7)  # noqa: S311 - moments to kill, not secrets
    killed = 0
    while True:
        heard, started = os.pipe()
        child = os.fork()
        if child == 0:
            # A share in each life, so that kills also come between submissions, to the very last.
            life(database, folder, jobs * (killed + 1) // (kills + 1), started, last=killed >= kills)
            os._exit(0)
        os.close(started)
        if killed >= kills:
            _, status = os.waitpid(child, 0)
            if status:
                sys.exit("the service failed by itself")
            break
        if killed % 4:  # else it may also come while the service starts
            os.read(heard, 1)
        time.sleep(rng.uniform(0.0, 0.3))
        os.close(heard)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"the service failed by itself after {counted(killed, 'kill')}")
        killed += 1
    sys.stdout.write(json.dumps({"kills": killed}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
