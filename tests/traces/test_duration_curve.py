import numpy as np
import pytest

from cranny.traces.generate import QuantileCurve, split_by_group


def test_draws_log_linearly_between_points() -> None:
    curve = QuantileCurve.of([0, 0.5, 1], [1, 100, 100])
    assert curve.at(np.array([0, 0.25, 0.5, 0.9, 1])) == pytest.approx([1, 10, 100, 100, 100])


def test_mean_is_that_of_the_draws() -> None:
    curve = QuantileCurve.of([0, 0.2, 0.9, 1], [1, 1, 50, 4000])
    drawn = curve.at(np.linspace(0, 1, 2_000_001))
    assert curve.mean() == pytest.approx(drawn.mean(), rel=1e-3)


def test_shares_out_keep_the_whole_and_reach_the_wanted_means() -> None:
    overall = QuantileCurve.of([0, 0.3, 0.6, 0.9, 0.99, 1], [1, 20, 100, 1000, 20_000, 1_000_000])
    weights = np.array([0.6, 0.3, 0.09, 0.01])
    ratios = np.array([1.0, 2.0, 8.0, 30.0])
    parts = split_by_group(overall, weights, ratios)
    means = np.array([part.mean() for part in parts])
    assert means / means[0] == pytest.approx(ratios, rel=0.02)
    assert weights @ means == pytest.approx(overall.mean(), rel=0.02)
    below = sum(
        weight * np.interp(np.log(overall.values), np.log(part.values), part.levels)
        for weight, part in zip(weights, parts, strict=True)
    )
    assert below[1:-1] == pytest.approx(overall.levels[1:-1], abs=2e-3)
