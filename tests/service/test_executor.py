"""The hands launch nothing onto GPUs that others have not left yet."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.service.conftest import CLUSTER, until

from cranny.backends.fake import Course, Fake, World
from cranny.backends.protocol import BackendError, Launch, Rank
from cranny.service.executor import NEVER, Gone, Hands, Launched, Report


class Clock:
    """A clock that tests turn."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def launch(job_id: str, attempt: int = 1, gpu: int = 0) -> Launch:
    return Launch(job_id, attempt, ("true",), (Rank(0, 0, gpu),), {}, None, Path("logs"), None)


class Scene:
    """Hands, a backend that pretends, and what was reported."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.reports: list[Report] = []
        self.backend = Fake(CLUSTER, clock, self.course, world)
        self.hands = Hands(self.backend, self.take)
        self.hands.start()

    def course(self, what: Launch) -> Course:
        if what.job_id == "impossible":
            raise BackendError("there is no such command")
        return Course(run_s=100.0, stubborn=what.job_id == "stubborn")

    def take(self, reports: Sequence[Report]) -> None:
        self.reports += reports


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def scene(world: World, clock: Clock) -> Iterator[Scene]:
    made = Scene(world, clock)
    yield made
    made.hands.close()


def test_a_launch_waits_for_its_gpus_and_nobody_passes_it(scene: Scene, clock: Clock) -> None:
    scene.hands.launch(launch("stubborn"))
    until(lambda: scene.reports == [Launched("stubborn", 1)])
    scene.hands.stop("stubborn", 1)
    scene.hands.launch(launch("next"))
    scene.hands.launch(launch("later"))
    scene.hands.launch(launch("elsewhere", gpu=1))
    until(lambda: Launched("elsewhere", 1) in scene.reports)
    assert len(scene.reports) == 2
    clock.now_s = 50.0  # the grace is over
    until(lambda: Launched("next", 1) in scene.reports)
    assert isinstance(scene.reports[2], Gone)
    assert Launched("later", 1) not in scene.reports


def test_the_next_attempt_waits_for_the_last_and_an_order_that_comes_twice_counts_once(
    scene: Scene, clock: Clock
) -> None:
    scene.hands.launch(launch("stubborn"))
    scene.hands.launch(launch("stubborn"))
    until(lambda: Launched("stubborn", 1) in scene.reports)
    scene.hands.stop("stubborn", 1)
    scene.hands.launch(launch("stubborn", attempt=2, gpu=3))
    scene.hands.launch(launch("elsewhere", gpu=1))
    until(lambda: Launched("elsewhere", 1) in scene.reports)  # all orders were taken
    clock.now_s = 50.0
    until(lambda: Launched("stubborn", 2) in scene.reports)
    assert [report for report in scene.reports if isinstance(report, Launched)] == [
        Launched("stubborn", 1),
        Launched("elsewhere", 1),
        Launched("stubborn", 2),
    ]


def test_what_cannot_start_or_is_stopped_before_is_reported(scene: Scene) -> None:
    scene.hands.launch(launch("impossible"))
    scene.hands.launch(launch("a"))
    scene.hands.launch(launch("b"))
    until(lambda: Launched("a", 1) in scene.reports)
    scene.hands.stop("b", 1)
    until(lambda: Gone("b", 1, "cancelled") in scene.reports)
    assert Gone("impossible", 1, "failed", None, "there is no such command") in scene.reports


def test_other_hands_adopt_what_runs_and_end_what_was_ending(world: World, clock: Clock) -> None:
    first = Scene(world, clock)
    first.hands.launch(launch("a"))
    first.hands.launch(launch("stubborn", gpu=1))
    until(lambda: len(first.reports) == 2)
    first.hands.close()
    second = Scene(world, clock)
    again = launch("stubborn", attempt=2, gpu=2)
    second.hands.adopt([launch("a"), launch("never", gpu=3), again], [launch("stubborn", gpu=1)])
    until(lambda: Launched("a", 1) in second.reports)
    assert Gone("never", 1, NEVER) in second.reports
    assert Launched("stubborn", 2) not in second.reports
    clock.now_s = 50.0
    until(lambda: Launched("stubborn", 2) in second.reports)
    second.hands.close()


def test_the_processes_of_an_attempt_are_found_although_later_ones_were_called_off(
    world: World, clock: Clock
) -> None:
    first = Scene(world, clock)
    first.hands.launch(launch("stubborn"))
    until(lambda: first.reports == [Launched("stubborn", 1)])
    first.hands.close()
    second = Scene(world, clock)
    leaving = [launch("stubborn"), launch("stubborn", attempt=2, gpu=1)]
    second.hands.adopt([launch("stubborn", attempt=3, gpu=2)], leaving)
    until(lambda: bool(second.reports))
    assert second.reports == [Gone("stubborn", 2, NEVER)]
    clock.now_s = 50.0
    until(lambda: Launched("stubborn", 3) in second.reports)
    assert [report.attempt for report in second.reports] == [2, 1, 3]
    second.hands.close()
