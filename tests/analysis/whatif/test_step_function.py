import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.traces.inspect import StepFunction

STRETCHES = st.lists(
    st.tuples(st.integers(-3, 12), st.integers(0, 6), st.integers(1, 8)).map(lambda s: (s[0], s[0] + s[1], s[2]))
)


def steps(
    stretches: list[tuple[int, int, int]], window: tuple[int, int] = (0, 10), base: float = 0.0
) -> StepFunction:
    table = np.array(stretches, dtype=float).reshape(-1, 3)
    return StepFunction.of(table[:, 0], table[:, 1], table[:, 2], window, base)


def test_the_mean_is_over_time() -> None:
    made = steps([(2, 4, 5), (3, 13, 2)])  # 0, 5, 7, 2 from 0, 2, 3, 4 s on
    assert made.at_s.tolist() == [0, 2, 3, 4]
    assert made.value.tolist() == [0, 5, 7, 2]
    assert made.mean == pytest.approx((0 * 2 + 5 + 7 + 2 * 6) / 10)


def test_a_share_of_time_counts_equal_values() -> None:
    made = steps([(2, 4, 5), (3, 13, 2)])
    assert made.share_from(5) == pytest.approx(0.2)
    assert made.share_from(2) == pytest.approx(0.8)
    assert made.share_from(0) == 1.0


def test_a_value_holds_until_the_next() -> None:
    made = steps([(2, 4, 5)])
    assert made.at(np.array([-1.0, 0.0, 2.0, 3.9, 4.0, 99.0])).tolist() == [0, 0, 5, 5, 0, 0]


@given(STRETCHES, st.integers(0, 20))
def test_every_second_has_the_sum_of_its_stretches(stretches: list[tuple[int, int, int]], base: int) -> None:
    made = steps(stretches, base=base)
    moments = np.linspace(0.5, 9.5, 10)
    held = [base + sum(weight for start, end, weight in stretches if start <= at < end) for at in moments]
    assert made.at(moments).tolist() == held
    assert made.mean == pytest.approx(np.mean(held))
