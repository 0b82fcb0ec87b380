"""Samples of ranks that do not get equally many."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cranny.agent.job import JobAgent
from cranny.agent.sampler import ShareSampler
from cranny.channel.control import samples
from cranny.model.errors import InputError

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


@settings(max_examples=100)
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
    assert sampler.ahead(0) == 2
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


def test_a_sampler_needs_a_batch_and_samples() -> None:
    with pytest.raises(InputError, match="give `batch`"):
        JobAgent(rank=0, ranks=1).sampler([1])
    with pytest.raises(InputError, match="without samples"):
        JobAgent(rank=0, ranks=1, batch=1).sampler([])
