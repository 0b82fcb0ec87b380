"""The fake manager keeps the contract of both roles, as the local backend does of its own."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.backends.contract import CLUSTER, Harness
from tests.backends.local_harness import LocalHarness
from tests.backends.source_contract import BothRoles, SourceContract, SourceHarness
from tests.backends.test_fake import FakeHarness

from cranny.backends.cluster_reading import ClusterSource
from cranny.backends.fake_manager import FakeManager
from cranny.backends.protocol import Backend, Launch, Rank


class ManagerHarness(SourceHarness):
    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.manager = FakeManager(lambda: self.now)
        for machine in CLUSTER.machines:
            self.manager.join(machine)
        super().__init__(folder)

    def make(self) -> Backend:
        return self.manager

    @property
    def source(self) -> ClusterSource:
        return self.manager

    def argv(self, run_s: float, exit_code: int = 0, *, stubborn: bool = False) -> tuple[str, ...]:
        return ("pretend", str(run_s + 0.001), str(exit_code), str(stubborn))

    def begun(self, what: Launch) -> Launch:
        return what

    def over(self, what: Launch) -> Launch:
        self.now += float(what.argv[1])
        return what

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def left(self, job_id: str) -> int:
        return sum(
            job.attempt is not None and job.attempt[0] == job_id and job.state != "over"
            for job in self.manager.jobs.values()
        )

    def runs(self) -> int:
        return sum(job.runs for job in self.manager.jobs.values())

    def submit(self, user: str, gpus: int, run_s: float) -> str:
        return self.manager.submit(user, gpus, run_s)

    def cancel(self, external: str) -> None:
        self.manager.cancel(external)

    def start_other(self, user: str, where: Mapping[str, int]) -> str:
        started = self.manager.start_other(user, where, 1e6)
        assert started is not None
        return started

    def drain(self, machine: str) -> None:
        self.manager.drain(machine)

    def fail(self, machine: str) -> None:
        self.manager.fail(machine)

    def resume(self, machine: str) -> None:
        self.manager.resume(machine)

    def release(self, external: str, machines: tuple[str, ...]) -> None:
        ranks = tuple(Rank(rank, 0, rank) for rank in range(len(machines)))
        plain = Launch("job-1", 1, ("sbatch",), ranks, {}, None, self.folder, None)
        self.backend.launch(replace(plain, external=external, machines=machines))


class TestManager(BothRoles, SourceContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> ManagerHarness:
        return ManagerHarness(tmp_path)


class TestOthers(BothRoles):
    @pytest.fixture(params=[FakeHarness, LocalHarness])
    def harness(self, request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
        made: Harness = request.param(tmp_path)
        return made
