import numpy as np
import polars as pl
import pytest

from cranny.report.sampling import cdf, settled, share_up_to, slice_times_s, slices


def test_slices_hold_mean_lowest_and_highest() -> None:
    timeline = pl.DataFrame({"time_s": [0.0, 1.0, 2.0, 9.0, 10.0], "used": [1.0, 3.0, 8.0, 4.0, 6.0]})
    cut = slices(timeline, "used", (0.0, 10.0), 5)
    assert cut.mean == (2.0, 8.0, None, None, 5.0)
    assert cut.low == (1.0, 8.0, None, None, 4.0)
    assert cut.high == (3.0, 8.0, None, None, 6.0)
    assert slice_times_s((0.0, 10.0), 5) == (1.0, 3.0, 5.0, 7.0, 9.0)


def test_nulls_and_missing_columns_leave_gaps() -> None:
    timeline = pl.DataFrame({"time_s": [0.0, 9.0], "used": [None, 4.0]})
    assert slices(timeline, "used", (0.0, 10.0), 2).mean == (None, 4.0)
    assert slices(timeline, "absent", (0.0, 10.0), 2).mean == (None, None)


def test_a_distribution_has_few_points_and_keeps_its_ends() -> None:
    values = np.random.default_rng(0).lognormal(6, 2, 50_000)
    x, share = cdf(values)
    assert len(x) == 200
    assert (x[0], x[-1]) == (values.min(), values.max())
    assert list(x) == sorted(x)
    assert share[-1] == 1.0
    assert share_up_to(x, share, float(np.median(values))) == pytest.approx(0.5, abs=0.01)


def test_a_pile_of_equal_values_becomes_one_upright_line() -> None:
    x, share = cdf(np.array([0.0] * 90 + [5.0] * 10))
    assert x == (0.0, 0.0, 5.0, 5.0)
    assert share[1] == pytest.approx(0.9, abs=0.01)


def test_few_values_are_steps_and_no_slopes() -> None:
    assert cdf(np.array([7.0, 2.0])) == ((2.0, 2.0, 7.0, 7.0), (0.0, 0.5, 0.5, 1.0))
    assert cdf(np.array([3.0])) == ((3.0, 3.0), (0.0, 1.0))


def test_an_empty_distribution_has_no_points() -> None:
    assert cdf(np.array([np.nan])) == ((), ())


def test_of_arrivals_at_one_moment_the_last_is_what_held() -> None:
    timeline = pl.DataFrame({"time_s": [0.0, 0.0, 5.0], "used": [1.0, 2.0, 1.0]})
    assert settled(timeline)["used"].to_list() == [2.0, 1.0]
    assert slices(settled(timeline), "used", (0.0, 10.0), 2).mean == (2.0, 1.0)
    assert settled(pl.DataFrame()).is_empty()
