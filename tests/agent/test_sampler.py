"""Samples of ranks that do not get equally many."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cranny.agent.job import JobAgent
from cranny.agent.pacing import Pacer
from cranny.agent.sampler import ShareSampler
from cranny.channel import files
from cranny.channel.control import Control, samples
from cranny.model.errors import InputError
from tests.examples import examples

SHARES = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5).map(
    lambda each: tuple(one / sum(each) for one in each)
)


class Training:
    """Ranks that draw samples; what they draw counts as used."""

    def __init__(
        self, size: int, batch: int, shares: tuple[float, ...], first_step: int, *, seed: int = 0
    ) -> None:
        self.step, self.shares, self.ranks = first_step, shares, len(shares)
        self.samplers = [
            ShareSampler(
                range(size),
                batch,
                rank=rank,
                seed=seed,
                shuffle=True,
                next_step=lambda: self.step,
                divide=lambda _, count: samples(count, self.shares, self.ranks),
            )
            for rank in range(self.ranks)
        ]

    def iterate(self, times: int) -> list[list[int]]:
        """Return the samples of iterations, over all ranks."""
        found: list[list[int]] = []
        while len(found) < times:
            for parts in zip(*self.samplers, strict=True):
                self.step += 1
                found.append([each for part in parts for each in part])
                if len(found) == times:
                    break
        return found


@settings(max_examples=examples(100))
@given(st.integers(5, 60), st.integers(5, 20), st.lists(st.tuples(SHARES, st.integers(1, 9)), max_size=4))
def test_each_sample_of_an_epoch_comes_once_whatever_the_ranks_and_their_shares(
    size: int, batch: int, attempts: list[tuple[tuple[float, ...], int]]
) -> None:
    iterations = -(-size // batch)
    whole = Training(size, batch, (1.0,), 0).iterate(4 * iterations)
    for begin in range(0, len(whole), iterations):
        epoch = whole[begin : begin + iterations]
        assert sorted(each for one in epoch for each in one) == list(range(size))
        assert max(map(len, epoch)) <= batch
        assert max(map(len, epoch)) - min(map(len, epoch)) <= 1
    assert iterations == 1 or whole[:iterations] != whole[iterations : 2 * iterations]
    found: list[list[int]] = []
    for shares, times in attempts:  # each goes on where the one before stopped, in the middle of an epoch
        found += Training(size, batch, shares, len(found)).iterate(times)
    assert found == whole[: len(found)] or len(found) > len(whole)


def test_an_epoch_goes_on_with_other_shares_and_after_it_was_left() -> None:
    training = Training(20, 5, (0.2, 0.8), 0)
    whole = Training(20, 5, (1.0,), 0).iterate(8)
    found = training.iterate(3)
    training.shares = (0.6, 0.4)
    assert len(training.samplers[0]) == 1
    found += training.iterate(5)
    assert found == whole
    assert Training(20, 5, (1.0,), 0, seed=1).iterate(8) != whole


def test_samples_that_were_drawn_ahead_are_known_by_their_iteration() -> None:
    job = JobAgent(batch=7, rank=0, ranks=2)
    sampler = job.sampler(range(15))  # three iterations of five
    assert sampler.iterations == 3
    drawn = [list(each) for each in sampler]
    assert [len(each) for each in drawn] == [3, 3, 3]
    assert sampler.ahead == 3
    for _ in range(3):
        job.step()
        assert job.samples == 3
        assert job.scale(1.0) == pytest.approx(3 * 2 / 5)
    job.step()
    assert job.samples == 4  # of a whole batch, since none were drawn
    assert job.scale(1.0) == pytest.approx(4 * 2 / 7)


def test_samples_that_are_drawn_after_the_step_belong_to_it() -> None:
    job = JobAgent(batch=5, rank=1, ranks=2, seed=2)
    batches = iter(job.sampler(range(9), shuffle=False))  # four, then five
    seen = []
    for _ in range(4):
        job.step()
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(job._sampler or ())
            batch = next(batches)
        seen.append(batch)
        assert job.samples == len(batch)
    assert seen == [[2, 3], [7, 8], [2, 3], [7, 8]]


class Rank:
    """A rank whose loader draws samples some iterations ahead, as a `DataLoader` with workers does."""

    def __init__(self, folder: Path, rank: int, ahead: int, lead: int) -> None:
        self.now_s = 0.0
        self.job = JobAgent(
            rank=rank,
            ranks=2,
            batch=6,
            lead=lead,
            env={"CRANNY_CHANNEL": str(folder)},
            clock=self.clock,
            pacer=Pacer(clock=self.clock, timer=self.clock),
        )
        self.sampler, self.ahead = self.job.sampler(range(30)), ahead  # five iterations
        self.started = 0
        self.loaded: list[list[int]] = []
        self.rest: Iterator[list[int]] | None = None

    def clock(self) -> float:
        return self.now_s

    def start(self) -> list[int]:
        """Start an iteration; return its samples."""
        self.now_s += 1.0
        if not self.loaded:
            self.rest = iter(self.sampler)
        while self.rest is not None and len(self.loaded) < self.ahead:
            drawn = next(self.rest, None)
            if drawn is None:
                break
            self.loaded.append(drawn)
        self.job.step()
        self.started += 1
        return self.loaded.pop(0)


@settings(max_examples=examples(60))
@given(
    st.integers(1, 7),
    st.sampled_from([0, 2]),
    st.lists(st.integers(0, 1), min_size=20, max_size=70),
    st.lists(st.integers(0, 69), max_size=6),
)
def test_samples_that_are_loaded_ahead_come_once_when_shares_change(
    tmp_path_factory: pytest.TempPathFactory, ahead: int, lead: int, turns: list[int], asked: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("channel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FRESH_S", float("inf"))  # the clock of this test is not that of files
        ranks = [Rank(folder, rank, ahead, lead) for rank in range(2)]
        for rank in ranks:
            rank.now_s = 4e9
        used: list[list[list[int]]] = [[], []]
        for turn, choice in enumerate(turns):
            if turn in asked:
                share = 0.2 + 0.1 * (turn % 6)
                Control(turn, shares=(share, 1.0 - share)).write(folder)
            least = min(rank.started for rank in ranks)
            number = choice if ranks[choice].started <= least + lead else 1 - choice
            used[number].append(ranks[number].start())
    for begin in range(0, 5 * (min(map(len, used)) // 5), 5):
        epoch = [each for iterations in used for one in iterations[begin : begin + 5] for each in one]
        assert sorted(epoch) == list(range(30))


def test_a_sampler_needs_a_batch_and_samples() -> None:
    with pytest.raises(InputError, match="give `batch`"):
        JobAgent(rank=0, ranks=1).sampler([1])
    with pytest.raises(InputError, match="without samples"):
        JobAgent(rank=0, ranks=1, batch=1).sampler([])
