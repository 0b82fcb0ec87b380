"""What is computed from the measured iterations of a testbed."""

import pytest
from benchmarks.testbed.interleaving import gain, mean_s, overlap
from benchmarks.testbed.served import IterationTimes, Measured


def iterations(count: int, compute_s: float, exchange_s: float, from_s: float = 0.0) -> Measured:
    """Return iterations without waits, one after the other."""
    whole_s = compute_s + exchange_s
    starts_s = [from_s + whole_s * number for number in range(count)]
    return Measured(tuple(IterationTimes(at, at, at + compute_s, at + whole_s) for at in starts_s))


def test_exchanges_overlap_wholly_or_not_at_all() -> None:
    first = iterations(10, 0.2, 0.2)
    assert overlap(first, first) == pytest.approx(1.0)
    assert overlap(first, iterations(10, 0.2, 0.2, from_s=0.2)) == pytest.approx(0.0, abs=1e-9)
    assert overlap(first, iterations(10, 0.2, 0.2, from_s=0.1)) == pytest.approx(0.5, abs=0.05)


def test_a_gain_is_the_ratio_of_mean_iterations_over_all_rounds() -> None:
    before, after = [iterations(100, 0.2, 0.4)] * 2, [iterations(150, 0.2, 0.2)] * 2
    assert mean_s(before) == pytest.approx(0.6)
    found = gain([before, before], [after, after])
    assert found == pytest.approx((1.5, 1.5, 1.5))
    assert str(found) == "1.50x (1.50 to 1.50)"


def test_the_interval_of_a_gain_shows_how_iterations_vary() -> None:
    calm, slow = iterations(50, 0.2, 0.2), iterations(50, 0.2, 0.6, from_s=20.0)
    before = [Measured(calm.times + slow.times)]
    found = gain([before], [[iterations(150, 0.2, 0.2)]])
    assert found.times == pytest.approx(1.5)
    assert found.least < 1.4 < 1.6 < found.most


def test_a_job_that_stands_still_for_most_of_the_time_has_an_interval_nevertheless() -> None:
    usual = iterations(30, 0.2, 0.2)
    stalled = Measured((*iterations(2, 0.2, 0.2).times, IterationTimes(0.8, 0.8, 1.0, 12.0)))
    found = gain([[usual, stalled]], [[usual, usual]])
    assert found.times == pytest.approx((0.4 + 4.0) / 2 / 0.4)
    assert found.least <= found.times <= found.most
