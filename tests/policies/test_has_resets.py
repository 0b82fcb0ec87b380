"""has-resets: short jobs first, no job far behind LAS, moves that pay, and a bound that no schedule is below."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.heterogeneous.drawn import EXAMPLE, drawn, with_resets

import cranny
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.profile import ModelProfile
from cranny.policies._shared.heterogeneous.min_max_workers import within
from cranny.policies._shared.heterogeneous.problem import Ints, Problem, Training
from cranny.policies._shared.heterogeneous.sharing_policy import ResetState
from cranny.policies.has import HasResets
from cranny.policies.has.has_exact import has_exact
from cranny.policies.has.has_resets import alone_s, bound_s, has_resets, latest_s, played_s
from cranny.policies.has.las import las

MODEL = ModelProfile("model", grad_bytes=1e8, iteration_ms=100.0)


def plain(rng: np.random.Generator) -> Problem:
    """Draw a problem without weights."""
    problem = drawn(rng, int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 4)), 3)
    return replace(problem, jobs=tuple(replace(job, weight=1) for job in problem.jobs))


def test_a_short_job_gets_more_than_a_long_one_of_workers_that_are_alike() -> None:
    jobs = (Training("short", 1000, 1), Training("long", 1000, 100))
    problem = Problem(jobs, ("T4",), [[11]], [[1.0], [1.0]])
    # Shares are as 1 to 10 by P1, and as 10 to 1 with power 2. LAS gives five or six; c = 2 keeps half of that.
    assert has_exact(problem).totals[:, 0].tolist() == [1, 10]
    assert has_resets(problem, slowdown=inf).totals[:, 0].tolist() == [10, 1]
    assert has_resets(problem).totals[:, 0].tolist() == [8, 3]
    assert has_resets(problem).proved


def test_power_zero_without_a_limit_is_has_exact() -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        problem = plain(rng)
        assert has_resets(problem, 0.0, inf).workers.tolist() == has_exact(problem).workers.tolist()


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1.0, 1.5, 2.0, 4.0]), st.sampled_from([1.0, 2.0, 8.0]))
def test_no_job_is_slower_than_c_times_las_and_none_ends_after_its_bound(
    seed: int, slowdown: float, power: float
) -> None:
    problem = plain(np.random.default_rng(seed))
    shares = has_resets(problem, power, slowdown)
    assert (shares.jct_s <= slowdown * las(problem).jct_s * (1 + 1e-9)).all()
    done = with_resets(problem, lambda now: has_resets(now, power, slowdown))
    assert (done <= latest_s(problem, slowdown) * (1 + 1e-6)).all()


def test_without_the_limit_a_job_would_end_after_the_bound() -> None:
    jobs = (*(Training(f"short{at}", 1000, 1) for at in range(8)), Training("long", 1000, 1.2))
    problem = Problem(jobs, ("fast", "slow"), [[9, 0], [0, 9]], [[10.0, 0.1]] * 9)
    latest = latest_s(problem, 1.0)
    assert (has_resets(problem, 10.0, 1.0).jct_s <= latest * (1 + 1e-9)).all()
    assert (has_resets(problem, 10.0, inf).jct_s > latest * (1 + 1e-9)).any()


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32))
def test_no_schedule_has_a_lower_mean_than_the_bound(seed: int) -> None:
    problem = plain(np.random.default_rng(seed))
    found = bound_s(problem)
    for solve in (has_exact, las, has_resets):
        assert found <= with_resets(problem, solve).mean() * (1 + 1e-9)
    # One job after the other, each on all workers, at no cost of communication.
    assert found <= np.cumsum(np.sort(alone_s(problem))).mean() * (1 + 1e-9)


def test_the_bound_is_srpt_where_workers_are_alike_and_less_where_jobs_prefer_others() -> None:
    jobs = (Training("a", 1000, 1), Training("b", 1000, 3))
    assert bound_s(Problem(jobs, ("T4",), [[10]], [[1.0], [1.0]])) == pytest.approx((100 + 400) / 2)
    # Each alone on its type ends after 200 and 600 s. The best prices are all on b's type: then a costs nothing.
    apart = Problem(jobs, ("T4", "V100"), [[5, 5]], [[1.0, None], [None, 1.0]])
    assert bound_s(apart) == pytest.approx((0 + 600) / 2, rel=0.01)


def test_a_solution_is_played_out_with_resets_that_pay() -> None:
    times, work = np.array([10.0, 20.0]), np.array([5.0, 10.0])  # half of the cluster each
    for restart_s, total_s in ((0.0, 10 + 15), (2.0, 10 + 17), (6.0, 10 + 20)):
        assert played_s(times, work, np.full(2, restart_s), np.ones(2)) == pytest.approx(total_s)


def test_options_are_checked() -> None:
    for option, value in (("power", -1.0), ("slowdown", 0.5)):
        with pytest.raises(InputError, match=f"has-resets: {option}"):
            HasResets(**{option: value})


def test_jobs_end_sooner_on_average_than_with_has_exact_and_with_las() -> None:
    means = [with_resets(EXAMPLE, solve).mean() for solve in (has_resets, las, has_exact)]
    assert means == sorted(means)
    assert means[0] < 0.95 * means[1]


# -- in the simulator -----------------------------------------------------------------------------------------


class Watched(HasResets):
    """Keeps what every decision starts from, and what it comes to."""

    def __init__(self, **options: float) -> None:
        super().__init__(**options)
        self.decisions: list[tuple[ResetState, Ints]] = []

    def _divided(self, reset: ResetState) -> Ints:
        held = super()._divided(reset)
        self.decisions.append((reset, held))
        return held


def arrivals(seed: int, restart_s: float, count: int = 25) -> tuple[Cluster, list[Job]]:
    """Return a mixed cluster, and elastic jobs that come one after the other."""
    rng = np.random.default_rng(seed)
    machines = tuple(Machine(f"m{at}", 4, ("T4", "V100")[at % 2]) for at in range(4))
    jobs = [
        Job(
            f"job{at}",
            int(rng.integers(1, 5)),
            MODEL,
            "ring",
            submit_s=60.0 * at,
            duration_s=float(np.exp(rng.normal(6, 1.5))),
            least_gpus=1,
            most_gpus=int(rng.integers(4, 17)),
            speeds={"T4": 1.0, "V100": float(rng.uniform(1, 4))},
            restart_s=restart_s,
        )
        for at in range(count)
    ]
    return Cluster.of(Switch("core", machines, (10.0,) * 4)), jobs


@pytest.mark.parametrize(("seed", "restart_s", "slowdown"), [(0, 0.0, 2.0), (1, 30.0, 1.0), (2, 300.0, 2.0)])
def test_every_decision_keeps_every_job_within_c_of_las(seed: int, restart_s: float, slowdown: float) -> None:
    policy = Watched(power=4.0, slowdown=slowdown)
    cranny.simulate(*arrivals(seed, restart_s, 15), policy)
    assert len(policy.decisions) > 20
    for (costs, running, *_), held in policy.decisions:
        instance, chosen = costs.instance, list(costs.chosen)
        limit_s = slowdown * instance.seconds(within(instance, las, chosen, costs.divisible))
        for number in range(len(running)):
            if (held[number] == costs.has[number]).all():
                limit_s[number] += slowdown * costs.restart_s[number]
        assert (instance.seconds(held)[chosen] <= limit_s[chosen] * (1 + 1e-6)).all()


def test_moves_that_cost_more_than_they_gain_are_not_made() -> None:
    by_cost = {
        restart_s: cranny.simulate(*arrivals(3, restart_s, 10), "has-resets").summary for restart_s in (0.0, 1e6)
    }
    assert by_cost[0.0]["moves"] > by_cost[1e6]["moves"]
    together = [replace(job, submit_s=0.0) for job in arrivals(3, 1e6, 6)[1]]
    cluster = arrivals(3, 1e6)[0]
    stays, exact = (cranny.simulate(cluster, together, policy).summary for policy in ("has-resets", "has-exact"))
    assert stays["moves"] == 0
    assert stays["mean_jct_s"] < 1.1 * exact["mean_jct_s"]


def test_with_arrivals_the_mean_is_lower_than_with_has_exact_and_las() -> None:
    means = {
        policy: np.mean(
            [cranny.simulate(*arrivals(seed, 0.0, 18), policy).summary["mean_jct_s"] for seed in range(3)]
        )
        for policy in ("has-resets", "has-exact", "las")
    }
    assert means["has-resets"] < 0.95 * min(means["has-exact"], means["las"])
