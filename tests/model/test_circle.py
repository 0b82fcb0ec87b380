"""Circles: what they hold, what they refuse, and what turning and stretching leaves as it is."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.model.circle import DEGREES, Arc, Circle
from cranny.model.errors import InputError

VGG16 = Circle(0.255, ((0.141, 0.255, 40.0),))


@st.composite
def circles(draw: st.DrawFn) -> Circle:
    iteration_s = draw(st.floats(0.01, 2.0))
    edges = sorted(draw(st.lists(st.floats(0.0, 1.0), min_size=0, max_size=8, unique=True)))
    arcs: list[Arc] = []
    for start, end in zip(edges[::2], edges[1::2], strict=False):
        if end - start > 1e-6:
            arcs.append((start * iteration_s, end * iteration_s, draw(st.floats(0.1, 100.0))))
    return Circle(iteration_s, tuple(arcs))


def test_the_paper_s_vgg16_is_down_for_199_degrees() -> None:
    assert VGG16.down_s == pytest.approx(0.141)
    assert VGG16.down_s / VGG16.iteration_s * DEGREES == pytest.approx(199.06, abs=0.01)
    assert VGG16.up_s == pytest.approx(0.114)


def test_a_circle_knows_its_demand_at_any_time() -> None:
    assert VGG16.demand(0.1) == 0.0
    assert VGG16.demand(0.2) == 40.0
    assert VGG16.demand(0.2 + 7 * 0.255) == 40.0
    assert VGG16.demand(-0.01) == 40.0
    assert VGG16.gigabits == pytest.approx(0.114 * 40.0)
    assert VGG16.mean_gbps == pytest.approx(0.114 / 0.255 * 40.0)
    assert VGG16.peak_gbps == 40.0


def test_a_half_up_job_computes_first_and_sends_then() -> None:
    assert Circle.half_up(0.2, 50.0) == Circle(0.2, ((0.1, 0.2, 50.0),))


def test_an_arc_starts_at_its_start_and_is_over_at_its_end() -> None:
    circle = Circle(1.0, ((0.25, 0.5, 10.0), (0.5, 0.75, 20.0)))
    assert [circle.demand(at) for at in (0.0, 0.25, 0.5, 0.75)] == [0.0, 10.0, 20.0, 0.0]


def test_a_job_without_arcs_asks_for_nothing() -> None:
    silent = Circle(0.1)
    assert (silent.gigabits, silent.peak_gbps, silent.down_s, silent.demand(0.05)) == (0.0, 0.0, 0.1, 0.0)


def test_turning_a_circle_delays_the_job_and_may_split_an_arc() -> None:
    later = VGG16.rotated(0.1)
    assert [arc[2] for arc in later.arcs] == [40.0, 40.0]
    assert later.arcs[0][:2] == pytest.approx((0.0, 0.1))
    assert later.arcs[1][:2] == pytest.approx((0.241, 0.255))


def test_circles_are_made_of_plain_sorted_numbers_and_can_be_looked_up() -> None:
    circle = Circle(1, [(0.5, 0.75, 20), [0.0, 0.25, 10]])  # type: ignore[arg-type]
    assert circle == Circle(1.0, ((0.0, 0.25, 10.0), (0.5, 0.75, 20.0)))
    assert {circle: "found"}[Circle(1.0, circle.arcs)] == "found"


def test_stretching_keeps_angles_and_rates() -> None:
    circle = Circle(0.2553, ((0.1, 0.2553, 40.0),))
    rounded = circle.stretched(0.255)
    assert rounded.iteration_s == pytest.approx(0.255)
    assert rounded.mean_gbps == pytest.approx(circle.mean_gbps)


@pytest.mark.parametrize(
    ("iteration_s", "arcs", "problem"),
    [
        (0.0, (), "iteration_s must be a positive number"),
        (math.nan, (), "iteration_s must be a positive number"),
        (1.0, "abc", "arcs must be a list"),
        (1.0, ((0.1, 0.2),), r"arcs\[0\] must be \(start_s, end_s, gbps\)"),
        (1.0, ((-0.1, 0.2, 1.0),), r"arcs\[0\]: start_s must be"),
        (1.0, ((0.2, 0.1, 1.0),), r"arcs\[0\] must end after it starts"),
        (1.0, ((0.2, 1.1, 1.0),), r"ends at 1.1 s, after the iteration of 1 s"),
        (1.0, ((0.2, 0.4, 0.0),), r"arcs\[0\]: gbps must be a positive number"),
        (1.0, ((0.2, 0.4, 1.0), (0.3, 0.5, 1.0)), "arcs overlap: one ends at 0.4 s, the next starts at 0.3 s"),
    ],
)
def test_circles_that_make_no_sense_are_refused(iteration_s: float, arcs: tuple[Arc, ...], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Circle(iteration_s, arcs)


@settings(max_examples=examples(60))
@given(circles(), st.floats(-5.0, 5.0), st.floats(0.0, 1.0))
def test_turning_moves_demand_in_time_and_changes_nothing_else(
    circle: Circle, shift_s: float, share: float
) -> None:
    turned = circle.rotated(shift_s)
    assert turned.gigabits == pytest.approx(circle.gigabits, abs=1e-9)
    moment = share * circle.iteration_s
    edges = [edge for start, end, _ in circle.arcs for edge in (start, end)]
    near = [abs((moment - edge + 1e-7) % circle.iteration_s) < 2e-7 for edge in [*edges, 0.0]]
    if not any(near):
        assert turned.demand(moment + shift_s) == circle.demand(moment)


@settings(max_examples=examples(40))
@given(circles(), st.floats(0.01, 2.0))
def test_stretching_keeps_the_mean_demand(circle: Circle, iteration_s: float) -> None:
    assert circle.stretched(iteration_s).mean_gbps == pytest.approx(circle.mean_gbps)
    assert circle.stretched(iteration_s).iteration_s == iteration_s
