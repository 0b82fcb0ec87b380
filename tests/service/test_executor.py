"""The executor launches nothing onto GPUs that others have not left yet, and lets attempts save before that."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM, SIGUSR1

import pytest
from tests.service.conftest import CLUSTER, until

from cranny.backends.fake import FakeBackend, FakeProcesses, FakeRun
from cranny.backends.protocol import NOT_STARTED, BackendError, Ended, Launch, Rank
from cranny.channel.control import CheckpointRequest, Control, Pace
from cranny.channel.report import Report, Saved
from cranny.service.executor import AttemptLaunched, AttemptStop, Executor, ExecutorReport
from cranny.service.reports import ReportReader


class Clock:
    """A clock that tests turn."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def launch(job_id: str, attempt: int = 1, gpu: int = 0) -> Launch:
    return Launch(job_id, attempt, ("true",), (Rank(0, 0, gpu),), {}, None, Path("logs"), None)


class Scene:
    """An executor, a fake backend, and what was reported."""

    def __init__(self, processes: FakeProcesses, clock: Clock, *, channels: bool = False) -> None:
        self.reports: list[ExecutorReport] = []
        self.backend = FakeBackend(CLUSTER, clock, self.course, processes, channels=channels)
        self.read = ReportReader(clock)
        self.executor = Executor(self.backend, self.take, reports=self.read, now_s=clock)
        self.executor.start()

    def close(self) -> None:
        self.executor.close()
        self.read.close()

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


ASKED = Control(9, checkpoint=CheckpointRequest(1, 60.0, "moved"))


@pytest.fixture
def talking(processes: FakeProcesses, clock: Clock) -> Iterator[Scene]:
    """Return a scene whose jobs have channels."""
    made = Scene(processes, clock, channels=True)
    made.read.start()
    yield made
    made.close()


def begin(scene: Scene, what: Launch) -> Path:
    """Launch a job; return the folder of its channel."""
    scene.executor.launch(what)
    until(lambda: AttemptLaunched(what.job_id, what.attempt) in scene.reports)
    return what.log_dir / "channel"


def report(folder: Path, job_id: str = "a", rank: int = 0, request: int | None = None) -> None:
    """Report as a rank does."""
    saved = None if request is None else Saved(5, 0.0, 0.0, request)
    Report(rank, saved=saved).write(folder, f"token of {job_id}, 1")


def test_what_a_job_is_told_is_in_its_channel_once_it_runs(talking: Scene, tmp_path: Path) -> None:
    first = Control(3, pace=Pace(0.1, 0.05, 0.0))
    talking.executor.set_control("a", 1, first)
    folder = begin(talking, replace(launch("a"), log_dir=tmp_path))
    until(lambda: Control.read(folder) == first)
    talking.executor.set_control("a", 1, Control(5, aggregate=False))
    until(lambda: Control.read(folder) == Control(5, aggregate=False))
    talking.executor.set_control("a", 1, first)  # repeated after a failure, and known by now
    talking.executor.set_control("b", 1, first)
    begin(talking, replace(launch("b", gpu=1), log_dir=tmp_path / "b"))
    until(lambda: Control.read(tmp_path / "b" / "channel") == first)
    assert Control.read(folder) == Control(5, aggregate=False)


def test_a_job_that_saves_is_stopped_when_all_its_ranks_have(talking: Scene, tmp_path: Path) -> None:
    two = replace(launch("a"), ranks=(Rank(0, 0, 0), Rank(1, 1, 0)), log_dir=tmp_path)
    folder = begin(talking, two)
    report(folder)
    report(folder, rank=1)
    until(lambda: len(talking.read.states("a", 1)) == 2)
    talking.executor.leave(AttemptStop("a", 1, ASKED))
    until(lambda: Control.read(folder) == ASKED)
    report(folder, request=1)
    talking.executor.launch(launch("next"))
    until(lambda: talking.read.states("a", 1)[0].saved is not None)
    assert len(talking.reports) == 1
    report(folder, rank=1, request=1)
    until(lambda: AttemptLaunched("next", 1) in talking.reports)
    assert Ended("a", 1, -SIGTERM, "cancelled") in talking.reports


def test_a_job_that_does_not_save_is_stopped_when_its_time_is_over(
    talking: Scene, tmp_path: Path, clock: Clock
) -> None:
    folder = begin(talking, replace(launch("a"), log_dir=tmp_path))
    report(folder)
    talking.executor.leave(AttemptStop("a", 1, ASKED, SIGUSR1))
    until(lambda: talking.backend.signals == [("a", SIGUSR1)])
    talking.executor.leave(AttemptStop("a", 1, ASKED, SIGUSR1))  # repeated
    clock.now_s = 59.0
    begin(talking, replace(launch("other", gpu=2), log_dir=tmp_path / "other"))
    assert len(talking.reports) == 2
    clock.now_s = 61.0
    until(lambda: len(talking.reports) == 3)
    assert talking.backend.signals == [("a", SIGUSR1)]


def test_a_job_that_would_not_hear_or_is_cancelled_meanwhile_is_stopped_at_once(
    talking: Scene, tmp_path: Path
) -> None:
    begin(talking, replace(launch("silent"), log_dir=tmp_path / "silent"))
    talking.executor.leave(AttemptStop("silent", 1, ASKED))
    until(lambda: Ended("silent", 1, -SIGTERM, "cancelled") in talking.reports)
    folder = begin(talking, replace(launch("a"), log_dir=tmp_path / "a"))
    report(folder)
    talking.executor.leave(AttemptStop("a", 1, ASKED))
    until(lambda: Control.read(folder) == ASKED)
    talking.executor.stop("a", 1)
    until(lambda: Ended("a", 1, -SIGTERM, "cancelled") in talking.reports)


def test_a_job_that_saves_when_it_is_ended_has_its_own_grace(talking: Scene, tmp_path: Path, clock: Clock) -> None:
    begin(talking, replace(launch("stubborn"), log_dir=tmp_path))
    talking.executor.leave(AttemptStop("stubborn", 1, ASKED, SIGTERM))
    begin(talking, replace(launch("other", gpu=2), log_dir=tmp_path / "other"))
    clock.now_s = 50.0  # longer than the grace of the backend
    begin(talking, replace(launch("third", gpu=3), log_dir=tmp_path / "third"))
    assert len(talking.reports) == 3
    clock.now_s = 61.0
    until(lambda: len(talking.reports) == 4)


def test_another_executor_lets_a_job_save_that_was_saving(
    processes: FakeProcesses, clock: Clock, tmp_path: Path
) -> None:
    first = Scene(processes, clock, channels=True)
    what = replace(launch("a"), log_dir=tmp_path)
    folder = begin(first, what)
    report(folder)
    first.close()
    second = Scene(processes, clock, channels=True)
    second.read.start()
    again = replace(launch("a", attempt=2, gpu=1), log_dir=tmp_path / "2")
    second.executor.set_control("a", 2, Control(10))
    second.executor.adopt([again], [what], [AttemptStop("a", 1, ASKED)])
    until(lambda: Control.read(folder) == ASKED)
    assert second.reports == []
    report(folder, request=1)
    until(lambda: AttemptLaunched("a", 2) in second.reports)
    until(lambda: Control.read(tmp_path / "2" / "channel") == Control(10))
    second.close()
