from pathlib import Path

import pytest
from tests.backends.contract import CLUSTER, Contract, Harness

from cranny.backends.fake import FakeBackend, FakeProcesses, FakeRun
from cranny.backends.protocol import Backend, BackendError, Ended, Launch, Rank


class FakeHarness(Harness):
    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.processes = FakeProcesses()
        super().__init__(folder)

    def make(self) -> Backend:
        return FakeBackend(CLUSTER, lambda: self.now, self.course, self.processes, channels=True)

    @staticmethod
    def course(what: Launch) -> FakeRun:
        return FakeRun(float(what.argv[1]), int(what.argv[2]), stubborn=what.argv[3] == "True")

    def argv(self, run_s: float, exit_code: int = 0, *, stubborn: bool = False) -> tuple[str, ...]:
        return ("pretend", str(run_s + 0.001), str(exit_code), str(stubborn))

    def begun(self, what: Launch) -> Launch:
        return what

    def over(self, what: Launch) -> Launch:
        self.now = max(self.now, self.processes.by_attempt[what.job_id, what.attempt].ends_at)
        return what

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def runs(self) -> int:
        return len(self.processes.by_attempt)

    def left(self, job_id: str) -> int:
        return sum(
            name == job_id and each.ends_at > self.now for (name, _), each in self.processes.by_attempt.items()
        )


class TestFake(Contract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return FakeHarness(tmp_path)


def test_ends_come_in_the_order_of_time(tmp_path: Path) -> None:
    harness = FakeHarness(tmp_path)
    for slot, run_s in enumerate((3.0, 1.0, 2.0)):
        harness.launch(f"{run_s:.0f}s", run_s, slots=((0, slot),))
    harness.sleep(10.0)
    assert [end.job_id for end in harness.backend.poll()] == ["1s", "2s", "3s"]


def test_a_job_can_get_lost(tmp_path: Path) -> None:
    fake = FakeBackend(CLUSTER, lambda: 0.0)
    fake.launch(Launch("a", 1, ("x",), (Rank(0, 0, 0),), {}, None, tmp_path, None))
    fake.lose("a")
    assert fake.poll() == [Ended("a", 1, None, "lost")]
    assert [what.job_id for what in fake.launches] == ["a"]


def test_a_course_can_refuse_to_start(tmp_path: Path) -> None:
    def no(what: Launch) -> FakeRun:
        raise BackendError(f"no {what.job_id}")

    fake = FakeBackend(CLUSTER, lambda: 0.0, no)
    with pytest.raises(BackendError, match="no a"):
        fake.launch(Launch("a", 1, ("x",), (Rank(0, 0, 0),), {}, None, tmp_path, None))
    assert not fake.launches


def test_a_stop_before_the_time_limit_cancels(tmp_path: Path) -> None:
    harness = FakeHarness(tmp_path)
    harness.launch("a", 60.0, time_limit_s=5.0, stubborn=True)
    harness.sleep(3.0)
    harness.backend.stop("a", grace_s=1.0)
    harness.sleep(1.0)
    assert harness.backend.poll() == [Ended("a", 1, -9, "cancelled")]
