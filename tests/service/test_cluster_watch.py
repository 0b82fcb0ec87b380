"""A whole service on a fake manager, whose calls fail, hang, answer twice and answer late."""

import errno
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from tests.reference.invariants import check
from tests.service.conftest import COMPILE_S, until

from cranny.backends.cluster_reading import ClusterReading
from cranny.backends.fake_manager import FakeManager
from cranny.backends.local import LocalBackend
from cranny.backends.protocol import BackendError, Ended, Launch
from cranny.model.cluster import Cluster, Machine
from cranny.service import cluster_watch
from cranny.service.clock import wall_clock
from cranny.service.service import Service
from cranny.service.store import EventStore

Answer = TypeVar("Answer")


class FaultyManager(FakeManager):
    """A manager under a lock, of which some calls fail, before or after they have done something."""

    def __init__(self, seed: int = 0, rate: float = 0.0) -> None:
        super().__init__(wall_clock)
        self.rate = rate
        self.hangs = threading.Event()  # while it is set, `read` does not answer
        self._random = random.Random(seed)  # noqa: S311 - faults of a test
        self._lock = threading.RLock()
        self._before: ClusterReading | None = None

    def _faulty(self, work: Callable[[], Answer]) -> Answer:
        with self._lock:
            fault = self._random.random() < self.rate
            if fault and self._random.random() < 0.5:
                raise OSError(11, "cannot say now")
            done = work()
            if fault:
                raise OSError(11, "did it, and cannot say so")
            return done

    def read(self) -> ClusterReading:
        while self.hangs.is_set():
            time.sleep(0.01)
        late = self._before if self._random.random() < self.rate else None
        self._before = self._faulty(super().read)
        return late or self._before

    def poll(self) -> Sequence[Ended]:
        with self._lock:
            if self._random.random() < self.rate:
                raise OSError(11, "cannot say now")
            ended = super().poll()
            return [*ended, *ended] if self._random.random() < self.rate else ended

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        self._faulty(lambda: FakeManager.stop(self, job_id, grace_s))

    def launch(self, what: Launch) -> None:
        self._faulty(lambda: FakeManager.launch(self, what))

    def adopt(self, launches: Sequence[Launch]) -> Sequence[Ended]:
        return self._faulty(lambda: FakeManager.adopt(self, launches))


Serve = Callable[[FaultyManager], Service]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return what starts a service on a manager."""
    monkeypatch.setattr(cluster_watch, "EVERY_S", 0.02)
    monkeypatch.setattr(cluster_watch.ClusterWatch.__init__, "__defaults__", (0.02,))
    started: list[Service] = []

    def make(manager: FaultyManager) -> Service:
        policy = {"name": "titan", "order": "backfill"}
        rate, manager.rate = manager.rate, 0.0
        service = Service(EventStore(str(tmp_path / "log.db")), manager, tmp_path, policy=policy, source=manager)
        service.start()
        started.append(service)
        until(lambda: service.ready, COMPILE_S)
        manager.rate = rate
        return service

    yield make
    for service in started:
        if service._alive:
            service.close()
        check(service.scheduler.engine.state)


def test_jobs_of_the_manager_run_while_calls_fail_and_the_service_is_restarted(serve: Serve) -> None:
    manager = FaultyManager(seed=3, rate=0.2)
    for name in ("a1", "a2", "b1"):
        manager.join(Machine(name, 4), f"rack-{name[0]}")
    service = serve(manager)
    for number in range(40):
        with manager._lock:
            manager.submit("bob", 1 + number % 6, 0.05 * (number % 4))
            if number == 15:
                manager.join(Machine("b2", 8), "rack-b")
            if number == 20:
                manager.start_other("eve", {"a1": 1}, 0.3)
        if number in (10, 25):
            service.close()
            service = serve(manager)
        time.sleep(0.01)
    external = [job for job in manager.jobs.values() if job.spec is not None]
    until(lambda: all(job.state == "over" for job in manager.jobs.values()))
    until(lambda: not service.scheduler.records.open_jobs.total)
    assert {job.runs for job in external} == {1}  # none was lost, and none ran twice
    assert {job.ended for job in external} == {("finished", 0)}
    statuses = [record.status for record in service.scheduler.records.jobs.values()]
    assert statuses == ["done"] * 40
    manager.rate = 0.0
    until(lambda: service.scheduler.engine.state.held_gpus == 0)


def test_a_manager_that_hangs_is_reported_and_jobs_go_on(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_watch, "SLOW_S", 0.2)
    manager = FaultyManager()
    manager.join(Machine("a1", 4))
    service = serve(manager)
    watch = service.watch
    assert watch is not None
    until(lambda: watch.status["problem"] == "")
    manager.hangs.set()
    until(lambda: "has not answered for" in watch.problem)
    value = {"command": ["run", "0.01"], "gpus": 1}
    record, _ = service.submit("ann", value).result(60)
    until(lambda: record.status == "done")
    manager.hangs.clear()
    until(lambda: not watch.problem)
    manager.rate = 1.0
    until(lambda: "cannot be read" in watch.problem)
    manager.rate = 0.0
    until(lambda: not watch.problem)


def test_users_of_the_manager_are_shown_why_their_jobs_wait(serve: Serve) -> None:
    manager = FaultyManager()
    manager.join(Machine("a1", 4))
    serve(manager)
    with manager._lock:
        manager.start_other("eve", {"a1": 4}, 1e6)
        waits, never = manager.submit("bob", 2, 1.0), manager.submit("bob", 20, 1.0)
    until(lambda: {waits, never} <= manager.shown.keys())
    assert manager.shown[waits] == "needs 2 GPUs, 0 free; 0 jobs before it"
    assert manager.shown[never] == "gpus: needs 20 GPUs, the cluster has 4"


def test_a_source_that_cannot_be_read_at_the_start_starts_nothing(serve: Serve) -> None:
    with pytest.raises(BackendError, match="no machines"):
        serve(FaultyManager())


class FaultyLocal(LocalBackend):
    """A local backend of which some calls fail, and some answers come twice."""

    def __init__(self) -> None:
        super().__init__(Cluster.single_rack(2, 2), ())
        self._random = random.Random(5)  # noqa: S311 - faults of a test

    def _fault(self) -> bool:
        return self._random.random() < 0.3

    def launch(self, what: Launch) -> None:
        if self._fault():
            raise OSError(errno.EAGAIN, "no process can be started now")
        super().launch(what)

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        if self._fault():
            raise OSError(errno.EAGAIN, "cannot say now")
        super().stop(job_id, grace_s)
        if self._fault():
            raise OSError(errno.EAGAIN, "did it, and cannot say so")

    def poll(self) -> Sequence[Ended]:
        if self._fault():
            raise OSError(errno.EAGAIN, "cannot say now")
        ended = super().poll()
        return [*ended, *ended] if self._fault() else ended


def test_jobs_of_the_local_backend_run_once_while_calls_fail(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    service = Service(EventStore(str(tmp_path / "log.db")), FaultyLocal(), tmp_path, policy={"name": "titan"})
    service.start()
    until(lambda: service.ready, COMPILE_S)
    command = f'echo "$CRANNY_JOB" >> {ran}'
    values = [{"command": command, "shell": True, "gpus": 1} for _ in range(6)]
    records = [service.submit("ann", value).result(60)[0] for value in values]
    long, _ = service.submit("ann", {"command": ["sleep", "600"], "gpus": 2}).result(60)
    until(lambda: long.status == "running")
    service.call(lambda now_s: service.scheduler.cancel(long.id, "ann", now_s)).result(60)
    until(lambda: all(record.over for record in (*records, long)))
    service.close()
    assert [record.status for record in (*records, long)] == ["done"] * 6 + ["cancelled"]
    assert len(ran.read_text().splitlines()) == 6
    check(service.scheduler.engine.state)
