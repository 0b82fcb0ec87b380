"""Clusters that change: jobs stay on their machines, whatever numbers these get."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

import cranny
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.cluster_change import Renumbering, difference, keeping, tree_of
from cranny.model.cluster_values import cluster_values
from cranny.model.errors import PlacementError
from cranny.model.event import Event, MachineFailed, MachineJoined, MachineLeft
from cranny.model.job import Job
from cranny.model.placement import Placement

RACKS = ("r0", "r1", "r2")


def built(racks: dict[str, dict[str, int]]) -> Cluster:
    """Return a cluster of racks of machines by name, with so many GPUs each."""
    switches = tuple(
        Switch(rack, tuple(Machine(name, gpus) for name, gpus in machines.items()), (100.0,) * len(machines))
        for rack, machines in racks.items()
    )
    return Cluster.of(
        Switch("top", switches, (400.0,) * len(switches)), {"all": [m for own in racks.values() for m in own]}
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    racks: dict[str, dict[str, int]] = {}
    for name in draw(st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True)):
        racks.setdefault(draw(st.sampled_from(RACKS)), {})[name] = draw(st.integers(1, 3))
    return built(racks)


def held_by_name(state: ClusterState) -> dict[str, dict[str, int]]:
    """Return the GPUs of each job by names of machines, as bits."""
    names = state.cluster.node_names
    return {
        job_id: {names[machine]: gpus for machine, gpus in running.held.items()}
        for job_id, running in state.running.items()
    }


def needed_by(state: ClusterState) -> dict[str, int]:
    """Return how many GPUs each machine must have for the jobs on it."""
    needed: dict[str, int] = {}
    for held in held_by_name(state).values():
        for name, gpus in held.items():
            needed[name] = max(needed.get(name, 0), gpus.bit_length())
    return needed


@given(
    first=clusters(),
    steps=st.lists(
        st.one_of(
            clusters(),
            st.lists(st.integers(0, 20), min_size=1, max_size=4),
            st.integers(0, 5),
            st.tuples(st.sampled_from(["drain", "repair"]), st.integers(0, 6)),
        ),
        max_size=12,
    ),
)
@settings(max_examples=examples(150), deadline=None)
def test_jobs_keep_their_gpus_over_any_changes(first: Cluster, steps: list[object]) -> None:
    """No GPU is held twice, no job and no rank is lost, and totals are those of the cluster that is there."""
    state = ClusterState(first)
    started = 0
    for step in steps:
        before, drained = (
            held_by_name(state),
            {m.name for at, m in enumerate(state.cluster.machines) if not state.is_up(at)},
        )
        if isinstance(step, Cluster):
            state = state.on(keeping(step, state.cluster, needed_by(state)))
            assert held_by_name(state) == before
            assert {m.name for m in step.machines} <= {m.name for m in state.cluster.machines}
            there = {m.name for m in state.cluster.machines}
            down = {m.name for at, m in enumerate(state.cluster.machines) if not state.is_up(at)}
            assert down == drained & there
        elif isinstance(step, list):
            free = state.free
            ranks: list[int] = []
            for each in step:
                machine = each % len(free)
                if free[machine]:
                    free[machine] -= 1
                    ranks.append(machine)
            if ranks:
                started += 1
                state.place(Job(f"j{started}", len(ranks)), Placement(tuple(ranks)))
        elif isinstance(step, tuple):
            machine = step[1] % len(state.cluster.machines)
            state.drain(machine) if step[0] == "drain" else state.repair(machine)
        elif state.running:
            state.release(list(state.running)[int(str(step)) % len(state.running)])
        check(state)


@given(clusters(), clusters())
@settings(max_examples=examples(60), deadline=None)
def test_a_tree_gives_its_cluster_back_and_what_is_needed_is_kept(one: Cluster, other: Cluster) -> None:
    partitions = {name: [one.node_names[each] for each in own] for name, own in one.partitions.items()}
    assert cluster_values(Cluster.of(tree_of(one), partitions)) == cluster_values(one)
    assert keeping(one, other, {}) is one
    needed = {machine.name: machine.gpus for machine in other.machines}
    kept = {machine.name: machine.gpus for machine in keeping(one, other, needed).machines}
    own = {machine.name: machine.gpus for machine in one.machines}
    assert kept == {name: max(own.get(name, 0), needed.get(name, 0)) for name in {**own, **needed}}
    found = difference(one, other)
    assert set(found.joined) == needed.keys() - own.keys()
    assert set(found.left) == own.keys() - needed.keys()
    assert not difference(one, one)


def test_a_machine_that_left_stays_in_its_rack_while_a_job_holds_it() -> None:
    old = built({"r0": {"a": 2, "b": 2}, "r1": {"c": 4}})
    new = built({"r0": {"z": 1, "a": 2}, "r1": {"c": 2}})
    kept = keeping(new, old, {"b": 1, "c": 3})
    assert [(m.name, m.gpus) for m in kept.machines] == [("z", 1), ("a", 2), ("b", 2), ("c", 3)]
    assert kept.rack_of == (0, 0, 0, 1)
    assert difference(old, new).describe() == "joined: z; left: b; changed: c"
    state = ClusterState(old)
    state.place(Job("j", 3), Placement((1, 2, 2)))
    with pytest.raises(PlacementError, match="machine b is no longer there"):
        state.on(new)
    assert state.on(kept).find("j").placement == Placement((2, 3, 3))


def test_placements_are_renumbered_whole() -> None:
    old, new = built({"r0": {"a": 2}, "r1": {"b": 2}}), built({"r1": {"b": 2}, "r0": {"x": 1, "a": 2}})
    numbers = Renumbering(old, new)
    where = Placement((0, 1), (1,), (1, 0, 1), server=0, aggregate=(1, 0))
    assert numbers.placement(where) == Placement((2, 0), (0,), (1, 0, 1), server=2, aggregate=(0, 1))
    assert not Renumbering(old, built({"r0": {"a": 2}})).is_known(where)


@pytest.mark.parametrize("policy", ["titan", "cranny"])
def test_a_simulation_has_machines_that_join_and_leave(policy: str) -> None:
    cluster = Cluster.single_rack(2, 2)
    jobs = [
        Job("a", 2, duration_s=100.0),
        Job("b", 2, duration_s=100.0),
        Job("c", 2, submit_s=60.0, duration_s=100.0),
    ]
    events: list[tuple[float, Event]] = [
        (50.0, MachineJoined(1)),
        (150.0, MachineLeft(1)),
        (400.0, MachineJoined(1)),
    ]
    result = cranny.simulate(cluster, jobs, policy, machine_events=events, checkpoint_s=0.0)
    started = dict(zip(result.jobs["job_id"], result.jobs["start_s"], strict=True))
    assert started["a"] == 0.0
    assert min(started["b"], started["c"]) == 50.0
    assert result.summary["jobs_done"] == 3


def test_a_machine_that_leaves_stops_its_jobs_as_one_that_fails_does() -> None:
    cluster, jobs = Cluster.single_rack(2, 2), [Job("a", 4, duration_s=100.0)]
    gone: list[Event] = [MachineLeft(1), MachineFailed(1)]
    runs = [
        cranny.simulate(cluster, jobs, "titan", machine_events=[(30.0, each), (60.0, MachineJoined(1))]).jobs
        for each in gone
    ]
    assert runs[0].equals(runs[1])
    assert runs[0]["restarts"].to_list() == [1]
