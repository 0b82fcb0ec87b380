"""Whatever goes wrong inside, those who asked are told, and the service goes on or ends with an error."""

import errno
import json
import logging
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.service.conftest import CLUSTER, Serve, Start, until
from tests.service.test_executor import Clock as TurnedClock
from tests.service.test_executor import launch
from tests.service.test_failures import same_as_the_log

from cranny.backends.fake import FakeBackend, FakeProcesses, FakeRun
from cranny.backends.protocol import BackendError, Ended, Launch, Reason
from cranny.cli import client
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError, InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies import TABLE
from cranny.policies.best_fit import BestFit
from cranny.service import database
from cranny.service import store as store_module
from cranny.service import warmup as warm_module
from cranny.service.api import dependencies
from cranny.service.attempt_outcome import MAX_LOST
from cranny.service.auth import Authenticator
from cranny.service.clock import Clock, wall_clock
from cranny.service.engines import complete_setting
from cranny.service.event_chain import EventRow
from cranny.service.executor import AttemptLaunched, Executor, ExecutorReport
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler
from cranny.service.server import ListenAddress, serve
from cranny.service.service import InternalError, Service
from cranny.service.store import EventStore
from cranny.service.warmup import warm
from cranny.service.writer_lock import StoreError

JOB: dict[str, Any] = {"command": ["true"], "gpus": 1}
NO_MORE_FILES = OSError(errno.EMFILE, "Too many open files")


def wrong_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let best-fit fail unexpectedly for jobs of two GPUs, once something runs."""
    right = BestFit.place

    def place(self: BestFit, job: Job, view: Snapshot) -> Placement | None:
        if job.gpus == 2 and view.running:
            raise KeyError("unexpected fault")
        return right(self, job, view)

    monkeypatch.setattr(BestFit, "place", place)


def test_an_unforeseen_error_concerns_only_the_request_that_caused_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = serve(policy={"name": "best-fit"})
    service = site.running.service
    wrong_for_two(monkeypatch)
    first = site.running.submit()
    with service.lock:  # so that all come in one round
        asked = [service.submit("ann", {**JOB, "gpus": gpus}) for gpus in (1, 2, 3)]
    assert asked[0].result(60)[0].status in {"starting", "running"}
    with pytest.raises(InternalError):
        asked[1].result(60)
    assert asked[2].result(60)[0].id == "job-3"
    with site.client("ann") as ann:
        answer = ann.post("/api/v1/jobs", json={**JOB, "gpus": 2})
        assert answer.status_code == 500
        assert answer.headers["content-type"] == "application/problem+json"
        assert "see the server log" in answer.json()["detail"]
        assert ann.get("/readyz").json() == {"ready": True}
    assert any("unexpected fault" in str(record.exc_info) for record in caplog.records)
    site.running.until(first, "running")
    same_as_the_log(site.running)


def test_a_service_that_cannot_read_its_log_again_ends_and_leaves_no_request_waiting(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(policy={"name": "best-fit"})
    service, told = running.service, threading.Event()
    service.on_ended.append(told.set)
    running.submit()
    wrong_for_two(monkeypatch)
    monkeypatch.setattr(Scheduler, "restore", lambda *_: [].pop())
    with pytest.raises(InternalError):
        service.submit("ann", {**JOB, "gpus": 2}).result(60)
    assert told.wait(60)
    assert not service.ready
    assert "cannot be restored from the event log" in service.failure
    with pytest.raises(StoreError, match="not ready"):
        service.submit("ann", JOB).result(60)
    monkeypatch.undo()
    service.close()


class Poor(FakeBackend):
    """A backend that has run out of something, for as long as `trouble` says so."""

    trouble: Exception | None = None

    def _pay(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def launch(self, what: Launch) -> None:
        if self.trouble is not None:
            raise BackendError("job cannot start") from self.trouble
        super().launch(what)

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        self._pay()
        super().stop(job_id, grace_s)

    def poll(self) -> Sequence[Ended]:
        self._pay()
        return super().poll()

    def adopt(self, launches: Sequence[Launch]) -> Sequence[Ended]:
        self._pay()
        return super().adopt(launches)


@pytest.mark.parametrize("short_of", [NO_MORE_FILES, OSError(errno.ENOSPC, "No space left on device")], ids=str)
def test_the_executor_does_later_what_the_system_has_no_means_for_now(
    short_of: OSError, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[ExecutorReport] = []
    clock, processes = TurnedClock(), FakeProcesses()
    backend = Poor(CLUSTER, clock, lambda _: FakeRun(run_s=100.0), processes)
    executor = Executor(backend, reports.extend)
    executor.start()
    executor.launch(launch("a"))
    until(lambda: AttemptLaunched("a", 1) in reports)
    backend.trouble = short_of
    executor.stop("a", 1)
    executor.launch(launch("b", gpu=1))
    time.sleep(0.3)
    assert executor.alive
    assert reports == [AttemptLaunched("a", 1)]
    backend.trouble = None
    until(lambda: Ended("a", 1, -15, "cancelled") in reports and AttemptLaunched("b", 1) in reports)
    executor.close()
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    after = Poor(CLUSTER, clock, lambda _: FakeRun(), processes)
    after.trouble = short_of
    executor = Executor(after, reports.extend)
    executor.start()
    reports.clear()
    executor.adopt([launch("b", gpu=1)], [])
    time.sleep(0.2)
    after.trouble = None
    until(lambda: reports == [AttemptLaunched("b", 1)])
    executor.close()


def test_a_service_whose_executor_dies_ends(tmp_path: Path) -> None:
    backend = Poor(CLUSTER, time.monotonic, lambda _: FakeRun(run_s=1e9))
    service = Service(store_module.EventStore(str(tmp_path / "log.db")), backend, tmp_path)
    service.start()
    record, _ = service.submit("ann", JOB).result(60)
    until(lambda: record.status == "running")

    def break_it(_url: str) -> None:
        backend.trouble = ZeroDivisionError("a fault of the backend")

    with ThreadPoolExecutor(1) as pool:  # as `cranny serve` does, but not in the thread that gets signals
        ending = pool.submit(
            serve, service, Authenticator(service.store, loopback=True), ListenAddress(), break_it
        )
        with pytest.raises(CrannyError, match=r"the service failed: ZeroDivisionError: a fault of the backend"):
            ending.result(60)
    assert not service.ready
    service.close()


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Return what locks the log of a service; what its scheduler holds may not be read again from then on."""

    @contextmanager
    def lock() -> Iterator[None]:
        monkeypatch.setattr(Scheduler, "restore", lambda *_: pytest.fail("nothing was changed"))
        with closing(sqlite3.connect(tmp_path / "log.db", isolation_level=None)) as other:
            other.execute("begin immediate")
            yield
            other.execute("rollback")

    return lock


def test_while_others_write_readers_do_not_wait(
    serve: Serve, locked: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_MS", 600_000)
    site = serve()
    with locked():
        asked = site.running.service.submit("ann", JOB)
        with site.client("ann") as ann:
            assert ann.get("/api/v1/jobs").json()["total"] == 0
        assert not asked.done()
    assert asked.result(60)[0].id == "job-1"


def test_when_others_write_for_too_long_nothing_is_undone(
    serve: Serve, locked: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_MS", 100)
    site = serve()
    with locked(), pytest.raises(StoreError, match="database is locked"):
        site.running.service.submit("ann", JOB).result(60)
    assert site.running.submit() == "job-1"


@dataclass
class Slow:
    """How policies get ready here: not before they may."""

    may: threading.Event = field(default_factory=threading.Event)
    seen: list[str] = field(default_factory=list)

    def __call__(self, setting: dict[str, Any], *_: object, resizable: bool) -> None:
        assert self.may.wait(60)
        self.seen.append(setting["name"] + " for resizable jobs" * resizable)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow()
    monkeypatch.setattr(warm_module, "warm", made)
    monkeypatch.setattr(warm_module, "_known", {})
    yield made
    made.may.set()


def test_a_policy_gets_ready_before_the_service_is_and_before_it_is_switched_to(serve: Serve, slow: Slow) -> None:
    site = serve(policy={"name": "best-fit"}, ready=False)
    service = site.running.service
    with site.client() as root:
        answer = root.get("/readyz")
        assert (answer.status_code, answer.json()["detail"]) == (503, "the policy is warming up")
        asked = service.submit("ann", JOB)
        assert root.get("/api/v1/jobs").json()["total"] == 0  # no other request waits
        assert not asked.done()
        slow.may.set()
        assert asked.result(60)[1]
        assert root.get("/readyz").is_success
        assert root.put("/api/v1/policy", json={"name": "titan"}).json()["name"] == "titan"
    assert slow.seen == ["best-fit", "titan"]


def test_a_policy_gets_ready_for_resizable_jobs_before_the_first_comes(
    serve: Serve, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.may.set()
    site = serve(policy={"name": "best-fit"})
    with site.client() as root:
        assert root.post("/api/v1/jobs", json=JOB).is_success
        assert slow.seen == ["best-fit"]
        monkeypatch.setattr(dependencies, "BEGIN_S", 0.1)
        slow.may.clear()
        answer = root.post("/api/v1/jobs", json={**JOB, "most_gpus": 2})
        assert answer.status_code == 503
        assert answer.json()["detail"] == "policy best-fit is warming up; the request was not accepted, retry"
        slow.may.set()
        until(lambda: root.post("/api/v1/jobs", json={**JOB, "most_gpus": 2}).is_success)
        assert root.put("/api/v1/policy", json={"name": "titan"}).is_success
    assert slow.seen == ["best-fit", "best-fit for resizable jobs", "titan", "titan for resizable jobs"]


def test_who_asks_while_a_policy_gets_ready_is_told_in_time_and_nothing_is_done(
    serve: Serve, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "BEGIN_S", 0.1)
    site = serve(policy={"name": "best-fit"}, ready=False)
    with site.client() as root:
        answer = root.post("/api/v1/jobs", json=JOB)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["detail"] == "the policy is warming up; the request was not accepted, retry"
        slow.may.set()
        until(lambda: site.running.service.ready)
        assert site.running.submit() == "job-1"  # what was taken back is not done later
        slow.may.clear()
        for _ in range(3):
            answer = root.put("/api/v1/policy", json={"name": "titan"})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["detail"] == "policy titan is warming up; the policy was not changed yet, retry"
        assert root.get("/api/v1/policy").json()["name"] == "best-fit"
        slow.may.set()
        until(lambda: root.put("/api/v1/policy", json={"name": "titan"}).is_success)
    assert slow.seen == ["best-fit", "titan"]  # however often it was asked for


def test_a_command_waits_for_a_policy_that_gets_ready(
    serve: Serve, slow: Slow, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dependencies, "BEGIN_S", 0.1)
    monkeypatch.setattr(client, "PAUSE_S", 0.02)
    site = serve(policy={"name": "best-fit"}, ready=False)
    monkeypatch.setenv("CRANNY_SERVER", site.url)
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["ann"])
    (tmp_path / "job.yaml").write_text("command: [a]\ngpus: 1\n")
    wait = client._RetryBudget.wait

    def wait_once(patience: Any, error: client.UnreachableError) -> None:
        wait(patience, error)
        slow.may.set()

    monkeypatch.setattr(client._RetryBudget, "wait", wait_once)
    ran = run("submit", str(tmp_path / "job.yaml"))
    assert ran.code == 0
    assert ran.out in {"job-1 starting on rack0-machine0\n", "job-1 running on rack0-machine0\n"}
    assert ran.err.splitlines() == [
        "cranny: the policy is warming up; the request was not accepted, retry",
        "cranny: retrying for 600 s",
    ]
    with site.client() as root:
        assert root.get("/api/v1/jobs").json()["total"] == 1


@pytest.mark.parametrize("name", TABLE)
def test_every_policy_can_be_got_ready(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for resizable in (False, True):
            warm(complete_setting({"name": name}), CLUSTER, resizable=resizable)
    assert not caplog.records


def test_time_runs_on_when_the_clock_is_set_back() -> None:
    wall, steady = 1_000.0, 0.0
    clock = Clock(lambda: wall, lambda: steady)
    assert clock.now_s() == 1_000.0
    wall += 50
    assert clock.now_s() == 1_050.0
    wall, steady = 1_010.0, 10.0
    assert clock.now_s() == 1_060.0
    wall, steady = 1_100.0, 20.0
    assert clock.now_s() == 1_100.0
    assert clock.now_s(least_s=95_000.0) == 95_000.0  # as after a restart
    steady += 5.0
    assert clock.now_s(least_s=95_000.0) == 95_005.0


def test_a_policy_with_a_period_goes_on_when_the_clock_is_set_back(start: Start) -> None:
    ahead_s = 86_400.0
    running = start(policy={"name": "titan", "period_s": 0.2}, clock=lambda: wall_clock() + ahead_s)
    running.until(running.submit(), "running")
    ahead_s = 0.0
    running.until(running.submit(), "running")
    running.service.close()
    again = start(processes=running.processes)
    again.until(again.submit(), "running")


def test_a_job_that_is_lost_is_started_again_but_not_for_ever() -> None:
    scheduler = Scheduler(CLUSTER, "run", Limits())
    scheduler.open(0.0)
    scheduler.set_policy({"name": "titan"}, "root", 0.0)
    record, _ = scheduler.submit("ann", JOB, None, 0.0)

    def run(outcome: Reason, *, unfinished_secret: bool = True) -> str:
        number = len(record.attempts)
        if unfinished_secret:
            scheduler.attempt_launched(AttemptLaunched(record.id, number), 1.0)
        scheduler.attempt_ended(Ended(record.id, number, None, outcome), 2.0)
        return record.status

    for number in range(MAX_LOST):
        assert run("lost", unfinished_secret=False) == "starting"
        assert run("lost") == "starting"
        ended = [row for row in scheduler.rows if row.kind == "ended"][-1]
        assert ended.body["reason"].startswith(f"restarted, {number + 1} of at most 3 times in a row")
    assert record.failures == 0
    assert run("lost") == "failed"


def test_what_a_policy_cannot_place_is_the_fault_of_who_asks(serve: Serve) -> None:
    site = serve(policy={"name": "exact"})
    with site.client("ann") as ann:
        for path in ("jobs", "plan"):
            answer = ann.post(f"/api/v1/{path}", json={**JOB, "gpus": 6, "collective": "ina"})
            assert answer.status_code == 422, answer.text
            assert "policy 'exact' cannot place this job" in answer.json()["detail"]
            assert "'ina'" in answer.json()["detail"]


def test_who_cancels_twice_is_heard_twice(start: Start) -> None:
    running = start(course=lambda _: FakeRun(run_s=1e9, stubborn=True))
    job_id = running.submit()
    running.until(job_id, "running")
    service = running.service
    with service.lock:
        service.scheduler.cancel(job_id, "ann", service.now_s())
        service.scheduler.cancel(job_id, "ann", service.now_s())
        assert [(order.do, order.attempt.number) for order in service.scheduler.instructions] == [("stop", 1)] * 2
        assert [row.kind for row in service.scheduler.rows] == ["stopping"]


def test_a_log_of_another_cluster_goes_on_there(start: Start) -> None:
    first = start()
    jobs = [first.submit(gpus=4) for _ in range(4)]
    for job_id in jobs:
        first.until(job_id, "running")
    first.service.close()
    larger = Cluster.fat_tree(racks=2, machines_per_rack=3, gpus_per_machine=4)
    second = start(larger, processes=first.processes)
    assert [second.status(job_id) for job_id in jobs] == ["running"] * 4
    more = [second.submit(gpus=4) for _ in range(2)]  # on the machines that have come
    for job_id in more:
        second.until(job_id, "running")
    held = second.service.scheduler.engine.state.running
    assert len({larger.machines[machine].name for job_id in held for machine in held[job_id].held}) == 6
    second.service.close()
    smaller = start(Cluster.fat_tree(racks=1, machines_per_rack=1, gpus_per_machine=4), processes=second.processes)
    assert [smaller.status(job_id) for job_id in (*jobs, *more)] == [
        "running"
    ] * 6  # their machines stay till then
    assert len(smaller.service.scheduler.cluster.machines) == 6
    running = smaller.service.scheduler.engine.state.running
    gone = next(job_id for job_id, each in running.items() if 0 not in each.held)
    with smaller.service.lock:
        smaller.service.call(lambda now_s: smaller.service.scheduler.cancel(gone, "ann", now_s))
    smaller.until(gone, "cancelled")
    waits = smaller.submit(gpus=1)
    assert smaller.status(waits) == "waiting"  # and take no others


def test_an_older_log_that_was_served_once_goes_on_with_another_cluster(tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    store.acquire()
    old = Scheduler(CLUSTER, "run", Limits())
    old.open(0.0)
    old.switch({"name": "titan"}, "root", 0.0)
    for _ in range(4):
        old.submit("ann", {"command": ["true"], "gpus": 4}, None, 1.0)
    del old.rows[0].body["layout"]  # as an older version wrote it
    store.append(old.rows)
    once = Scheduler(CLUSTER, "run", Limits())
    once.restore(store)
    once.open(2.0)
    store.append(once.rows)
    smaller = Scheduler(Cluster.fat_tree(racks=1, machines_per_rack=1, gpus_per_machine=4), "run", Limits())
    smaller.restore(store)
    smaller.open(3.0)
    assert len(smaller.engine.state.running) == 4
    assert [machine.name for machine in smaller.cluster.machines] == [machine.name for machine in CLUSTER.machines]
    store.close()


def test_an_older_log_of_another_cluster_is_refused_with_what_to_do(start: Start, tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    store.acquire()
    store.append([EventRow(1, 1.0, "opened", None, {"mode": "run", "cluster": "other", "about": "2 racks"})])
    store.close()
    with pytest.raises(InputError, match=r"another cluster, 2 racks.*serve that cluster once"):
        start()


# Says which compiled functions are new to a process once a policy that was got ready has decided about many jobs.
# Each case has a process of its own that has compiled nothing; only what they import is loaded once for all.
NEW = """
import gc, json, os, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.profile import library
from cranny.service.engines import build_policy, complete_setting
from cranny.service.job_records import JobRecords
from cranny.service.event_chain import EventRow
from cranny.service.warmup import warm

def known():
    made = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return {(each.py_func.__qualname__, str(kinds)) for each in made for kinds in each.signatures}

def decide(name, link_gbps, collective):
    cluster = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4, link_gbps=link_gbps)
    chosen = complete_setting({"name": name})
    for resizable in (False, True):
        warm(chosen, cluster, resizable=resizable)
        before = known()
        records, rng = JobRecords(cluster), np.random.default_rng(99)
        engine = Engine(ClusterState(cluster), build_policy(chosen, records))
        for number in range(1, 61):
            spec = {"command": ["true"], "gpus": int(rng.integers(1, 13)), "collective": collective}
            spec |= {"model": str(rng.choice(list(library())))}
            if resizable and rng.random() < 0.3:
                spec |= {"least_gpus": 1}
            records.apply(EventRow(number, 0.0, "submitted", f"job-{number}", {"user": "ann", "spec": spec}))
            engine.submit(records.jobs[f"job-{number}"].job, 10.0 * number)
            running = list(engine.state.snapshot().running)
            if running and rng.random() < 0.6:
                engine.finish(str(rng.choice(running)), 10.0 * number + 1)
        print(name, link_gbps, collective, resizable, sorted(name for name, _ in known() - before), flush=True)

assert not known()
for case in json.loads(sys.argv[1]):
    if not os.fork():
        decide(*case)
        os._exit(0)
    assert os.wait()[1] == 0, case
"""


def test_nothing_is_left_to_compile_once_a_policy_is_ready() -> None:
    cases = [
        ("cranny", 100, "ring"),
        ("cranny", 2, "halving-doubling"),
        ("has-exact", 100, "ring"),
        ("netpack", 100, "ring"),
        ("themis+cassini", 100, "ring"),
        ("titan", 100, "halving-doubling"),
        ("titan", 2, "tree"),
    ]
    ran = subprocess.run(
        [sys.executable, "-c", NEW, json.dumps(cases)], capture_output=True, text=True, check=False
    )
    expected = [f"{' '.join(map(str, case))} {resizable} []" for case in cases for resizable in (False, True)]
    assert (ran.stdout.splitlines(), ran.stderr) == (expected, "")
