import pytest

from cranny.report.confidence import estimate


def test_one_value_has_no_interval() -> None:
    assert estimate([3.0]).half is None


def test_five_values_have_the_interval_of_students_t() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found.mean == 3.0
    assert found.half == pytest.approx(2.7764 * (2.5 / 5) ** 0.5)  # t(4) s / sqrt(n), s^2 = 2.5


def test_past_the_table_t_goes_on_without_a_step() -> None:
    wide, narrow = (estimate([0.0, 1.0] * pairs).half for pairs in (15, 17))  # 29 and 33 degrees of freedom
    assert wide is not None
    assert narrow is not None
    assert 0.9 < narrow / wide < 1.0
