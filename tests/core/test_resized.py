"""Jobs that run with another number of workers than they asked for, or on GPUs of another speed."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

import cranny
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError, PlacementError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Plan, Start
from cranny.model.profile import ModelProfile

UNIT = ModelProfile("unit", grad_bytes=1e9, iteration_ms=80.0, gradient_buckets=((40.0, 10),))


def elastic(name: str = "a", **fields: Any) -> Job:
    return Job(name, **{"gpus": 4, "model": UNIT, "least_gpus": 1, "most_gpus": 8, **fields})


def test_half_as_many_workers_compute_twice_as_long() -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    state.place(elastic(), Placement((0, 0)))
    running = state.find("a")
    assert running.stretch == 2.0
    assert running.job.gpus == 2
    assert running.job.profile.iteration_s == pytest.approx(0.16)
    assert running.job.profile.gradient_buckets == ((80.0, 10),)
    assert running.submitted.gpus == 4
    check(state)


def test_what_is_sent_follows_from_the_workers_that_are_there() -> None:
    state = ClusterState(Cluster.single_rack(4, 2))
    state.place(elastic(), Placement((0, 1)))
    two = Job("b", 2, UNIT)
    state.place(two, Placement((2, 3)))
    assert state.find("a").communication.comm_s == state.find("b").communication.comm_s
    check(state)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"least_gpus": 5}, "least_gpus must be a whole number from 1 to 4"),
        ({"most_gpus": 3}, "most_gpus must be a whole number from 4"),
        ({"least_gpus": 0}, "least_gpus"),
        ({"tp": 2}, "only data-parallel jobs can be resized"),
        ({"speeds": {"t4": 0.0}}, "speeds: t4 must be"),
        ({"restart_s": -1.0}, "restart_s"),
    ],
)
def test_impossible_ranges_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        elastic(**fields)


def test_a_placement_outside_the_range_is_refused() -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    with pytest.raises(PlacementError, match="job 'a' has 4 ranks, its placement 9"):
        state.place(elastic(), Placement((0,) * 8 + (1,)))
    with pytest.raises(PlacementError, match="has 2 ranks"):
        state.place(Job("b", 2), Placement((0,)))


def mixed() -> Cluster:
    """One machine with slow GPUs and one with fast ones."""
    slow, fast = Machine("slow", 4, "t4"), Machine("fast", 4, "v100")
    return Cluster.of(Switch("core", (slow, fast), (100.0, 100.0)))


def test_workers_of_different_speed_share_the_work() -> None:
    state = ClusterState(mixed())
    job = elastic(speeds={"t4": 0.5, "v100": 1.0})
    state.place(job, Placement((0, 0, 1)))
    assert state.find("a").stretch == pytest.approx(4 / 2.0)
    with pytest.raises(PlacementError, match="cannot run on t4 GPUs of slow"):
        state.place(elastic("b", speeds={"v100": 1.0}), Placement((0,)))


class Resize:
    """Start jobs on all GPUs there are, and take all but one away at the first chance."""

    def key(self, waiting: Waiting) -> float:
        return waiting.job.submit_s

    def plan(self, view: Snapshot) -> Plan:
        if view.waiting and not view.running:
            return Plan(view.version, (Start(view.waiting[0].job, Placement((0,) * 4)),))
        if view.waiting and view.free_on(0) == 0:
            return Plan(view.version, (Move("a", Placement((0,))),))
        if view.waiting:
            return Plan(view.version, (Start(view.waiting[0].job, Placement((0,) * 2)),))
        return Plan(view.version)

    def why_wait(self, job: Job, view: Snapshot) -> str:  # noqa: ARG002
        return "no room"


@pytest.mark.parametrize("restart_s", [0.0, 30.0])
def test_a_job_goes_on_more_slowly_with_fewer_workers(restart_s: float) -> None:
    jobs = [
        elastic("a", duration_s=100.0, restart_s=restart_s),
        Job("b", 2, UNIT, submit_s=40.0, duration_s=10.0),
    ]
    result = cranny.simulate(Cluster.single_rack(1, 4), jobs, policy=Resize())
    finish = dict(zip(result.jobs["job_id"], result.jobs["finish_s"], strict=True))
    # 40 of 100 seconds with four workers, the rest with one of them.
    assert finish == pytest.approx({"a": 40.0 + 4 * 60.0 + restart_s, "b": 50.0})


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 8)), min_size=1, max_size=6))
def test_nothing_is_lost_however_jobs_are_resized(steps: list[tuple[int, int]]) -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    state.place(elastic("a"), Placement((0,)))
    state.place(elastic("b"), Placement((1,)))
    for which, gpus in steps:
        machine = which
        state.move("ab"[which], Placement((machine,) * gpus))
        check(state)
    state.release("a")
    state.release("b")
    check(state)
    assert state.held_gpus == 0
