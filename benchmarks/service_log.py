"""Seconds until a service is ready, and its memory, with a log of a million jobs that are over."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from benchmarks.measure import Budget, Measured
from cranny.model.cluster import Cluster
from cranny.service.engines import replay
from cranny.service.event_chain import EventRow
from cranny.service.limits import Limits
from cranny.service.log_schema import SNAPSHOTS
from cranny.service.log_snapshot import LogSnapshot, kept_rows, known_now
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore
from cranny.service.utilization import UtilizationHistory

JOBS = 1_000_000
AFTER = 490  # jobs that came after the snapshot: one event more, and the next would be due
CLUSTER = "1x4x8"
BATCH = 5_000
WAIT_S = 600.0


def run() -> Measured:
    """Write a log, start `cranny serve` with it, and ask until it is ready."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        events = write_log(Path(folder), JOBS, min(AFTER, JOBS // 2))
        written_s = time.perf_counter() - began
        ready_s, cpu_s, rss_mb = _start(Path(folder))
    metrics = {
        "ready_s": ready_s,
        "cpu_s": cpu_s,
        "rss_mb": rss_mb,
        "jobs": JOBS,
        "events": events,
        "written_s": written_s,
    }
    return Measured("service-log", metrics, [Budget("ready_s", ready_s, 3.0), Budget("rss_mb", rss_mb, 250.0)])


def events_of(number: int, seq: int) -> Iterator[EventRow]:
    """Yield the four events of a job on one GPU that is over."""
    job, at_s = f"job-{number}", float(number)
    spec = {"command": ["python", "train.py", "--epochs", "3"], "gpus": 1, "model": "resnet50", "duration_s": 3600}
    user = f"user-{number % 50}"
    yield EventRow(seq, at_s, "submitted", job, {"user": user, "spec": spec, "key": None, "digest": "0" * 64})
    where = {"machines": [number % 4], "spare": [], "gpus": [number % 8], "server": None, "aggregate": True}
    body = {"attempt": 1, "placement": where, "gpus": [number % 8], "why": "fits on one machine", "facts": {}}
    yield EventRow(seq + 1, at_s, "placed", job, body)
    yield EventRow(seq + 2, at_s, "launched", job, {"attempt": 1})
    ended = {"attempt": 1, "outcome": "finished", "exit_code": 0, "last": None, "status": "done", "counts": 0}
    yield EventRow(seq + 3, at_s + 0.5, "ended", job, {**ended, "reason": ""})


def write_log(folder: Path, jobs: int, after: int) -> int:
    """Write the log of so many jobs, with a snapshot before the last ones; return how many events it has."""
    store, scheduler = EventStore(str(folder / "log.db")), Scheduler(Cluster.fat_tree(1, 4, 8), "run", Limits())
    scheduler.open(0.0)
    scheduler.switch({"name": "cranny"}, "bench", 0.0)
    rows, seq = list(scheduler.rows), len(scheduler.rows)
    recent = scheduler.records.recent_jobs
    for number in range(1, jobs + 1):
        found = list(events_of(number, seq + 1))
        seq += len(found)
        rows += found
        if jobs - after - recent < number <= jobs - after:
            for row in found:
                replay(row, scheduler.engine, scheduler.records)
        if len(rows) >= BATCH:
            store.append(rows)
            rows.clear()
        if number == jobs - after:
            store.append(rows)
            rows = [EventRow(seq + 1, float(number), "snapshot", None, _snapshot(store, scheduler, number))]
            seq += 1
    store.append(rows)
    store.close()
    return seq


def _snapshot(store: EventStore, scheduler: Scheduler, jobs: int) -> dict[str, object]:
    """Store the snapshot that a service would have taken; return the body of the event that confirms it."""
    records, head = scheduler.records, store.head
    if head is None:
        raise ValueError("the log is empty")
    records.submitted, records.counts["done"] = jobs, jobs
    known = known_now(scheduler.engine, records, UtilizationHistory())
    rows = [*store.stored(0, 2), *store.stored(max(2, head.seq - 5 * records.recent_jobs))]
    text = LogSnapshot(head, known, kept_rows(rows, records.jobs)).text()
    store.write(sa.insert(SNAPSHOTS).values(seq=head.seq, hash=head.hash, body=text))
    return {"through": head.seq, "digest": hashlib.sha256(text.encode()).hexdigest()}


def _start(folder: Path) -> tuple[float, float, float]:
    """Return the seconds until a service is ready, those of its processors, and the MB that it has then."""
    argv = [
        sys.executable,
        "-m",
        "cranny.cli",
        "serve",
        "--cluster",
        CLUSTER,
        "--folder",
        str(folder),
        "--port",
        "0",
    ]
    argv += ["--jobs-as-root", "--json"]
    began = time.perf_counter()
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment) as process:  # noqa: S603
        try:
            text = b""
            while (
                process.stdout is not None
                and b"}" not in text
                and (more := os.read(process.stdout.fileno(), 4096))
            ):
                text += more
            url = json.loads(text)["url"]
            while not is_ready(url) and time.perf_counter() < began + WAIT_S:
                time.sleep(0.05)  # each question costs the service a millisecond
            ready_s = time.perf_counter() - began
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            used = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
        finally:
            process.terminate()
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    return ready_s, sum(map(int, used)) / os.sysconf("SC_CLK_TCK"), int(kilobytes) / 1024


def is_ready(url: str) -> bool:
    """Return whether a service answers, and says that it is ready."""
    with suppress(urllib.error.URLError), urllib.request.urlopen(f"{url}/readyz") as answer:  # noqa: S310 - our own
        return bool(answer.status == 200)
    return False
