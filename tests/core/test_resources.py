"""CPU cores, memory and other resources of machines, and jobs with so many GPUs on each of their machines."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.constrained_placer import ConstrainedPlacer, lacks_room, shown_to
from cranny.core.constraints import Constraints
from cranny.core.protocol import Placer
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch, mask_of
from cranny.model.errors import InputError, PlacementError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start, Stop
from cranny.policy_choice import seeded_policy


def cluster(*machines: tuple[int, dict[str, int]]) -> Cluster:
    """Return one rack of machines with so many GPUs and resources."""
    built = tuple(Machine(f"m{at}", gpus, "", resources) for at, (gpus, resources) in enumerate(machines))
    return Cluster.of(Switch("rack", built, (100.0,) * len(built)))


def constrained(constraints: Constraints | None = None, policy: str = "titan") -> ConstrainedPlacer:
    placer = seeded_policy(policy, 0)
    assert isinstance(placer, Placer)
    return ConstrainedPlacer(placer, lambda _: constraints)


def test_a_machine_shows_only_the_gpus_that_it_has_resources_for() -> None:
    state = ClusterState(cluster((8, {"cpus": 8}), (8, {"cpus": 64}), (8, {})))
    view = state.snapshot()
    job = Job("a", 4, resources={"cpus": 4})
    shown = shown_to(job, view, Constraints())
    assert shown.free.tolist() == [2, 8, 0]
    assert view.free.tolist() == [8, 8, 8]
    assert shown.machines.in_use[2] == 1
    placement = constrained().place(job, view)
    assert placement is not None
    assert set(placement.machines) == {1}


def test_what_running_jobs_use_is_not_left_and_comes_back() -> None:
    state = ClusterState(cluster((8, {"cpus": 32, "memory_mb": 1000})))
    state.place(Job("a", 2, resources={"cpus": 10}), Placement((0, 0)))
    job = Job("b", 2, resources={"cpus": 6, "memory_mb": 400})
    assert state.snapshot().room_for(job).tolist() == [2]
    with pytest.raises(PlacementError, match="job 'c' needs 14 cpus of m0, 12 are left"):
        state.place(Job("c", 1, resources={"cpus": 14}), Placement((0,)))
    state.place(job, Placement((0, 0)))
    assert constrained().place(Job("d", 1, resources={"memory_mb": 201}), state.snapshot()) is None
    state.release("b")
    state.release("a")
    assert state.snapshot().room_for(Job("c", 1, resources={"cpus": 1})).tolist() == [32]


def test_a_plan_is_checked_with_what_its_stops_give_back() -> None:
    state = ClusterState(cluster((4, {"cpus": 4}), (4, {"cpus": 4})))
    needs = {"cpus": 4}
    state.place(Job("a", 1, resources=needs), Placement((0,)))
    both = tuple(Start(Job(name, 1, resources=needs), Placement((1,))) for name in "bc")
    with pytest.raises(PlacementError, match="needs 8 cpus of m1, 4 are left"):
        state.commit(Plan(state.version, both))
    swap = (Stop("a", "for b"), Start(Job("b", 1, resources=needs), Placement((0,))))
    state.commit(Plan(state.version, swap))
    assert state.snapshot().room_for(Job("c", 1, resources={"cpus": 1})).tolist() == [0, 4]


def test_why_a_job_waits_for_resources_is_said() -> None:
    state = ClusterState(cluster((4, {"cpus": 2}), (4, {"cpus": 1})))
    job = Job("a", 4, resources={"cpus": 1})
    placer = constrained()
    assert placer.place(job, state.snapshot()) is None
    said = "needs 4 GPUs, 3 free on machines with 1 cpus for each of its workers"
    assert placer.why_wait(job, state.snapshot()) == said
    even = Constraints(per_machine=4)
    assert lacks_room(Job("b", 8), ClusterState(cluster((4, {}), (2, {}), (2, {}))).snapshot(), even) == (
        "must have 4 GPUs of each machine; 1 machine of 2 have as many free"
    )


def test_resources_of_a_job_are_checked() -> None:
    with pytest.raises(InputError, match="job 'a': cpus must be a whole number from 1"):
        Job("a", 1, resources={"cpus": 0})
    with pytest.raises(InputError, match="machine 'm': resources must be numbers by name"):
        Machine("m", 1, resources={"": 1})
    with pytest.raises(InputError, match="machine 'm': features must be a list of names"):
        Machine("m", 1, features="nvlink")  # type: ignore[arg-type]
    assert Job("a", 1, resources={}).resources is None


@pytest.mark.parametrize("policy", ["titan", "cranny", "gpu-balance", "random", "tiresias"])
def test_a_job_has_as_many_gpus_of_each_machine_as_it_wants(policy: str) -> None:
    state = ClusterState(cluster((8, {}), (8, {}), (8, {}), (1, {})))
    state.place(Job("held", 7), Placement((0,) * 7))
    placement = constrained(Constraints(per_machine=2), policy).place(Job("a", 4), state.snapshot())
    assert placement is not None
    assert placement.counts == Counter({1: 2, 2: 2})


NEEDS = st.none() | st.fixed_dictionaries({"cpus": st.integers(1, 4)})


@given(
    machines=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), min_size=1, max_size=5),
    held=st.lists(st.tuples(st.integers(0, 4), NEEDS), max_size=6),
    per_machine=st.none() | st.integers(1, 3),
    count=st.integers(1, 4),
    needs=NEEDS,
    excluded=st.sets(st.integers(0, 4), max_size=2),
    policy=st.sampled_from(["titan", "cranny", "gpu-balance"]),
)
@settings(max_examples=examples(120), deadline=None)
def test_placements_keep_to_shape_and_resources_and_exist_where_they_can(
    machines: list[tuple[int, int]],
    held: list[tuple[int, dict[str, int] | None]],
    per_machine: int | None,
    count: int,
    needs: dict[str, int] | None,
    excluded: set[int],
    policy: str,
) -> None:
    built = cluster(*((gpus, {"cpus": cpus}) for gpus, cpus in machines))
    state = ClusterState(built)
    for number, (at, own) in enumerate(held):
        machine = at % len(machines)
        job = Job(f"held-{number}", 1, resources=own)
        if state.free[machine] and state.snapshot().room_for(job)[machine]:
            state.place(job, Placement((machine,)))
    job = Job("a", count * (per_machine or 1), resources=needs)
    view = state.snapshot()
    outside = {machine for machine in excluded if machine < len(machines)}
    constraints = Constraints(mask_of(outside), per_machine=per_machine)
    placement = constrained(constraints, policy).place(job, view)
    # By hand: what each machine could hold of the job.
    room = [
        0 if machine in outside else min(int(free), int(view.room_for(job)[machine]))
        for machine, free in enumerate(state.free)
    ]
    fits = sum(each >= per_machine for each in room) >= count if per_machine else sum(room) >= job.gpus
    assert (placement is not None) == fits
    if placement is not None:
        assert all(placement.counts[machine] <= room[machine] for machine in placement.counts)
        assert per_machine is None or set(placement.counts.values()) == {per_machine}
        state.place(job, placement)
        check(state)
