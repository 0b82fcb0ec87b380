"""Snapshots: a service that starts from one stands where one stands that has read the whole log."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.examples import examples
from tests.reference.invariants import check
from tests.service.conftest import Serve, Start, until
from tests.service.standing import standing
from tests.service.test_rebuild import CLUSTER, happen, happenings

from cranny.backends.fake import FakeProcesses, FakeRun
from cranny.core.engine import Engine
from cranny.model.errors import CrannyError
from cranny.service import rebuild, snapshot_writer
from cranny.service.engines import replay
from cranny.service.event_chain import EventRow
from cranny.service.job_records import JobRecords
from cranny.service.limits import Limits
from cranny.service.log_check import verify_log
from cranny.service.log_snapshot import kept_rows, known_now, latest, take
from cranny.service.scheduler import Mode, Scheduler
from cranny.service.store import EventStore
from cranny.service.writer_lock import LogIntegrityError

LIMITS = Limits(recent_jobs=2)


def snapshot(scheduler: Scheduler, store: EventStore) -> None:
    """Take a snapshot of where a scheduler is, and let an event confirm it."""
    store.append(scheduler.rows)
    scheduler.rows.clear()
    head = store.head
    assert head is not None
    known = json.loads(json.dumps(known_now(scheduler.engine, scheduler.records, scheduler.history)))
    digest = take(store, head, known, frozenset(scheduler.records.jobs))
    scheduler.log("snapshot", None, {"through": head.seq, "digest": digest}, scheduler.records.last_s)


@settings(max_examples=examples(40))
@given(
    st.lists(happenings, max_size=40),
    st.lists(st.integers(0, 40), min_size=1, max_size=3),
    st.sampled_from(["run", "recommend"]),
    st.sampled_from(["titan", "cranny"]),
)
def test_a_snapshot_and_what_came_after_it_give_back_what_was(
    course: list[tuple[str, Any]], at: list[int], mode: Mode, first: str
) -> None:
    with TemporaryDirectory() as folder:
        store = EventStore(str(Path(folder) / "log.db"))
        live = Scheduler(CLUSTER, mode, LIMITS)
        live.open(0.0)
        live.set_policy({"name": first}, "root", 0.0)
        for number, (what, value) in enumerate(course):
            if number in at:
                snapshot(live, store)
            try:
                happen(live, what, value, 1_000.0 * number)
            except CrannyError:
                continue
        if live.rows:
            store.append(live.rows)
        found = latest(store)
        assert (found is not None) == any(each < len(course) for each in at)
        again = Scheduler(CLUSTER, mode, LIMITS)
        again.restore(store)
        check(again.engine.state)
        assert standing(again) == standing(live)
        assert again.records.snapshot_seq == live.records.snapshot_seq
        assert again.records.submitted == live.records.submitted
        assert sum(record.over for record in live.records.jobs.values()) <= LIMITS.recent_jobs
        assert verify_log(store).problem == ""
        store.close()


def finished(start: Start, jobs: int, **settings: Any) -> Any:
    """Return a service that has run so many jobs, of which it remembers two."""
    done = start(course=lambda _: FakeRun(run_s=0.0), limits=LIMITS, **settings)
    for number in range(jobs):
        done.until(done.submit(key=f"key-{number}", name="same"), "done")
    return done


def test_a_service_takes_snapshots_and_starts_from_them(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_writer, "EVENTS", 20)
    first = finished(start, 8)
    until(lambda: first.service.scheduler.records.snapshot_seq > 0)
    assert list(first.service.scheduler.records.jobs) == ["job-7", "job-8"]
    long = first.submit(duration_s=1e6)
    first.service.close()
    read: list[int] = []

    def noted(row: EventRow, engine: Engine, records: JobRecords) -> Engine:
        read.append(row.seq)
        return replay(row, engine, records)

    monkeypatch.setattr(rebuild, "replay", noted)
    second = start(limits=LIMITS, processes=first.processes)
    assert read[0] > 20
    assert second.service.scheduler.records.submitted == 9
    assert second.service.scheduler.records.counts["done"] in {8, 9}
    assert second.submit(key="new") == "job-10"
    assert second.submit(key="new") == "job-10"
    assert long == "job-9"


def test_a_job_that_is_no_longer_in_memory_is_found_in_the_log(serve: Serve) -> None:
    site = serve(course=lambda _: FakeRun(run_s=0.0), limits=LIMITS)
    running = site.running
    for number in range(4):
        running.until(running.submit(key=f"key-{number}"), "done")
    with site.client("ann") as ann, site.client("bob") as bob:
        listed = ann.get("/api/v1/jobs").json()
        assert [each["id"] for each in listed["jobs"]] == ["job-3", "job-4"]
        assert [each["id"] for each in ann.get("/api/v1/jobs?newest=1").json()["jobs"]] == ["job-4", "job-3"]
        assert [each["id"] for each in ann.get("/api/v1/jobs?after=job-1").json()["jobs"]] == ["job-3", "job-4"]
        old = ann.get("/api/v1/jobs/job-1").json()
        assert (old["id"], old["status"], old["user"]) == ("job-1", "done", "ann")
        assert ann.get("/api/v1/jobs/job-1/explain").status_code == 200
        assert ann.get("/api/v1/jobs/job-1/logs").status_code == 200
        assert ann.post("/api/v1/jobs/job-1/cancel").status_code == 409
        assert bob.get("/api/v1/jobs/job-1").status_code == 403
        assert ann.get("/api/v1/jobs/job-5").status_code == 404
        again = ann.post(
            "/api/v1/jobs", json={"command": ["true"], "gpus": 1}, headers={"Idempotency-Key": "key-0"}
        )
        assert (again.status_code, again.json()["id"]) == (200, "job-1")  # it is not run twice
        other = ann.post("/api/v1/jobs", json={"command": ["no"], "gpus": 1}, headers={"Idempotency-Key": "key-0"})
        assert other.status_code == 409
        stream = bob.get("/api/v1/events?follow=0&after=0").text
        assert '"kind": "placed", "job": "job-1"}' in stream  # of others only that something happened


@pytest.mark.parametrize(
    ("attack", "problem"),
    [
        ("update cranny_snapshots set body = replace(body, 'ann', 'eve')", ""),
        ("delete from cranny_snapshots", ""),
        ("update cranny_snapshots set hash = 'x'", "does not match its hash"),
    ],
)
def test_an_altered_snapshot_is_not_believed(attack: str, problem: str, tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    live = Scheduler(CLUSTER, "run", LIMITS)
    live.open(0.0)
    live.set_policy({"name": "titan"}, "root", 0.0)
    live.submit("ann", {"command": ["true"], "gpus": 1}, None, 1.0)
    snapshot(live, store)
    live.submit("bob", {"command": ["true"], "gpus": 1}, None, 2.0)
    store.append(live.rows)
    with store.engine.begin() as connection:
        connection.execute(text(attack))
    again = Scheduler(CLUSTER, "run", LIMITS)
    if problem:
        with pytest.raises(LogIntegrityError, match=problem):
            again.restore(store)
    else:  # the whole log is there, and is read
        assert verify_log(store).problem == (
            "" if "delete" in attack else "the snapshot of the event log at event 4 was altered"
        )
        again.restore(store)
        assert standing(again) == standing(live)
    store.close()


def test_a_snapshot_keeps_what_held_when_its_jobs_began_and_little_else(tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    live = Scheduler(CLUSTER, "run", LIMITS)
    for number in range(5):
        live.open(float(number))
        live.switch({"name": "titan"}, "root", float(number))
        live.drain(0, "root", float(number))
        live.drain(number % 4, "root", float(number))
        live.resume(0, "root", float(number))
    live.submit("ann", {"command": ["true"], "gpus": 1}, None, 9.0)
    live.open(10.0)
    live.open(11.0)
    store.append(live.rows)
    kept = kept_rows(store.stored(), {"job-1"})
    assert [row.kind for row in kept] == ["opened", "opened", "policy", "submitted", "placed"]
    assert [row.kind for row in kept_rows(store.stored(), ())] == ["opened", "policy", "opened"]
    store.close()


def test_jobs_of_an_earlier_service_outlive_its_memory(start: Start) -> None:
    processes = FakeProcesses()
    first = start(processes=processes, limits=LIMITS)
    kept = [first.submit() for _ in range(4)]
    for job in kept:
        first.until(job, "running")
    first.service.close()
    second = start(processes=processes, limits=LIMITS)
    assert [second.status(job) for job in kept] == ["running"] * 4
