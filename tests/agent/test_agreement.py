"""Ranks that agree on a step by files alone, in whatever order they run."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cranny.agent.agreement import POLL_S, SETTLE_S, SPARE, Agreement, Due
from cranny.channel import files
from cranny.channel.control import AGREED, Agreed, CheckpointRequest, Control
from cranny.model.errors import InputError
from tests.examples import examples

RANKS = 3


class Lockstep:
    """A synchronous training: no rank ends an iteration before all have exchanged gradients in it.

    Its program may be ahead of its device by `lead` iterations. Which rank goes on next is given from outside.
    """

    def __init__(self, folder: Path, lead: int, believed: int) -> None:
        self.folder, self.lead = folder, lead
        self.ranks = [Agreement(folder, rank, lead=believed) for rank in range(RANKS)]
        self.started = [0] * RANKS  # iterations
        self.applied: list[list[tuple[int, int, bool]]] = [[] for _ in range(RANKS)]  # step, number, late
        self.now_s = 0.0

    def can_start(self, rank: int) -> bool:
        # The exchange of an iteration is over when all ranks have started it.
        return min(self.started) >= self.started[rank] - self.lead

    def start(self, rank: int) -> None:
        step = self.started[rank]
        self.now_s += POLL_S  # rank 0 looks at what the service wants in each of its steps
        for due in self.ranks[rank].due(step, self.now_s):
            self.applied[rank].append((step, due.control.number, due.late))
        self.started[rank] += 1


def run(lead: int, believed: int, turns: list[int], asked: list[int]) -> list[list[tuple[int, int, bool]]]:
    """Let ranks go on in this order; before some turns the service wants something else."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FRESH_S", float("inf"))  # the clock of this test is not that of files
        training = Lockstep(Path(name), lead, believed)
        training.now_s = 4e9
        for turn, choice in enumerate(turns):
            if turn in asked:
                Control(turn, checkpoint=CheckpointRequest(turn + 1, 1.0, "moved")).write(Path(name))
            able = [rank for rank in range(RANKS) if training.can_start(rank)]
            training.start(able[choice % len(able)])
        last = max(training.started) + 4 * (SPARE + 2 * lead)
        while min(training.started) < last:  # until what was agreed has been applied
            training.start(min(range(RANKS), key=training.started.__getitem__))
        return training.applied


TURNS = st.lists(st.integers(0, RANKS - 1), min_size=5, max_size=60)
ASKED = st.lists(st.integers(0, 59), max_size=8)


@settings(max_examples=examples(150))
@given(st.sampled_from([0, 1, 2, 5]), TURNS, ASKED)
def test_all_ranks_switch_in_the_same_step_in_whatever_order_they_run(
    lead: int, turns: list[int], asked: list[int]
) -> None:
    first, *others = run(lead, lead, turns, asked)
    assert all(each == first for each in others)
    assert not any(late for _, _, late in first)
    asked_for = [number for number in sorted(set(asked)) if number < len(turns)]
    if asked_for:
        assert first[-1][1] == asked_for[-1]  # and none is forgotten


def test_ranks_that_run_further_ahead_than_believed_are_late() -> None:
    # Rank 0 stays where it is while rank 1 goes on as far as it can: what the order of the test above can find.
    turns = [0, 0, *[1] * 6, *[2] * 6, 0, 0, 0, *[1] * 4]
    applied = run(5, 0, turns, [6])
    assert any(late for rank in applied for _, _, late in rank)
    assert not any(late for rank in run(5, 5, turns, [6]) for _, _, late in rank)


def published(folder: Path) -> int:
    agreed = Agreed.read(folder)
    assert agreed is not None
    return agreed.from_step


@pytest.mark.parametrize(
    ("iteration_s", "drawn", "lead", "ahead"),
    [
        (0.001, 0, 0, SETTLE_S / 0.001),
        (0.1, 0, 0, SETTLE_S / 0.1),
        (60.0, 0, 0, SPARE),
        (60.0, 16, 0, SPARE + 16),
        (60.0, 0, 2, SPARE + 2),
        (None, 0, 0, SPARE),
        (0.0, 0, 0, 1e6),
    ],
)
def test_a_step_is_as_far_ahead_as_files_and_ranks_need(
    tmp_path: Path, iteration_s: float | None, drawn: int, lead: int, ahead: float
) -> None:
    Control(1).write(tmp_path)
    agreement = Agreement(tmp_path, 0, lead=lead)
    assert agreement.due(100, 0.0, iteration_s=lambda: iteration_s, drawn=drawn) == []
    assert published(tmp_path) == 100 + ahead


def test_a_rank_that_lags_applies_it_at_the_same_step(tmp_path: Path) -> None:
    Control(1).write(tmp_path)
    first, second = (Agreement(tmp_path, rank) for rank in range(2))
    for step in range(3):
        found = first.due(step, 10.0 * step)
    assert found == [Due(Control(1), late=False)]
    assert [second.due(step, 0.0) for step in range(3)] == [[], [], found]


def test_a_control_that_comes_before_the_last_one_applies_waits_for_it(tmp_path: Path) -> None:
    first, second = (Agreement(tmp_path, rank) for rank in range(2))
    steps = []
    for step in range(8):
        Control(step).write(tmp_path)
        steps.append([due.control.number for due in first.due(step, 10.0 * step)])
        second.due(step, 0.0)
    assert steps == [[], [], [0], [], [2], [], [4], []]
    assert published(tmp_path) == 8


def test_what_did_not_change_is_not_agreed_again(tmp_path: Path) -> None:
    agreement = Agreement(tmp_path, 0)
    for step in range(6):
        Control(1, shares=(0.25, 0.75)).write(tmp_path)
        agreement.due(step, 10.0 * step)
    assert published(tmp_path) == SPARE


def test_shares_of_later_steps_are_known_once_they_are_agreed(tmp_path: Path) -> None:
    agreement = Agreement(tmp_path, 0)
    Control(1, shares=(0.25, 0.75)).write(tmp_path)
    agreement.due(0, 0.0)
    assert [agreement.shares_at(step, None) for step in range(4)] == [None, None, (0.25, 0.75), (0.25, 0.75)]


def test_a_file_that_cannot_be_used_changes_nothing_and_the_next_one_counts(tmp_path: Path) -> None:
    leader, follower = (Agreement(tmp_path, rank) for rank in range(2))
    times = itertools.count(0, 10)
    (tmp_path / "control.json").write_text("{", encoding="ascii")
    (tmp_path / AGREED).write_text('{"version": 1, "from_step": -1}', encoding="ascii")
    for agreement in (leader, follower):
        with pytest.raises(InputError):
            agreement.due(5, float(next(times)))
    Control(1).write(tmp_path)
    assert leader.due(6, float(next(times))) == []
    for agreement in (leader, follower):
        assert agreement.due(7, float(next(times))) == []
        assert agreement.due(8, float(next(times))) == [Due(Control(1), late=False)]
