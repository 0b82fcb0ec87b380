"""Estimates of durations: what must always hold, and a literal reference."""

import copy
import math
from collections.abc import Callable
from importlib import util

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.durations import LiteralEstimates

from cranny.core.state import ClusterState
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies.cranny import durations
from cranny.policies.cranny.durations import EDGES, HALF_LIVES, DurationEstimates, RemainingTime, worked_s

ROUNDED_S = 1e-3  # estimates are whole milliseconds
LONGEST_S = float(EDGES[-1])
SECONDS = st.one_of(st.floats(0.0, 1e5), st.floats(0.0, 1e9), st.sampled_from([0.0, 1.0, 2.0, 60.0, LONGEST_S]))
STATED = st.one_of(st.none(), st.floats(0.0, 1e7))


@st.composite
def jobs(draw: st.DrawFn, stated: st.SearchStrategy[float | None] = STATED) -> Job:
    return Job(
        id="job",
        gpus=draw(st.integers(1, 9)),
        model=draw(st.sampled_from(["resnet50", "vgg16"])),
        tenant=draw(st.sampled_from(["", "ann", "bob"])),
        duration_s=draw(stated),
    )


LESSONS = st.lists(st.tuples(jobs(), SECONDS), max_size=30)
UNSTATED = jobs(st.none())


def taught(lessons: list[tuple[Job, float]], *, trust_stated: bool = True) -> DurationEstimates:
    estimates = DurationEstimates(trust_stated=trust_stated)
    for job, ran_s in lessons:
        estimates.learn(job, ran_s)
    return estimates


@pytest.mark.parametrize("trust_stated", [True, False])
@given(lessons=LESSONS, job=jobs(), ran_s=SECONDS)
def test_estimates_are_finite_and_in_order(
    *, trust_stated: bool, lessons: list[tuple[Job, float]], job: Job, ran_s: float
) -> None:
    found = taught(lessons, trust_stated=trust_stated).remaining(job, ran_s)
    assert all(0.0 <= each < math.inf for each in found)
    assert found.low_s <= found.median_s <= found.high_s
    assert (
        found.mean_s >= found.low_s * 0.1 + found.median_s * 0.4 - 1e-6 * ran_s - ROUNDED_S
    )  # Markov's inequality


@pytest.mark.parametrize("trust_stated", [True, False])
@given(lessons=LESSONS, job=jobs(), one_s=SECONDS, other_s=SECONDS)
def test_a_job_that_has_run_longer_runs_longer_in_all(
    *, trust_stated: bool, lessons: list[tuple[Job, float]], job: Job, one_s: float, other_s: float
) -> None:
    estimates = taught(lessons, trust_stated=trust_stated)
    early_s, late_s = sorted((one_s, other_s))
    for early, late in zip(estimates.remaining(job, early_s), estimates.remaining(job, late_s), strict=True):
        assert late_s + late >= (early_s + early) * (1.0 - 1e-9) - ROUNDED_S


@settings(max_examples=15)
@given(st.lists(st.tuples(UNSTATED, SECONDS), max_size=12), UNSTATED, st.floats(0.0, 1e6))
def test_agrees_with_the_literal_reference(lessons: list[tuple[Job, float]], job: Job, ran_s: float) -> None:
    literal = LiteralEstimates()
    for each, seconds in lessons:
        literal.learn(each, seconds)
    mean_s, *quantiles_s = literal.remaining(job, ran_s)
    found = taught(lessons).remaining(job, ran_s)
    assert found[1:] == pytest.approx(quantiles_s, rel=1e-5, abs=1e-6 * ran_s + ROUNDED_S)
    assert found.mean_s == pytest.approx(mean_s, rel=1e-3, abs=1e-3 * ran_s + ROUNDED_S)


def test_agrees_with_the_literal_reference_after_hundreds_of_jobs() -> None:
    """Weights are scaled anew when what is old has almost none."""
    literal, estimates = LiteralEstimates(), DurationEstimates()
    for number in range(400):
        job = Job(id="job", gpus=1 + number % 3, tenant=str(number % 2))
        literal.learn(job, 100.0 + 7.0 * number)
        estimates.learn(job, 100.0 + 7.0 * number)
    for job in (Job(id="job", gpus=1, tenant="0"), Job(id="job", gpus=4, tenant="new")):
        mean_s, *quantiles_s = literal.remaining(job, 500.0)
        found = estimates.remaining(job, 500.0)
        assert found[1:] == pytest.approx(quantiles_s, rel=1e-5)
        assert found.mean_s == pytest.approx(mean_s, rel=1e-3)


def test_tables_do_not_depend_on_the_last_bits_of_powers_and_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors compute them by different instructions, which round differently."""
    tables = ("EDGES", "MEANS", "PSEUDO", "OUTLIVED")
    usual = [np.array(getattr(durations, name)) for name in tables]
    kept = DurationEstimates()._keep
    for name in ("exp2", "log", "power"):
        exact = getattr(np, name)
        monkeypatch.setattr(np, name, lambda *given, exact=exact: np.nextafter(exact(*given), np.inf))
    spec = util.spec_from_file_location("durations_elsewhere", durations.__file__)
    assert spec is not None
    assert spec.loader is not None
    elsewhere = util.module_from_spec(spec)
    spec.loader.exec_module(elsewhere)
    for name, table in zip(tables, usual, strict=True):
        np.testing.assert_array_equal(getattr(elsewhere, name), table)
    np.testing.assert_array_equal(elsewhere.DurationEstimates()._keep, kept)


@given(LESSONS, jobs())
def test_what_is_asked_changes_nothing(lessons: list[tuple[Job, float]], job: Job) -> None:
    asked, silent = DurationEstimates(), DurationEstimates()
    for each, ran_s in lessons:
        asked.remaining(job, ran_s)
        asked.learn(each, ran_s)
        silent.learn(each, ran_s)
    assert asked.remaining(job) == silent.remaining(job) == copy.deepcopy(silent).remaining(job)


@given(st.lists(SECONDS, min_size=1, max_size=20), st.data())
def test_without_forgetting_a_tenants_own_counts_do_not_depend_on_the_order(
    many_s: list[float], data: st.DataObject
) -> None:
    # What is passed on to broader groups depends on what was expected before, and so on the order.
    other_s = data.draw(st.permutations(many_s))
    job = Job(id="job", gpus=1, tenant="ann")
    counts = []
    for order_s in (many_s, other_s):
        estimates = DurationEstimates(half_lives=[math.inf] * len(HALF_LIVES))
        for ran_s in order_s:
            estimates.learn(job, ran_s)
        counts.append(estimates._counts[estimates._row["ann",]])
    assert counts[0] == pytest.approx(counts[1])


def test_a_deep_copy_is_independent() -> None:
    job = Job(id="job", gpus=1)
    estimates = taught([(job, 100.0)] * 5)
    copied = copy.deepcopy(estimates)
    before = copied.remaining(job)
    for _ in range(50):
        estimates.learn(job, 1e5)
    assert copied.remaining(job) == before != estimates.remaining(job)


def test_stated_durations_are_exact_until_they_are_outlived() -> None:
    job = Job(id="job", gpus=1, duration_s=100.0)
    estimates = DurationEstimates()
    assert estimates.remaining(job, 30.0) == RemainingTime(70.0, 70.0, 70.0, 70.0)
    assert estimates.remaining(job, 100.0) == RemainingTime(0.0, 0.0, 0.0, 0.0)
    late = estimates.remaining(job, 150.0)
    assert late.mean_s == 50.0  # a Pareto tail: as much again as it is late
    assert late.high_s == pytest.approx(50.0 * (10.0**0.5 - 1.0))


def test_limits_are_learned_for_each_tenant() -> None:
    tenth = Job(id="job", gpus=1, duration_s=10_000.0, tenant="ann")
    estimates = taught([(tenth, 1000.0)] * 30, trust_stated=False)
    asked = Job(id="other", gpus=8, duration_s=500.0, tenant="ann")
    assert estimates.remaining(asked).median_s == pytest.approx(50.0, rel=0.1)
    unknown = Job(id="new", gpus=8, duration_s=500.0, tenant="bob")
    assert estimates.remaining(asked).high_s < estimates.remaining(unknown).high_s


def test_before_anything_is_learned_limits_are_uniform_and_others_as_published() -> None:
    estimates = DurationEstimates(trust_stated=False)
    limited = estimates.remaining(Job(id="job", gpus=1, duration_s=1000.0))
    assert limited.median_s == pytest.approx(500.0 / 0.95, rel=1e-3)
    unknown = estimates.remaining(Job(id="job", gpus=1))
    assert 256.0 < unknown.median_s < 1024.0  # 44 and 65.1 % end before
    assert 4096.0 < unknown.high_s < 16384.0  # 83.4 and 92.3 %


def test_follows_the_same_tenant_and_model_before_others() -> None:
    ann = Job(id="job", gpus=4, tenant="ann", model="vgg16")
    bob = Job(id="job", gpus=4, tenant="bob", model="vgg16")
    estimates = taught([(ann, 100.0), (bob, 10_000.0)] * 20)
    assert estimates.remaining(ann).median_s == pytest.approx(100.0, rel=0.1)
    assert estimates.remaining(bob).median_s == pytest.approx(10_000.0, rel=0.1)
    new = estimates.remaining(Job(id="job", gpus=3, tenant="eve", model="vgg16"))
    assert new.low_s < 150.0
    assert new.high_s > 9000.0  # both occur


def test_forgets_what_was_long_ago() -> None:
    job = Job(id="job", gpus=1, tenant="ann")
    estimates = taught([(job, 100.0)] * 300 + [(job, 10_000.0)] * 300)
    assert estimates.remaining(job).median_s == pytest.approx(10_000.0, rel=0.1)


def test_a_job_that_outlives_all_others_is_expected_to_run_on() -> None:
    job = Job(id="job", gpus=1)
    estimates = taught([(job, 100.0)] * 100)
    assert estimates.remaining(job).high_s < 200.0
    hour, day = (estimates.remaining(job, ran_s).median_s for ran_s in (3600.0, 86_400.0))
    assert 600.0 < hour < day
    assert estimates.remaining(job, 2.0 * LONGEST_S).mean_s == 2.0 * LONGEST_S


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "MOST_GROUPS", 32)
    estimates = DurationEstimates(trust_stated=False)
    for number in range(200):
        estimates.learn(Job(id="job", gpus=1, tenant=f"tenant-{number}", duration_s=60.0), 50.0)
    assert len(estimates._counts) == len(set(estimates._row.values())) == 32
    last, forgotten = (
        estimates.remaining(Job(id="job", gpus=1, tenant=f"tenant-{number}")) for number in (199, 0)
    )
    assert last.high_s - last.low_s < forgotten.high_s - forgotten.low_s


def test_refuses_times_that_are_none() -> None:
    with pytest.raises(InputError, match="job 'a': ran_s must be a number of seconds, zero or more, not -1"):
        DurationEstimates().learn(Job(id="a", gpus=1), -1)


def test_work_done_is_less_than_the_time_on_several_machines(state: ClusterState) -> None:
    job = Job(id="job", gpus=2, model="vgg16")
    state.place(job, Placement((0, 1)), 100.0)
    running = state.find("job")
    slowdown = isolated(job, running.communication)
    assert slowdown > 1.0
    assert worked_s(running, 160.0) == pytest.approx(60.0 / slowdown)
    assert worked_s(running._replace(attained_gpu_s=80.0), 160.0) == pytest.approx(40.0 + 60.0 / slowdown)


def test_learns_from_jobs_that_neither_run_nor_wait(make_state: Callable[[Cluster], ClusterState]) -> None:
    state = make_state(Cluster.fat_tree(racks=1, machines_per_rack=2, gpus_per_machine=4))
    for name in ("ended", "moved", "stopped", "goes-on"):
        state.place(Job(id=name, gpus=1, tenant=name), Placement((0,)), 0.0)
    point = state.snapshot(0.0).point
    state.move("moved", Placement((1,)), 50.0)
    state.release("stopped")
    state.release("ended")
    view = state.snapshot(100.0)
    changes = view.changes_since(point)
    assert changes is not None
    learned, expected = DurationEstimates(), DurationEstimates()
    learned.learn_ended(changes, view.now_s, {"stopped"})
    expected.learn(Job(id="ended", gpus=1, tenant="ended"), 100.0)
    for tenant in ("ended", "moved", "stopped", "goes-on"):
        asked = Job(id="new", gpus=1, tenant=tenant)
        assert learned.remaining(asked) == expected.remaining(asked)
    assert learned.remaining(asked) != DurationEstimates().remaining(asked)
