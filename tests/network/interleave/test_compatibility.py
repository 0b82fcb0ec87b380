"""Scores and rotations on one link: the paper's values, closed forms, and every rotation tried."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import cassini as book

from cranny.model.arrays import Floats
from cranny.model.circle import Arc, Circle
from cranny.model.errors import InputError
from cranny.network.interleave.compatibility import compatibility
from cranny.network.interleave.unified_circle import Search, UnifiedCircle, curve, doubled, unify

C = 50.0
COARSE = Search(precision_deg=30.0, angles_per_iteration=4, budget=10**12)
LONG = Search(budget=10**12)


def up(iteration_s: float, share: float, start: float = 0.0, gbps: float = C) -> Circle:
    """Return a job that sends for a share of its iteration."""
    return Circle(iteration_s, ((start * iteration_s, (start + share) * iteration_s, gbps),))


def demands(jobs: Sequence[Circle], unified: UnifiedCircle) -> Floats:
    """Return bw_circle_j(angle) of Table 1: the mean Gbps of each job at each angle, (jobs, angles)."""
    return doubled(jobs, unified)[:, : unified.angles]


@st.composite
def circle(draw: st.DrawFn, times_ms: st.SearchStrategy[int]) -> Circle:
    iteration_s = draw(times_ms) / 1e3
    edges = sorted(draw(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6, unique=True)))
    arcs: list[Arc] = []
    for start, end in zip(edges[::2], edges[1::2], strict=False):
        if end - start > 1e-3:
            arcs.append((start * iteration_s, end * iteration_s, draw(st.floats(5.0, 60.0))))
    return Circle(iteration_s, tuple(arcs))


def drawn(rng: np.random.Generator, jobs: int) -> tuple[Circle, ...]:
    """Draw jobs of one iteration time with one or two arcs each, together a bit too much for the link."""
    made = []
    for _ in range(jobs):
        edges = np.sort(rng.random(2 * int(rng.integers(1, 3)))) * 0.2
        made.append(
            Circle(0.2, tuple((a, b, rng.uniform(0.3, 1.0) * C) for a, b in edges.reshape(-1, 2).tolist()))
        )
    return tuple(made)


def test_the_unified_circle_of_40_and_60_ms_has_a_perimeter_of_120() -> None:
    unified = unify((0.040, 0.060))
    assert unified.perimeter_s == pytest.approx(0.120)
    assert unified.turns == (3, 2)
    assert unified.angles == 72
    assert unified.rotations == (24, 36)
    assert unified.error == pytest.approx(0.0, abs=1e-12)


def test_two_equal_half_up_jobs_score_a_half_unshifted_and_one_half_an_iteration_apart() -> None:
    job = up(0.2, 0.5)
    unified = unify((0.2, 0.2))
    assert curve((job, job), (0.0, 0.0), unified).score(C) == pytest.approx(0.5)
    found = compatibility((job, job), C)
    assert found.score == 1.0
    assert found.shifts_s == pytest.approx((0.0, 0.1))
    assert found.rotations_deg == pytest.approx((0.0, 180.0))
    assert found.method == "exact"
    assert curve((job, job), found.shifts_s, unified).score(C) == pytest.approx(1.0)


@pytest.mark.parametrize(("first", "second"), [(0.6, 0.6), (0.75, 0.5), (1.0, 1.0), (0.25, 0.5)])
def test_two_jobs_at_full_rate_overlap_by_what_does_not_fit(first: float, second: float) -> None:
    found = compatibility((up(0.1, first), up(0.1, second)), C, Search(precision_deg=1.0))
    assert found.score == pytest.approx(1.0 - max(first + second - 1.0, 0.0), abs=1e-9)


def test_jobs_that_always_send_at_full_rate_score_two_less_their_number() -> None:
    assert compatibility((up(0.1, 1.0),) * 4, C).score == pytest.approx(-2.0)


def test_a_third_of_the_circle_each_lets_three_jobs_share_a_link() -> None:
    found = compatibility((up(0.3, 1 / 3),) * 3, C)
    assert found.score == 1.0
    assert sorted(found.rotations_deg) == pytest.approx([0.0, 120.0, 240.0])


def test_jobs_of_40_and_60_ms_fit_when_one_is_turned_by_30_degrees() -> None:
    jobs = (up(0.040, 0.25), up(0.060, 1 / 6))
    unified = unify((0.040, 0.060))
    assert curve(jobs, (0.0, 0.0), unified).score(C) == pytest.approx(1.0 - 10 / 120)
    assert curve(jobs, (0.010, 0.0), unified).score(C) == pytest.approx(1.0)  # 30 degrees of 120 ms
    assert compatibility(jobs, C).score == 1.0


def test_small_demands_need_not_be_kept_apart() -> None:
    """Snapshot 2 of the paper's Table 2: only the two large ones of three jobs are interleaved."""
    jobs = (up(0.3, 0.5, gbps=40.0), up(0.3, 0.5, gbps=40.0), up(0.3, 1.0, gbps=10.0))
    found = compatibility(jobs, C)
    assert found.score == 1.0
    assert abs(found.shifts_s[0] - found.shifts_s[1]) == pytest.approx(0.15)


def test_the_paper_s_first_snapshot_fits_at_the_paper_s_shifts() -> None:
    """Table 2 gives communication times of 138 and 148 ms and shifts of 0 and 150 ms; the iteration is ours."""
    jobs = (Circle(0.3, ((0.0, 0.138, C),)), Circle(0.3, ((0.0, 0.148, C),)))
    assert curve(jobs, (0.0, 0.150), unify((0.3, 0.3))).score(C) == pytest.approx(1.0)
    assert compatibility(jobs, C).score == 1.0
    assert curve(jobs, (0.0, 0.0), unify((0.3, 0.3))).score(C) == pytest.approx(1.0 - 138 / 300)


def test_the_paper_s_fourth_snapshot_is_two_equal_jobs_that_send_for_six_tenths() -> None:
    """Table 2 gives 0.8 for two RoBERTa jobs; two equal jobs at full rate score that if they send for 60 %."""
    assert compatibility((up(0.2, 0.6),) * 2, C, Search(precision_deg=1.0)).score == pytest.approx(0.8)


def test_one_job_alone_or_jobs_that_never_clash_are_not_turned() -> None:
    assert compatibility((up(0.1, 0.5, gbps=75.0),), C).score == pytest.approx(0.75)
    found = compatibility((up(0.1, 0.5, gbps=25.0), up(0.17, 0.5, gbps=25.0)), C)
    assert (found.score, found.shifts_s, found.method) == (1.0, (0.0, 0.0), "exact")


def test_iteration_times_without_a_small_multiple_are_stretched_and_the_error_is_told() -> None:
    unified = unify((0.251, 0.255))
    assert unified.turns == (1, 1)
    assert unified.perimeter_s == pytest.approx(0.253, abs=1e-4)
    assert unified.error == pytest.approx(0.0079, abs=1e-4)
    assert unify((0.2504, 0.2504)).error == pytest.approx(0.4 / 250.4, rel=1e-6)
    assert unify((0.138, 0.148)).error < 0.01  # 11 turns against 10 or so: a longer circle than the first
    assert unify((0.138, 0.148)).turns[0] == unify((0.138, 0.148)).turns[1] + 1


def test_a_finer_quantum_makes_the_error_smaller() -> None:
    assert unify((0.2504, 0.2504)).error == pytest.approx(0.4 / 250.4, rel=1e-6)
    assert unify((0.2504, 0.2504), Search(quantum_s=1e-4)).error == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("quantum_s", [1e-3, 1e-2, 1e6])
@pytest.mark.parametrize(
    ("times_s", "turns"), [((0.0014, 0.0014), (1, 1)), ((0.0003, 0.0004), (4, 3)), ((0.0144, 0.0288), (2, 1))]
)
def test_times_of_a_few_quanta_are_not_rounded_but_fitted(
    times_s: tuple[float, ...], turns: tuple[int, ...], quantum_s: float
) -> None:
    unified = unify(times_s, Search(quantum_s=quantum_s))
    assert unified.turns == turns
    assert unified.error == pytest.approx(0.0, abs=1e-9)


def test_two_half_up_jobs_of_a_fraction_of_a_quantum_are_shifted_by_half_an_iteration() -> None:
    job = up(0.0014, 0.5)
    found = compatibility((job, job), C)
    assert found.score == 1.0
    assert sorted(found.shifts_s) == pytest.approx([0.0, 0.0007])


@settings(max_examples=examples(60))
@given(
    st.lists(st.floats(0.0002, 0.3), min_size=2, max_size=4),
    st.sampled_from([1e-4, 1e-3, 0.02]),
)
def test_shifts_are_less_than_one_real_iteration_and_score_on_curves_what_they_score_on_angles(
    times_s: list[float], quantum_s: float
) -> None:
    jobs = tuple(up(time_s, 0.5, 0.1) for time_s in times_s)
    found = compatibility(jobs, C, Search(precision_deg=5.0, quantum_s=quantum_s, budget=10**6))
    assert all(0.0 <= shift_s < time_s for shift_s, time_s in zip(found.shifts_s, times_s, strict=True))
    # Angles see means: an edge within an angle may hide some excess of the curve, never add to it.
    assert curve(jobs, found.shifts_s, found.unified).score(C) <= found.score + 1e-6


@settings(max_examples=examples(100))
@given(st.lists(st.floats(0.005, 3.0), min_size=1, max_size=8), st.sampled_from([1.0, 5.0, 30.0]))
def test_a_unified_circle_holds_whole_iterations_and_enough_angles(times_s: list[float], precision: float) -> None:
    unified = unify(tuple(times_s), Search(precision_deg=precision))
    for time_s, turns, rotations in zip(times_s, unified.turns, unified.rotations, strict=True):
        assert turns >= 1
        assert 0 <= rotations * turns - unified.angles < turns  # Eq. 4
        assert abs(unified.perimeter_s / turns / time_s - 1.0) <= unified.error + 1e-12
    if math.lcm(*unified.turns) <= 360.0 / precision:  # then each iteration is a whole number of angles
        assert all(unified.angles % turns == 0 for turns in unified.turns)
    assert 360.0 / unified.angles <= precision


@pytest.mark.parametrize("jobs", [2, 3, 5, 8])
def test_a_few_turns_are_enough_for_iteration_times_of_all_kinds(jobs: int) -> None:
    rng = np.random.default_rng(jobs)
    errors = [unify(tuple(rng.uniform(0.05, 0.4, jobs).tolist())).error for _ in range(100)]
    assert max(errors) < 0.03


def test_times_that_are_no_whole_numbers_of_angles_are_searched_as_by_the_book() -> None:
    """One job stands still; the others turn by whole angles within their iteration."""
    rng = np.random.default_rng(9)
    for _ in range(20):
        jobs = tuple(
            up(time_s, rng.uniform(0.3, 0.7), rng.uniform(0.0, 0.3))
            for time_s in rng.uniform(0.1, 0.3, 3).tolist()
        )
        found = compatibility(jobs, C, Search(precision_deg=12.0, angles_per_iteration=1, budget=10**12))
        if all(found.unified.angles % turns == 0 for turns in found.unified.turns):
            continue
        rotations = list(found.unified.rotations)
        rotations[max(range(3), key=lambda job: (rotations[job], jobs[job].mean_gbps))] = 1
        expected, _ = book.best(demands(jobs, found.unified).tolist(), rotations, C)
        assert found.score == pytest.approx(expected, abs=1e-9)


@settings(max_examples=examples(60))
@given(circle(st.integers(20, 400)), st.integers(1, 9), st.integers(9, 300))
def test_angles_hold_all_that_a_job_sends(job: Circle, turns: int, angles: int) -> None:
    unified = UnifiedCircle(turns * job.iteration_s, (turns,), angles, (job.iteration_s,))
    (row,) = demands([job], unified)
    assert row.mean() == pytest.approx(job.mean_gbps, abs=1e-9)
    for angle in range(0, angles, 5):
        at_s = ((np.arange(200) + 0.5) / 200 + angle) * unified.perimeter_s / angles
        sampled = np.mean([job.demand(moment) for moment in at_s])
        assert row[angle] == pytest.approx(sampled, abs=0.011 * job.peak_gbps * len(job.arcs))


@settings(max_examples=examples(60))
@given(st.lists(circle(st.sampled_from([40, 60, 120])), min_size=2, max_size=3))
def test_the_exact_search_finds_what_trying_every_rotation_finds(jobs: list[Circle]) -> None:
    found = compatibility(tuple(jobs), C, COARSE)
    unified = found.unified
    table = demands(jobs, unified).tolist()
    expected, _ = book.best(table, unified.rotations, C)
    assert found.method == "exact"
    assert found.score == pytest.approx(expected, abs=1e-9)
    turned = [round(shift_s * unified.angles / unified.perimeter_s) for shift_s in found.shifts_s]
    assert book.score(table, turned, C) == pytest.approx(found.score, abs=1e-9)
    for turn, rotations in zip(turned, unified.rotations, strict=True):
        assert 0 <= turn < rotations


def test_four_jobs_some_of_them_equal_are_searched_as_well_as_by_trying_every_rotation() -> None:
    rng = np.random.default_rng(7)
    coarse = Search(precision_deg=30.0, angles_per_iteration=1, budget=10**12)
    for _ in range(8):
        one, other = drawn(rng, 2)
        jobs = (one, other, one, one)
        found = compatibility(jobs, C, coarse)
        table = demands(jobs, found.unified)
        still = (1, *found.unified.rotations[1:])  # the first job may stand still, to be done in time
        expected, _ = book.best(table.tolist(), still, C)
        assert found.score == pytest.approx(expected, abs=1e-9)


@settings(max_examples=examples(40))
@given(st.lists(circle(st.sampled_from([50, 100, 200])), min_size=2, max_size=4))
def test_no_curve_beats_the_bound_and_the_score_is_near_the_curve_s(jobs: list[Circle]) -> None:
    found = compatibility(tuple(jobs), C)
    exact = curve(jobs, found.shifts_s, found.unified).score(C)
    assert exact <= found.score + 1e-9  # averaging over an angle hides excess, and never adds any
    assert found.score <= found.bound + 1e-12
    edges = sum(2 * len(job.arcs) * turns for job, turns in zip(jobs, found.unified.turns, strict=True))
    most = max(sum(job.peak_gbps for job in jobs), C) / C
    assert found.score - exact <= edges / found.unified.angles * most


def test_the_bounded_search_is_within_two_percent_of_the_exact_one() -> None:
    rng = np.random.default_rng(3)
    for jobs in (2, 3, 4, 5):
        for _ in range(12):
            circles = drawn(rng, jobs)
            exact = compatibility(circles, C, LONG)
            bounded = compatibility(circles, C, Search(exact_jobs=1))
            assert exact.method == "exact"
            assert exact.score - bounded.score <= 0.02 * max(abs(exact.score), 1e-9)
            assert bounded.bound >= exact.score - 1e-9


def test_a_search_that_runs_out_of_its_budget_says_so_and_bounds_what_is_left() -> None:
    rng = np.random.default_rng(11)
    short = [compatibility(drawn(rng, 6), C, Search(budget=1)) for _ in range(20)]
    assert {found.method for found in short} == {"exact", "bounded"}
    assert all(found.bound > found.score for found in short if found.method == "bounded")
    assert all(found.bound == found.score for found in short if found.method == "exact")


def test_many_jobs_are_searched_in_a_bounded_way() -> None:
    found = compatibility(tuple(up(0.2, 0.35) for _ in range(10)), C)
    assert found.bound == pytest.approx(1.0 - 2.5)  # ten jobs of 35 % ask for 3.5 links
    assert found.score <= found.bound


def test_the_order_of_jobs_does_not_change_the_score() -> None:
    rng = np.random.default_rng(5)
    circles = drawn(rng, 4)
    scores = {round(compatibility(order, C).score, 9) for order in itertools.permutations(circles)}
    assert len(scores) == 1


@pytest.mark.parametrize("precision", [0.0, -5.0, 361.0, 0.01, math.nan])
def test_a_precision_that_makes_no_sense_is_refused(precision: float) -> None:
    with pytest.raises(InputError, match="precision must be"):
        Search(precision_deg=precision)


def test_no_jobs_or_no_capacity_are_refused() -> None:
    with pytest.raises(InputError, match="no job to rotate"):
        compatibility((), C)
    with pytest.raises(InputError, match="capacity of a link must be a positive number"):
        compatibility((up(0.1, 0.5),) * 2, 0.0)
