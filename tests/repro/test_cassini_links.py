"""CASSINI's jobs on one link: known shapes, scores and gains."""

import numpy as np
import pytest

from cranny.model.circle import Circle
from cranny.network.interleave.compatibility import compatibility
from cranny.repro.cassini import links, precision
from cranny.repro.cassini.link_shapes import BATCH, EVEN, GIVEN, H200, pair_circles, snapshot_circles
from cranny.repro.cassini.links import run_adjustments, run_fig5, run_jobs, snapshot_uses
from cranny.repro.cassini.paper import TABLE2, LinkSnapshot
from cranny.repro.cassini.setups import LINK_GBPS


@pytest.mark.parametrize("snapshot", TABLE2, ids=lambda snapshot: f"snapshot {snapshot.number}")
def test_given_shapes_have_the_papers_scores(snapshot: LinkSnapshot) -> None:
    fit = compatibility(snapshot_circles(snapshot.number, GIVEN), LINK_GBPS)
    assert fit.score == pytest.approx(snapshot.score, abs=0.005)


def test_six_workers_communicate_as_long_as_in_table_2() -> None:
    for snapshot in TABLE2[:1]:
        for job, circle in zip(snapshot.jobs, snapshot_circles(snapshot.number, BATCH), strict=True):
            assert circle.up_s * 1e3 == pytest.approx(job.cassini_ms, rel=0.03)


def test_even_jobs_take_equally_long_and_send_as_much() -> None:
    for number in (1, 2, 5):
        even, batch = snapshot_circles(number, EVEN), snapshot_circles(number, BATCH)
        longest_s = max(circle.iteration_s for circle in batch)
        assert [circle.iteration_s for circle in even] == pytest.approx([longest_s] * len(even), rel=1e-5)
        assert [circle.gigabits for circle in even] == pytest.approx([circle.gigabits for circle in batch])


def test_equal_iteration_times_fit_better() -> None:
    for number in (1, 2, 5):
        scores = [compatibility(snapshot_circles(number, setup), LINK_GBPS).score for setup in (H200, BATCH, EVEN)]
        assert scores == sorted(scores)


def test_the_shift_of_two_vgg19_is_half_an_iteration() -> None:
    circles, gbps = pair_circles(GIVEN)
    fit = compatibility(circles, gbps)
    assert fit.score == 1.0
    assert abs(fit.shifts_s[1] - fit.shifts_s[0]) == pytest.approx(0.120)


def test_fig_5_fits_at_the_papers_rotation() -> None:
    found = run_fig5()
    assert found.perimeter_ms == pytest.approx(120.0)
    assert found.before == pytest.approx(11 / 12)  # both send at once for 10 of 120 ms
    assert found.at_papers == found.best == pytest.approx(1.0)


def test_jobs_that_start_together_gain_most_from_a_shift() -> None:
    half = Circle.half_up(0.2, LINK_GBPS)
    found = run_jobs((half, half), LINK_GBPS, 2, 30.0, together=True)
    assert found.fit.score == 1.0
    assert 1.2 < found.gain().mean < 1.5
    assert found.communication_gain().mean > found.gain().mean
    assert found.shifted.above_gbit.max() < 0.02 * found.without.above_gbit.min()
    shifted_ms, without_ms = found.communication_ms()
    assert shifted_ms == pytest.approx([100.0, 100.0], rel=0.05)
    assert min(without_ms) > 130.0


def test_jobs_that_do_not_clash_gain_nothing() -> None:
    small = Circle.half_up(0.2, LINK_GBPS / 2)
    found = run_jobs((small, small), LINK_GBPS, 2, 10.0)
    assert found.fit.score == found.unshifted == 1.0
    assert found.gain().mean == pytest.approx(1.0, abs=0.02)


def test_paced_jobs_need_no_adjustment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "JITTERS", (0.02,))
    found = run_adjustments(1, 60.0)
    assert {each.snapshot for each in found} == {1, 2, 3}
    assert all(each.a_minute.mean == 0.0 for each in found if each.hold)
    assert all(each.a_minute.mean > 2.0 for each in found if not each.hold)


def test_links_with_score_one_are_never_asked_for_more_than_they_carry() -> None:
    for title, use in snapshot_uses().items():
        over = np.max(use.demand_gbps) > LINK_GBPS * 1.001
        assert over == ("score 1.0" not in title)


def test_finer_angles_find_more_right_shifts() -> None:
    found = {each.degrees: each for each in precision.run_precision(8)}
    assert found[1.0].right >= found[90.0].right
    assert found[1.0].right > 0.8
    assert found[1.0].lost.mean <= found[90.0].lost.mean
