"""Bounds of the regret: no schedule is below them, and small cases reach them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from benchmarks.regret import bounds, judgement, staged
from benchmarks.regret.judgement import Row, cost
from benchmarks.regret.measures import measured
from benchmarks.regret.one_by_one import one_by_one_s
from benchmarks.regret.paper_worlds import HasWorld
from benchmarks.regret.reached import STAGED, reached
from benchmarks.regret.replays import TUNED, RegretCell, replay
from benchmarks.regret.shares_bound import LINEAR, joint_bound
from benchmarks.regret.sharing import Sharing, sharing
from benchmarks.regret.staged import METRICS, FollowsStages, least_worst, played
from benchmarks.regret.world import Contender, World
from benchmarks.regret.worlds import WORLDS
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.policies._shared.heterogeneous.problem import Ints
from cranny.run import run

SAME = 1 - 1e-7
Coming = Sequence[tuple[int, int]]


def batch(restart_s: float = 60.0) -> HasWorld:
    world = WORLDS["has-batch"]
    assert isinstance(world, HasWorld)
    return replace(world, restart_s=restart_s)


def alike(lengths_s: Sequence[float], machines: int = 1) -> Sharing:
    """Return jobs that take so long on the one GPU of a machine, on machines that are alike."""
    length = np.array(lengths_s, dtype=float)
    return Sharing(
        length,
        np.repeat(1 / length[:, None], machines, axis=1),
        np.ones(machines, dtype=np.int64),
        np.zeros(len(length)),
        0.0,
        length,
    )


def step_by_step_s(jobs: Coming) -> int:
    """Work a second at a time on the job with the least left: slow and literal."""
    left = dict(enumerate(jobs))
    now_s, total_s = 0, 0
    while left:
        there = {number: each for number, each in left.items() if each[0] <= now_s}
        now_s += 1
        if there:
            number = min(there, key=lambda each: there[each][1])
            submit_s, work_s = there[number]
            left[number] = (submit_s, work_s - 1)
            if work_s == 1:
                total_s += now_s - submit_s
                del left[number]
    return total_s


def in_turn_s(jobs: Coming) -> int:
    """Return the sum of completion times if jobs run to the end in this order."""
    now_s, total_s = 0, 0
    for submit_s, work_s in jobs:
        now_s = max(now_s, submit_s) + work_s
        total_s += now_s - submit_s
    return total_s


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=5))
def test_one_by_one_is_what_working_second_by_second_gives(jobs: list[tuple[int, int]]) -> None:
    found = one_by_one_s([job[0] for job in jobs], [job[1] for job in jobs])
    assert found == step_by_step_s(jobs)
    assert found <= min(in_turn_s(order) for order in permutations(jobs))


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=3))
def test_jobs_on_one_gpu_cannot_be_better_than_shortest_first(lengths_s: list[int]) -> None:
    ends_s = np.cumsum(sorted(lengths_s))
    total = sum(lengths_s)
    late_s = float(np.quantile(ends_s, 0.99))
    least = {
        "machine_hours": total / 3600,
        "mean_jct_s": float(ends_s.mean()),
        "p99_jct_s": late_s,
        "mean_slowdown": float((ends_s / np.sort(lengths_s)).mean()),
        "fairness": 1.0,
    }
    found = joint_bound(alike(lengths_s), least)
    assert found.worst == pytest.approx(1.0)  # one schedule has all of them
    assert found.mean == pytest.approx(1.0)
    assert dict(found.each) == pytest.approx(dict.fromkeys(METRICS, 1.0))


def test_the_metrics_of_a_bound_are_of_one_schedule() -> None:
    """Either the job is soon done, on both machines, or few machine-hours are used, on the fast one alone."""
    length = np.array([100.0])
    shared = Sharing(length, np.array([[0.01, 0.001]]), np.ones(2, dtype=np.int64), np.zeros(1), 0.0, length)
    soonest_s, fewest_hours = 100 / 1.1, 100 / 3600
    best = {"machine_hours": fewest_hours, "fairness": 1.0} | dict.fromkeys(LINEAR[1:3], soonest_s)
    found = joint_bound(shared, best | {"mean_slowdown": soonest_s / 100})
    assert found.each["machine_hours"] == pytest.approx(1.0)
    assert found.each["mean_jct_s"] == pytest.approx(1.0)
    # A share x of the second machine: 1 / (1 + x / 10) of the time, (1 + x) times as many machine-hours by that.
    ratios = [max(1.1 / (1 + x / 10), (1 + x) / (1 + x / 10)) for x in np.linspace(0, 1, 100_001)]
    assert found.worst == pytest.approx(min(ratios), rel=1e-4)
    assert found.worst > 1.05


def test_too_many_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="7 jobs"):
        joint_bound(alike([1.0] * 7), dict.fromkeys(METRICS, 1.0))


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Sharing, Ints]:
    jobs, machines = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    seconds = st.floats(10, 1000)
    shared = Sharing(
        np.array(draw(st.lists(seconds, min_size=jobs, max_size=jobs))),
        1
        / np.array(
            draw(st.lists(st.lists(seconds, min_size=machines, max_size=machines), min_size=jobs, max_size=jobs))
        ),
        np.array(draw(st.lists(st.integers(1, 4), min_size=machines, max_size=machines)), dtype=np.int64),
        np.array(draw(st.lists(st.floats(0, 50), min_size=jobs, max_size=jobs))),
        draw(st.sampled_from([0.0, 5.0, 60.0])),
        np.array(draw(st.lists(seconds, min_size=jobs, max_size=jobs))),
    )
    workers = np.zeros((jobs, jobs, machines), dtype=np.int64)
    for stage in range(jobs):
        for machine in range(machines):
            for _ in range(int(shared.gpus[machine])):
                workers[stage, draw(st.integers(0, jobs - 1)), machine] += 1
    return shared, workers


@settings(max_examples=examples(30), deadline=None)
@given(schedules(), st.lists(st.floats(0.5, 2), min_size=5, max_size=5))
def test_no_schedule_in_stages_is_below_the_bound(made: tuple[Sharing, Ints], factors: list[float]) -> None:
    shared, workers = made
    stages = played(shared, workers)
    if stages is None:
        return
    metrics = stages.metrics(shared)
    best = {metric: value * factor for (metric, value), factor in zip(metrics.items(), factors, strict=True)}
    ratios = {metric: metrics[metric] / best[metric] for metric in metrics}
    found = joint_bound(shared, best)
    assert max(ratios.values()) >= found.worst * SAME
    assert sum(ratios.values()) / len(ratios) >= found.mean * SAME
    assert all(ratios[metric] >= found.each[metric] * SAME for metric in ratios)


@pytest.mark.parametrize("restart_s", [0.0, 60.0, 600.0])
def test_a_schedule_in_stages_replays_as_predicted(restart_s: float) -> None:
    world = batch(restart_s)
    shared, names = sharing(world, 3), [job.id for job in world.work(3)]
    rng = np.random.default_rng(5)
    replayed = 0
    while replayed < 8:
        workers = np.zeros((4, 4, 3), dtype=np.int64)
        for stage in range(4):
            for machine in range(3):
                parts = rng.multinomial(5, rng.dirichlet(np.ones(4)))
                workers[stage, :, machine] = workers[stage - 1, :, machine] if rng.random() < 0.3 else parts
        stages = played(shared, workers)
        if stages is None:
            continue
        replayed += 1
        scenario = replace(world.scenario(Contender("has-resets"), 3, None), policy=FollowsStages(names, workers))
        found = measured(world, run(scenario), 3, 0.0)
        expected = stages.metrics(shared)
        assert {each: cost(found, each) for each in METRICS} == pytest.approx(expected, rel=1e-6)


def fresh(world: World, policies: Sequence[str], seed: int) -> dict[Contender, dict[int, Mapping[str, float]]]:
    found = {Contender(name): replay(RegretCell(world, Contender(name), seed), None).summary for name in policies}
    return {contender: {seed: summary} for contender, summary in found.items() if summary is not None}


@pytest.mark.parametrize(
    "name",
    [
        *("titan-ring-itp", "titan-halving-acme", "titan-room-instant-itp", "netpack-poisson"),
        *("netpack-testbed-no-ina", "over-4to1-acme", "failures-itp", "cassini-poisson", "has-stream"),
    ],
)
def test_no_policy_is_below_the_bounds(name: str) -> None:
    world = replace(WORLDS[name], jobs=min(20 if name == "has-stream" else 60, WORLDS[name].jobs))
    least = bounds.lower_bounds(world, 3, None)
    assert least.keys() <= {*world.metrics}
    policies = ["best-fit", "netpack", "tiresias", "cranny"]
    for contender, by_seed in fresh(world, policies, 3).items():
        for metric, value in least.items():
            assert cost(by_seed[3], metric) >= value * SAME, (contender, metric)


def test_what_is_reached_is_above_the_bound_and_near_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "STEPS", 20_000)
    world, own = batch(600.0), Contender("has-resets")
    row = Row(world, TUNED, fresh(world, ["has-resets", "titan", "jps", "las", "optimus-shares"], 0))
    bound = bounds.row_bound(row, own, None)
    known = {each.by: each for each in reached(row, own)}
    assert {"has-resets", "titan", STAGED} <= known.keys()
    for each in known.values():
        assert each.worst >= bound.worst * SAME
        assert each.mean >= bound.mean * SAME
    assert known[STAGED].worst < known["has-resets"].worst
    assert known[STAGED].worst < 1.1 * bound.worst
    assert known["has-resets"].worst == pytest.approx(max(cell.value for cell in judgement.judge(row, own)))


def test_of_several_seeds_the_bound_is_the_geometric_mean_of_each_metric() -> None:
    world, own = batch(), Contender("has-resets")
    each = [fresh(world, ["has-resets", "titan", "las"], seed) for seed in (0, 1)]
    by_seed = {contender: each[0][contender] | each[1][contender] for contender in each[0]}
    row = Row(world, TUNED, by_seed)
    bests = {cell.metric: row.measures[Contender(cell.best)] for cell in judgement.judge(row, own)}
    alone = [
        joint_bound(sharing(world, seed), {metric: cost(best[seed], metric) for metric, best in bests.items()})
        for seed in (0, 1)
    ]
    both = bounds.row_bound(row, own, None)
    for metric, value in both.each.items():
        assert value == pytest.approx(math.sqrt(alone[0].each[metric] * alone[1].each[metric]))
    assert both.worst <= max(cell.value for cell in judgement.judge(row, own)) / SAME


def test_a_search_is_no_worse_than_one_job_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "STEPS", 5_000)
    shared = sharing(batch(600.0), 1)
    workers = np.zeros((4, 4, 3), dtype=np.int64)
    for place, job in enumerate(np.argsort(shared.duration_s).tolist()):
        workers[place, job] = shared.gpus
    first = played(shared, workers)
    assert first is not None
    best = dict.fromkeys(METRICS, 1.0) | {"mean_jct_s": first.metrics(shared)["mean_jct_s"] / 1e6}
    found = least_worst(shared, best)
    assert found.metrics(shared)["mean_jct_s"] <= first.metrics(shared)["mean_jct_s"] / SAME
