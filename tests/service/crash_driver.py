"""Runs a service in a child that is killed again and again: python crash_driver.py DATABASE FOLDER JOBS KILLS."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from tests.service.reports import reporting

from cranny.backends.local import Local
from cranny.model.cluster import Cluster
from cranny.service.desk import Desk
from cranny.service.limits import Limits
from cranny.service.loop import Service
from cranny.service.store import Store

CLUSTER = Cluster.fat_tree(2, 2, 8)


def life(database: str, folder: Path, jobs: int, started: int) -> None:
    """Be the service: take the jobs that were not accepted yet, and run until all are over."""
    service = Service(Store(database), Local(CLUSTER, ()), folder)
    service.start()
    os.write(started, b"!")
    accepted = os.open(folder / "accepted", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    known = {key for _, key in service.desk.ledger.keys}
    # A few at a time, so that kills also come between submissions.
    for number in range(jobs):
        key = f"key-{number}"
        if key not in known:
            spec = reporting(folder / "reports", 1 + number % 3, sleep_s=0.15)
            record, _ = service.submit("ann", spec, key).result(60)
            os.write(accepted, f"{key} {record.id}\n".encode())
            if number % 10 == 0:
                time.sleep(0.02)
    while not all(record.over for record in service.desk.ledger.jobs.values()):
        time.sleep(0.02)
    service.close()


def main(database: str, folder: Path, jobs: int, kills: int) -> None:
    """Kill the service until it was killed often enough, then let it finish."""
    # What a service loads when it starts is loaded once here, so that its lives are short.
    Desk(CLUSTER, "run", Limits(), lambda _: None).set_policy({"name": "titan"}, "root", 0.0)
    rng = random.Random(7)  # noqa: S311 - moments to kill, not secrets
    killed = 0
    while True:
        heard, started = os.pipe()
        child = os.fork()
        if child == 0:
            life(database, folder, jobs, started)
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
            sys.exit(f"the run was over after {killed} kills")
        killed += 1
    sys.stdout.write(json.dumps({"kills": killed}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
