import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.service.point_history import Point, PointHistory


def point(at: int, attempt: int = 1, *, iteration_s: float = 0.1, paced: bool = False, count: int = 10) -> Point:
    return Point(float(at), attempt, 0, at, count, iteration_s, 0.01, 0.05, 0.02, 8.0, paced, 0.0)


def test_a_few_points_stay_as_they_are() -> None:
    history = PointHistory(4)
    given_points = [point(at) for at in range(4)]
    history.extend(given_points)
    assert list(history) == given_points


def test_neighbours_become_one_with_their_mean() -> None:
    history = PointHistory(3)
    history.extend([point(1, iteration_s=0.1), point(2, iteration_s=0.4, count=20), point(3), point(4)])
    first, second = history
    assert (first.at_s, first.step, first.iterations) == (2.0, 2, 30)
    assert first.iteration_s == pytest.approx(0.3)
    assert (second.at_s, second.iterations) == (4.0, 20)


def test_what_changed_between_two_points_is_kept_apart_as_long_as_possible() -> None:
    history = PointHistory(4)
    history.extend([point(1), point(2, paced=True), point(3, attempt=2), point(4, attempt=2), point(5, attempt=2)])
    assert [(each.attempt, each.paced, each.at_s) for each in history] == [
        (1, False, 1.0),
        (1, True, 2.0),
        (2, False, 4.0),
        (2, False, 5.0),
    ]


def test_of_many_attempts_the_latest_are_kept() -> None:
    history = PointHistory(3)
    history.extend(point(at, attempt=at) for at in range(1, 9))
    assert [each.attempt for each in history] == [6, 7, 8]


POINTS = st.lists(
    st.tuples(st.booleans(), st.floats(0.001, 10.0), st.integers(1, 50), st.booleans()), min_size=1, max_size=200
)


@given(POINTS, st.integers(2, 12), st.integers(1, 7))
def test_there_are_never_too_many_and_all_iterations_of_an_attempt_are_counted(
    told: list[tuple[bool, float, int, bool]], most: int, at_once: int
) -> None:
    made, attempt = [], 1
    for at, (paced, iteration_s, count, restarted) in enumerate(told):
        attempt += restarted
        made.append(point(at, attempt, iteration_s=iteration_s, paced=paced, count=count))
    history = PointHistory(most)
    for first in range(0, len(made), at_once):
        history.extend(made[first : first + at_once])
        assert len(history) <= most
    kept = list(history)
    assert [each.at_s for each in kept] == sorted(each.at_s for each in kept)
    assert kept[-1].at_s == made[-1].at_s
    first_attempt = kept[0].attempt
    for number in {each.attempt for each in kept} - {first_attempt}:  # of the first some may be dropped
        mine, all_of = [each for each in kept if each.attempt == number], [p for p in made if p.attempt == number]
        assert sum(each.iterations for each in mine) == sum(each.iterations for each in all_of)
        total_s = sum(each.iterations * each.iteration_s for each in all_of)
        assert sum(each.iterations * each.iteration_s for each in mine) == pytest.approx(total_s)
