"""The executor launches nothing onto GPUs that others have not left yet."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.service.conftest import CLUSTER, until

from cranny.backends.fake import FakeBackend, FakeProcesses, FakeRun
from cranny.backends.protocol import NOT_STARTED, BackendError, Ended, Launch, Rank
from cranny.service.executor import AttemptLaunched, Executor, ExecutorReport


class Clock:
    """A clock that tests turn."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def launch(job_id: str, attempt: int = 1, gpu: int = 0) -> Launch:
    return Launch(job_id, attempt, ("true",), (Rank(0, 0, gpu),), {}, None, Path("logs"), None)


class Scene:
    """An executor, a fake backend, and what was reported."""

    def __init__(self, processes: FakeProcesses, clock: Clock) -> None:
        self.reports: list[ExecutorReport] = []
        self.backend = FakeBackend(CLUSTER, clock, self.course, processes)
        self.executor = Executor(self.backend, self.take)
        self.executor.start()

    def course(self, what: Launch) -> FakeRun:
        if what.job_id == "impossible":
            raise BackendError("there is no such command")
        return FakeRun(run_s=100.0, stubborn=what.job_id == "stubborn")

    def take(self, reports: Sequence[ExecutorReport]) -> None:
        self.reports += reports


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def processes() -> FakeProcesses:
    return FakeProcesses()


@pytest.fixture
def scene(processes: FakeProcesses, clock: Clock) -> Iterator[Scene]:
    made = Scene(processes, clock)
    yield made
    made.executor.close()


def test_a_launch_waits_for_its_gpus_and_none_passes_it(scene: Scene, clock: Clock) -> None:
    scene.executor.launch(launch("stubborn"))
    until(lambda: scene.reports == [AttemptLaunched("stubborn", 1)])
    scene.executor.stop("stubborn", 1)
    scene.executor.launch(launch("next"))
    scene.executor.launch(launch("later"))
    scene.executor.launch(launch("elsewhere", gpu=1))
    until(lambda: AttemptLaunched("elsewhere", 1) in scene.reports)
    assert len(scene.reports) == 2
    clock.now_s = 50.0  # the grace is over
    until(lambda: AttemptLaunched("next", 1) in scene.reports)
    assert isinstance(scene.reports[2], Ended)
    assert AttemptLaunched("later", 1) not in scene.reports


def test_the_next_attempt_waits_for_the_last_and_an_order_that_comes_twice_counts_once(
    scene: Scene, clock: Clock
) -> None:
    scene.executor.launch(launch("stubborn"))
    scene.executor.launch(launch("stubborn"))
    until(lambda: AttemptLaunched("stubborn", 1) in scene.reports)
    scene.executor.stop("stubborn", 1)
    scene.executor.launch(launch("stubborn", attempt=2, gpu=3))
    scene.executor.launch(launch("elsewhere", gpu=1))
    until(lambda: AttemptLaunched("elsewhere", 1) in scene.reports)  # all orders were taken
    clock.now_s = 50.0
    until(lambda: AttemptLaunched("stubborn", 2) in scene.reports)
    assert [report for report in scene.reports if isinstance(report, AttemptLaunched)] == [
        AttemptLaunched("stubborn", 1),
        AttemptLaunched("elsewhere", 1),
        AttemptLaunched("stubborn", 2),
    ]


def test_what_cannot_start_or_is_stopped_before_is_reported(scene: Scene) -> None:
    scene.executor.launch(launch("impossible"))
    scene.executor.launch(launch("a"))
    scene.executor.launch(launch("b"))
    until(lambda: AttemptLaunched("a", 1) in scene.reports)
    scene.executor.stop("b", 1)
    until(lambda: Ended("b", 1, None, "cancelled") in scene.reports)
    assert Ended("impossible", 1, None, "failed", "there is no such command") in scene.reports


def test_another_executor_adopts_what_runs_and_ends_what_was_ending(
    processes: FakeProcesses, clock: Clock
) -> None:
    first = Scene(processes, clock)
    first.executor.launch(launch("a"))
    first.executor.launch(launch("stubborn", gpu=1))
    until(lambda: len(first.reports) == 2)
    first.executor.close()
    second = Scene(processes, clock)
    again = launch("stubborn", attempt=2, gpu=2)
    second.executor.adopt([launch("a"), launch("never", gpu=3), again], [launch("stubborn", gpu=1)])
    until(lambda: AttemptLaunched("a", 1) in second.reports)
    assert Ended("never", 1, None, NOT_STARTED) in second.reports
    assert AttemptLaunched("stubborn", 2) not in second.reports
    clock.now_s = 50.0
    until(lambda: AttemptLaunched("stubborn", 2) in second.reports)
    second.executor.close()


def test_the_processes_of_an_attempt_are_found_although_later_ones_were_called_off(
    processes: FakeProcesses, clock: Clock
) -> None:
    first = Scene(processes, clock)
    first.executor.launch(launch("stubborn"))
    until(lambda: first.reports == [AttemptLaunched("stubborn", 1)])
    first.executor.close()
    second = Scene(processes, clock)
    leaving = [launch("stubborn"), launch("stubborn", attempt=2, gpu=1)]
    second.executor.adopt([launch("stubborn", attempt=3, gpu=2)], leaving)
    until(lambda: bool(second.reports))
    assert second.reports == [Ended("stubborn", 2, None, NOT_STARTED)]
    clock.now_s = 50.0
    until(lambda: AttemptLaunched("stubborn", 3) in second.reports)
    assert [report.attempt for report in second.reports] == [2, 1, 3]
    second.executor.close()
