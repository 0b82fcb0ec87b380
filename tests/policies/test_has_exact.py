from dataclasses import replace
from math import comb, prod
from typing import Any

import numpy as np
import pytest
from benchmarks.has import draw
from tests.policies.heterogeneous.drawn import EXAMPLE, drawn
from tests.reference import has as book

from cranny.exact.heterogeneous import exhaustive
from cranny.model.errors import InputError
from cranny.policies._shared.heterogeneous.greedy_baselines import optimus_lb
from cranny.policies._shared.heterogeneous.problem import Problem, Shares, Training, equal_s, fairness
from cranny.policies.has.has_exact import HasExactSolver, curve, has_exact
from cranny.policies.has.has_jps import has, jps

SAME = 1 + 1e-9


def small(rng: np.random.Generator) -> Problem:
    """Draw a problem that exhaustive search finishes in a moment."""
    while True:
        jobs = int(rng.integers(2, 5))
        problem = drawn(rng, jobs, int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 4)))
        if prod(comb(count + jobs, jobs) for count in problem.counts.ravel().tolist()) < 100_000:
            return problem


def tiny(rng: np.random.Generator) -> Problem:
    """Draw a problem small enough for single workers in plain Python."""
    while True:
        problem = drawn(rng, int(rng.integers(2, 4)), 2, 2, 2)
        if problem.size <= 6:
            return problem


def test_beats_the_paper_on_its_own_example() -> None:
    shares = has_exact(EXAMPLE)
    assert shares.totals.tolist() == [[0, 2], [2, 0]]
    assert shares.mean_jct_s == pytest.approx(10_592.0, abs=0.05)
    assert shares.proved


def test_equals_exhaustive_search_and_is_never_worse_than_others() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        problem = small(rng)
        shares, best = has_exact(problem), exhaustive(problem)
        assert shares.proved
        assert shares.weighted_jct_s == pytest.approx(best.weighted_jct_s)
        assert shares.bound_s is not None
        assert shares.bound_s <= best.weighted_jct_s * SAME
        # The rivals know no weights.
        plain = replace(problem, jobs=tuple(replace(job, weight=1) for job in problem.jobs))
        lowest = has_exact(plain).mean_jct_s
        for other in (has(plain), jps(plain, rng), optimus_lb(plain)):
            assert lowest <= other.mean_jct_s * SAME


@pytest.mark.parametrize("seed", range(4))
def test_is_no_worse_than_others_on_larger_clusters(seed: int) -> None:
    for workers, jobs in ((30, 4), (100, 12)):
        problem = draw(workers, jobs, seed)
        shares = has_exact(problem)
        assert shares.bound_s is not None
        assert shares.bound_s <= shares.mean_jct_s * SAME
        for other in (jps(problem, np.random.default_rng(seed)), optimus_lb(problem)):
            assert shares.mean_jct_s <= other.mean_jct_s * SAME
            assert shares.bound_s <= other.mean_jct_s * SAME


def test_the_bound_is_close_for_a_thousand_workers() -> None:
    shares = has_exact(draw(1000, 50, seed=0))
    assert shares.gap is not None
    assert shares.gap < 0.01


def scored(problem: Problem, beta: float, ideal: float, times: list[float]) -> float:
    """Eq. 34."""
    times_s = np.array(times)
    return beta * ideal / float(times_s.mean()) + (1 - beta) * fairness(times_s, equal_s(problem))


def test_the_curve_has_the_best_of_all_shares_where_it_says_so() -> None:
    rng = np.random.default_rng(0)
    betas = (1.0, 0.8, 0.5, 0.2, 0.05)
    proved = 0
    for _ in range(15):
        problem = tiny(rng)
        problem = replace(problem, jobs=tuple(replace(job, weight=1) for job in problem.jobs))
        jobs = range(len(problem.jobs))
        everything = [[book.jct_s(problem, job, held[job]) for job in jobs] for held in book.all_shares(problem)]
        possible = [times for times in everything if np.isfinite(times).all()]
        ideal = min(float(np.mean(times)) for times in possible)
        for beta, shares in zip(betas, curve(problem, betas), strict=True):
            best = max(scored(problem, beta, ideal, times) for times in possible)
            found = scored(problem, beta, ideal, shares.jct_s.tolist())
            assert found == pytest.approx(best) if shares.proved else found <= best + 1e-9
            proved += shares.proved
    assert proved > 0.9 * 15 * len(betas)


def test_the_curve_trades_time_for_fairness_step_by_step() -> None:
    found = curve(draw(30, 4, seed=1), [1.0, 0.8, 0.6, 0.4, 0.2, 0.0])
    times, fair = [shares.mean_jct_s for shares in found], [shares.fairness for shares in found]
    assert times == sorted(times)
    assert fair == pytest.approx(sorted(fair))
    assert fair[-1] > 0.99 > fair[0]


def late_and_mean(problem: Problem, times: list[float]) -> tuple[int, float]:
    late = sum(
        job.deadline_s is not None and time > job.deadline_s for job, time in zip(problem.jobs, times, strict=True)
    )
    return late, float(np.average(times, weights=[job.weight for job in problem.jobs]))


@pytest.mark.parametrize("seed", range(12))
def test_as_few_jobs_as_possible_are_late_and_then_the_mean_is_lowest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = tiny(rng)
    free = has_exact(problem)
    deadlines = free.jct_s * rng.choice([0.6, 0.9, 1.5], len(problem.jobs))
    jobs = tuple(replace(job, deadline_s=float(at)) for job, at in zip(problem.jobs, deadlines, strict=True))
    problem = replace(problem, jobs=jobs)
    everything = (
        [book.jct_s(problem, job, held[job]) for job in range(len(jobs))] for held in book.all_shares(problem)
    )
    best = min(late_and_mean(problem, times) for times in everything if np.isfinite(times).all())
    shares = has_exact(problem)
    assert shares.proved
    assert len(shares.late) == best[0]
    assert shares.weighted_jct_s == pytest.approx(best[1])


def test_a_job_that_is_done_at_its_deadline_is_in_time() -> None:
    # 2e7 / 1288 and 1e7 / 1768 seconds, of which rounding makes a little more or less.
    at = (2e7 / 1288 * (1 - 2e-16), 1e7 / 1768 * (1 - 2e-16))
    jobs = tuple(replace(job, deadline_s=by) for job, by in zip(EXAMPLE.jobs, at, strict=True))
    shares = has_exact(replace(EXAMPLE, jobs=jobs))
    assert shares.totals.tolist() == [[0, 2], [2, 0]]
    assert shares.late == ()


def test_a_heavier_job_is_done_sooner() -> None:
    heavy = replace(EXAMPLE, jobs=(EXAMPLE.jobs[0], replace(EXAMPLE.jobs[1], weight=100)))
    assert has_exact(heavy).jct_s[1] < has_exact(EXAMPLE).jct_s[1]


def test_leaves_a_worker_idle_that_would_make_its_job_slower() -> None:
    problem = Problem((Training("a", 1000, 1, 1e12),), ("T4",), [[1], [1]], [[100]], 100, 1)
    shares = has_exact(problem)
    assert shares.workers.sum() == 1
    assert shares.proved


def test_uses_only_types_that_can_run_a_job() -> None:
    problem = replace(EXAMPLE, throughput=[[None, 644], [None, 1754]])
    shares = has_exact(problem)
    assert shares.totals.tolist() == [[0, 1], [0, 1]]


def test_one_job_gets_everything() -> None:
    one = Problem(EXAMPLE.jobs[:1], EXAMPLE.gpu_types, EXAMPLE.workers, EXAMPLE.throughput[:1])
    assert has_exact(one).totals.tolist() == [[2, 2]]


def test_machines_with_nothing_on_them_change_nothing() -> None:
    more = replace(EXAMPLE, workers=[[0, 0], [2, 2], [0, 0]])
    shares = has_exact(more)
    assert shares.workers[:, 1].tolist() == has_exact(EXAMPLE).workers[:, 0].tolist()


def test_says_how_far_it_can_be_off_where_it_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.policies.has.has_exact.prove", lambda *args: (args[-2], False, None))
    problem = draw(30, 4, seed=0)
    shares = HasExactSolver(problem).solve(1.0)
    assert isinstance(shares, Shares)
    assert not shares.proved
    assert shares.gap is not None
    assert 0 <= shares.gap < 0.05


def test_a_bound_on_the_mean_says_nothing_about_fair_shares() -> None:
    shortest, fairer = curve(EXAMPLE, [1.0, 0.5])
    assert shortest.proved
    assert shortest.gap == pytest.approx(0.0, abs=1e-9)
    assert fairer.proved
    assert fairer.mean_jct_s >= shortest.mean_jct_s
    assert (fairer.bound_s, fairer.gap) == (None, None)


def test_shares_that_another_beta_found_keep_the_bound_on_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.policies.has.has_exact.prove", lambda *args: (args[-2], False, None))
    solver = HasExactSolver(draw(30, 4, seed=0))
    own, other = solver.solve(1.0), solver.solve(0.5)
    taken = solver.best(1.0, replace(own, workers=other.workers), [replace(own, bound_s=None)])
    assert taken.bound_s == own.bound_s


def test_proves_nothing_about_fairness_without_the_lowest_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove_all_but_the_mean(*args: Any) -> tuple[float, bool, None]:
        return args[-2], args[1].beta < 1, None

    monkeypatch.setattr("cranny.policies.has.has_exact.prove", prove_all_but_the_mean)
    assert not HasExactSolver(EXAMPLE).solve(0.5).proved


def test_machines_too_large_to_list_still_get_a_bound() -> None:
    jobs = tuple(Training(f"job{job}", 10_000, 10 + job, 1e9) for job in range(3))
    rates = [[100.0, 200.0, 300.0, 250.0], [50.0, 60.0, 70.0, 65.0], [10.0, 40.0, 90.0, 80.0]]
    problem = Problem(jobs, ("a", "b", "c", "d"), [[10, 10, 10, 10]] * 2, rates, 300, 10)
    shares = has_exact(problem)
    assert shares.gap is not None
    assert 0 < shares.gap < 0.2  # anybody might have all on one machine, for all that the bound knows


def test_refuses_a_beta_out_of_range() -> None:
    with pytest.raises(InputError, match="beta must be a number from 0 to 1"):
        has_exact(EXAMPLE, 1.5)
