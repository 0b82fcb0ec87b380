"""Disk full and database locked: a clear error, and nothing accepted that is not stored."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import event
from tests.service.conftest import Serve, Start, until
from tests.service.standing import standing

from cranny.service import database
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore
from cranny.service.writer_lock import StoreError

JOB = {"command": ["true"], "gpus": 1}


def same_as_the_log(running: "object") -> None:
    service = running.service  # type: ignore[attr-defined]
    again = Scheduler(service.scheduler.cluster, "run", Limits())
    with service.lock:
        again.restore(service.store)
        assert standing(again) == standing(service.scheduler)


def test_a_locked_database_refuses_jobs_and_then_takes_them(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_MS", 100)
    site = serve()
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    with site.client("ann") as ann:
        other.execute("begin immediate")
        answer = ann.post("/api/v1/jobs", json=JOB)
        assert answer.status_code == 503
        assert answer.json()["detail"] == "the event log cannot be written: database is locked"
        assert ann.get("/api/v1/jobs").json()["total"] == 0
        other.execute("rollback")
        other.close()
        assert ann.post("/api/v1/jobs", json=JOB).json()["id"] == "job-1"
    site.running.until("job-1", "running")
    same_as_the_log(site.running)


def test_a_full_disk_refuses_jobs_and_what_runs_is_not_forgotten(start: Start) -> None:
    running = start(real=True)
    service = running.service
    job_id = running.submit(command=["sleep", "0.3"])
    running.until(job_id, "running")
    full = True

    def no_more_pages(connection: sqlite3.Connection, _record: object, _proxy: object) -> None:
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages if full else 1 << 30}")

    event.listen(service.store.engine, "checkout", no_more_pages)
    big = {"command": ["true", "x" * 30_000], "gpus": 1}
    asked = [service.submit("ann", big) for _ in range(3)]
    with pytest.raises(StoreError, match="disk is full"):
        [future.result(60) for future in asked]
    kept = len(service.scheduler.records.jobs)
    same_as_the_log(running)
    full = False
    last = running.submit()
    assert last == f"job-{kept + 1}"
    running.until(job_id, "done")
    running.until(last, "done")
    same_as_the_log(running)


def test_a_policy_that_errs_takes_nothing_down(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    from cranny.core.snapshot import Snapshot
    from cranny.model.job import Job
    from cranny.model.placement import Placement
    from cranny.policies.best_fit import BestFit
    from cranny.service.scheduler import PolicyError

    running = start(policy={"name": "best-fit"})
    first = running.submit()
    right = BestFit.place

    def wrong(self: BestFit, job: Job, view: Snapshot) -> Placement | None:
        return Placement((0,) * 99) if view.running else right(self, job, view)

    monkeypatch.setattr(BestFit, "place", wrong)
    with pytest.raises(PolicyError, match="best-fit"):
        running.submit()
    same_as_the_log(running)
    service = running.service
    service.call(lambda now_s: service.scheduler.set_policy({"name": "titan"}, "root", now_s)).result(60)
    assert running.submit() == "job-2"
    until(lambda: running.status(first) == "running")


def test_a_second_service_on_the_same_log_is_refused(start: Start, tmp_path: Path, postgres: str) -> None:
    start(database=postgres)
    with pytest.raises(StoreError, match="another cranny serve is using it"):
        start(database=postgres)
    other = EventStore(str(tmp_path / "other.db"))
    other.acquire()
    # Locks of files are between processes, so another one must try.
    import subprocess
    import sys

    code = f"from cranny.service.store import EventStore; EventStore({str(tmp_path / 'other.db')!r}).acquire()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "another cranny serve is using it" in ran.stderr
    other.close()
