"""LAS as HAS's paper has it: max-min fair levels, against every way to give out workers."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.has import draw
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.heterogeneous.drawn import EXAMPLE, drawn
from tests.reference.has import highest_level

from cranny.policies._shared.heterogeneous.problem import Problem, Shares, Training
from cranny.policies.has import las as las_module
from cranny.policies.has.las import give_rest, las, levels, relaxed


def lowest(shares: Shares) -> float:
    return float((shares.totals * levels(shares.problem)).sum(axis=1).min())


def greedy(problem: Problem) -> Shares:
    """Return the first of the three steps alone, as if all workers were on one machine."""
    totals = np.zeros(problem.rates.shape, dtype=np.int64)
    totals[np.arange(len(totals)), problem.first] = 1
    give_rest(totals, levels(problem), problem.totals - totals.sum(axis=0), np.zeros(len(totals)))
    return Shares(replace(problem, workers=[problem.totals.tolist()]), totals[:, None])


def small(rng: np.random.Generator) -> Problem:
    while True:
        problem = drawn(rng, int(rng.integers(2, 5)), int(rng.integers(1, 4)), 2, 2)
        if problem.size <= 9:
            return problem


def test_shares_equally_in_the_motivating_example() -> None:
    shares = las(EXAMPLE)
    assert shares.totals.tolist() == [[1, 1], [1, 1]]
    assert shares.mean_jct_s == pytest.approx(12_776.8, abs=0.05)


def test_reaches_the_highest_level_there_is_where_giving_out_one_by_one_does_not() -> None:
    rng = np.random.default_rng(0)
    below = []
    for _ in range(200):
        problem = small(rng)
        best, shares = highest_level(problem), las(problem)
        assert shares.proved
        assert lowest(shares) == pytest.approx(best, rel=1e-6)
        below.append(lowest(greedy(problem)) / best)
    assert sum(share < 1 - 1e-6 for share in below) > 40
    assert min(below) < 0.8


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_no_worker_that_a_job_could_use_stays_idle(seed: int) -> None:
    problem = small(np.random.default_rng(seed))
    shares = las(problem)
    assert shares.workers.sum() == problem.totals[problem.rates.max(axis=0) > 0].sum()


@pytest.mark.parametrize(("workers", "jobs"), [(30, 4), (100, 12), (300, 4)])
def test_proves_the_level_on_larger_clusters(workers: int, jobs: int) -> None:
    problem = draw(workers, jobs, seed=1)
    shares = las(problem)
    assert shares.proved
    assert lowest(greedy(problem)) < lowest(shares) <= relaxed(levels(problem), problem.totals)[1]


def test_what_was_not_searched_to_the_end_is_not_called_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = draw(30, 4, seed=1)
    monkeypatch.setattr(las_module, "MOST_SEARCHES", 1)  # which finds something better than giving out one by one
    assert not las(problem).proved


def test_comes_close_for_a_thousand_workers() -> None:
    problem = draw(1000, 50, seed=1)
    assert lowest(las(problem)) > 0.97 * relaxed(levels(problem), problem.totals)[1]


def test_equal_jobs_on_equal_types_get_as_many_workers() -> None:
    jobs = tuple(Training(f"job{at}", 1000, 1) for at in range(7))
    problem = Problem(jobs, ("a", "b", "c"), [[10, 0, 0], [0, 10, 0], [0, 0, 10]], [[5.0, 5.0, 5.0]] * 7)
    shares = las(problem)
    assert shares.proved
    assert sorted(shares.workers.sum(axis=(1, 2)).tolist()) == [4, 4, 4, 4, 4, 5, 5]
