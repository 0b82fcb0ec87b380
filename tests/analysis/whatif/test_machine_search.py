from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.analysis.whatif.machine_search import (
    MachineSearch,
    ResizedReplay,
    WaitOutcome,
    allowed_s,
    most_replays,
    search,
)


class FakeReplays:
    """Answers with a made-up wait for each number of machines removed, and notes what was asked."""

    def __init__(self, wait_s: Callable[[int], float], jobs: Callable[[int], int] = lambda _: 10) -> None:
        self.wait_s = wait_s
        self.jobs = jobs
        self.asked: list[ResizedReplay] = []

    def run(self, cells: Sequence[ResizedReplay]) -> list[WaitOutcome]:
        self.asked += cells
        return [self.outcome(-change) for _, change in cells]

    def outcome(self, removed: int, peak_used: int = 0) -> WaitOutcome:
        wait_s = self.wait_s(removed)
        return WaitOutcome(self.jobs(removed), peak_used, wait_s, {"8": wait_s})


def searched(cells: FakeReplays, machines: int, peak_used: int | None = None, add: int = 1) -> MachineSearch:
    base = cells.outcome(0, machines if peak_used is None else peak_used)
    (found,) = search(cells.run, machines, add, {"titan": base})
    assert len(cells.asked) <= most_replays(machines, 1)
    return found


def test_the_mean_wait_may_grow_by_a_minute_or_a_twentieth() -> None:
    assert allowed_s(100.0) == 160.0
    assert allowed_s(2000.0) == 2100.0


@given(st.integers(1, 300), st.data())
def test_finds_the_last_number_that_does(machines: int, data: st.DataObject) -> None:
    limit = data.draw(st.integers(0, machines - 1))
    peak = data.draw(st.integers(0, machines))
    found = searched(FakeReplays(lambda removed: 0.0 if removed <= limit else 61.0), machines, peak).removal
    assert found.machines == limit
    assert found.again == ()
    assert found.limit_s == 60.0


def test_the_neighbours_of_the_answer_are_tried() -> None:
    found = searched(FakeReplays(lambda removed: 0.0 if removed <= 5 else 99.0), 64).removal
    assert {4, 5, 6, 7, 8} <= set(found.tried)


def test_says_when_more_would_do_although_fewer_would_not() -> None:
    found = searched(FakeReplays(lambda removed: 99.0 if removed in (3, 8) else 0.0), 9).removal
    assert found.machines == 2
    assert found.again
    assert all(count > 3 for count in found.again)


def test_a_job_that_no_longer_fits_counts_as_failure() -> None:
    cells = FakeReplays(lambda _: 0.0, jobs=lambda removed: 10 if removed <= 3 else 9)
    assert searched(cells, 20, peak_used=20).removal.machines == 3


def test_one_machine_cannot_go() -> None:
    found = searched(FakeReplays(lambda _: 0.0), 1)
    assert found.removal.machines == 0
    assert found.removal.tried == {0: 0.0}


def test_more_machines_are_tried_once() -> None:
    cells = FakeReplays(lambda removed: 500.0 if removed == 0 else 300.0 if removed == -7 else 999.0)
    addition = searched(cells, 16, add=7).addition
    assert addition.machines == 7
    assert addition.before_s == {"8": pytest.approx(500.0)}
    assert addition.after_s == {"8": pytest.approx(300.0)}


def test_policies_go_in_step() -> None:
    cells = FakeReplays(lambda removed: 0.0 if removed <= 2 else 99.0)
    base = {name: cells.outcome(0, 8) for name in ("titan", "best-fit")}
    found = search(cells.run, 8, 1, base)
    assert [(each.policy, each.removal.machines) for each in found] == [("titan", 2), ("best-fit", 2)]
    assert [cell[0] for cell in cells.asked[:4]] == ["titan", "best-fit"] * 2
