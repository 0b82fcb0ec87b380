"""Constraints of jobs: machines that they must not have, racks that they must not leave, or be spread over."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.constraints import kept_by_some, violated
from tests.reference.invariants import check

from cranny.core.constrained_placer import ConstrainedPlacer
from cranny.core.constraints import Constraints, SameRack, rack_shares
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, mask_of
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile
from cranny.policy_choice import seeded_policy

STREAMS = ModelProfile("streams", grad_bytes=1e9, iteration_ms=80.0)  # takes all of a link
CLUSTER = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4)


def constrained(constraints: Constraints, policy: str = "titan") -> ConstrainedPlacer:
    return ConstrainedPlacer(seeded_policy(policy, 0), lambda _: constraints)


def with_held(*held: int) -> ClusterState:
    """Return a state in which each machine has so many GPUs held."""
    state = ClusterState(CLUSTER)
    for machine, gpus in enumerate(held):
        if gpus:
            state.place(Job(id=f"held-{machine}", gpus=gpus), Placement((machine,) * gpus))
    return state


def test_an_excluded_machine_is_not_used() -> None:
    state = with_held(2, 0, 0, 0)
    job = Job(id="a", gpus=2)
    assert constrained(Constraints()).place(job, state.snapshot()) == Placement((0, 0))
    placement = constrained(Constraints(mask_of([0, 1]))).place(job, state.snapshot())
    assert placement == Placement((2, 2))


def test_one_rack_is_kept_to_and_the_fuller_one_is_taken() -> None:
    state = with_held(3, 0, 2, 0)  # 5 free in the first rack, 6 in the second
    job = Job(id="a", gpus=5)
    placement = constrained(Constraints(same_rack="required"), "best-fit").place(job, state.snapshot())
    assert placement is not None
    assert {CLUSTER.rack_of[machine] for machine in placement.machines} == {0}


def test_a_job_waits_for_one_rack_if_it_must_and_says_so() -> None:
    state = with_held(2, 0, 2, 0)  # 6 free in each rack
    job = Job(id="a", gpus=7)
    assert constrained(Constraints(same_rack="required")).place(job, state.snapshot()) is None
    told = constrained(Constraints(same_rack="required")).why_wait(job, state.snapshot())
    assert told == "must have all its 7 GPUs in one rack; the emptiest has 6 free"
    assert constrained(Constraints(same_rack="preferred")).place(job, state.snapshot()) is not None


@pytest.mark.parametrize("same_rack", ["required", "preferred"])
def test_a_parameter_server_shares_the_rack_too(same_rack: SameRack) -> None:
    state = with_held(0, 0, 4, 4)
    state.place(Job("a", 4, STREAMS, "ina"), Placement((0, 0, 1, 1)))
    job = Job("b", 3, STREAMS, "ina")
    free = constrained(Constraints(), "netpack").place(job, state.snapshot())
    assert free is not None
    assert (set(free.machines), free.server) == ({0, 1}, 2)  # its workers are in one rack, its server in the other
    placement = constrained(Constraints(same_rack=same_rack), "netpack").place(job, state.snapshot())
    assert placement is not None
    assert (set(placement.machines), placement.server in {0, 1}) == ({0, 1}, True)


def test_a_job_waits_for_machines_that_it_does_not_exclude_and_says_so() -> None:
    state = with_held(0, 0, 3, 3)
    job = Job(id="a", gpus=4)
    placer = constrained(Constraints(mask_of([0, 1])))
    assert placer.place(job, state.snapshot()) is None
    assert (
        placer.why_wait(job, state.snapshot()) == "needs 4 GPUs, 2 free on the machines that it does not exclude"
    )


def test_hidden_machines_are_down_in_the_view_only() -> None:
    state = with_held(1, 0, 0, 0)
    view = state.snapshot().only(mask_of([0, 3]))
    assert view.free.tolist() == [3, 0, 0, 4]
    assert [view.is_up(machine) for machine in range(4)] == [True, False, False, True]
    assert state.free.tolist() == [3, 4, 4, 4]
    assert view.running.keys() == {"held-0"}
    check(state)


def test_a_job_that_is_spread_takes_as_few_racks_as_it_may_evenly() -> None:
    cluster = Cluster.fat_tree(racks=4, machines_per_rack=2, gpus_per_machine=4)
    state = ClusterState(cluster)
    placement = constrained(Constraints(spread=2), "best-fit").place(Job("a", 8), state.snapshot())
    assert placement is not None
    assert placement.counts == {0: 4, 2: 4}
    three = constrained(Constraints(spread=3), "best-fit").place(Job("b", 4), state.snapshot())
    assert three is not None
    assert three.counts == {0: 2, 2: 1, 4: 1}
    state.place(Job("a", 8), placement)
    state.drain(7)
    fullest = constrained(Constraints(spread=2), "best-fit").place(Job("c", 6), state.snapshot())
    assert fullest is not None
    assert fullest.counts == {1: 3, 3: 3}


def test_a_job_that_cannot_be_spread_evenly_takes_more_racks() -> None:
    cluster = Cluster.fat_tree(racks=3, machines_per_rack=1, gpus_per_machine=4)
    state = ClusterState(cluster)
    for machine in (1, 2):
        state.place(Job(f"on-{machine}", 2), Placement((machine,) * 2))
    placement = constrained(Constraints(spread=2), "best-fit").place(Job("a", 8), state.snapshot())
    assert placement is not None
    assert placement.counts == {0: 4, 1: 2, 2: 2}


def test_a_job_waits_until_it_can_be_spread_and_says_so() -> None:
    state = with_held(1, 0, 4, 3)
    placer = constrained(Constraints(spread=2))
    assert placer.place(Job("a", 4), state.snapshot()) is None
    told = placer.why_wait(Job("a", 4), state.snapshot())
    assert told == "must be spread over 2 racks with up to 2 GPUs in each; 3 of 4 free so"
    state.place(Job("b", 1), Placement((3,)))
    told = placer.why_wait(Job("a", 4), state.snapshot())
    assert told == "must be spread over 2 racks with up to 2 GPUs in each; free GPUs are in 1 rack"


@settings(max_examples=examples(150))
@given(
    free=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    gpus=st.integers(1, 12),
    spread=st.integers(2, 5),
    tightest=st.booleans(),
)
def test_shares_of_racks_exist_where_some_do(free: list[int], gpus: int, spread: int, *, tightest: bool) -> None:
    wanted = Constraints(spread=spread)
    shares = rack_shares(gpus, wanted, free, tightest=tightest)
    most = -(-gpus // spread)
    some = [
        each
        for each in product(*(range(min(most, here) + 1) for here in free))
        if sum(each) == gpus and sum(map(bool, each)) >= spread
    ]
    assert (shares is not None) == bool(some)
    assert (wanted.spread_over(gpus, free) == gpus) == bool(some)
    if shares is not None:
        assert tuple(shares) in some
        even = [
            each for each in some if sum(map(bool, each)) == spread and max(each) - min(filter(None, each)) <= 1
        ]
        assert not even or tuple(shares) in even


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.integers(2, 12),
    st.sets(st.integers(0, 3), max_size=2),
    st.sampled_from(
        ["titan", "best-fit", "tiresias", "elasticflow", "gpu-balance", "random", "netpack", "cranny"]
    ),
)
def test_a_spread_is_always_kept_and_found_where_there_is_one(
    held: list[int], gpus: int, excluded: set[int], policy: str
) -> None:
    state = with_held(*held)
    job = Job("a", gpus, STREAMS, "ina") if policy == "netpack" else Job(id="a", gpus=gpus)
    placer = constrained(Constraints(mask_of(excluded), spread=2), policy)
    placement = placer.place(job, state.snapshot())
    named = {"exclude": [CLUSTER.machines[machine].name for machine in excluded], "spread": 2}
    if placement is None:
        assert placer.why_wait(job, state.snapshot())
        waits = policy in {"titan", "netpack", "elasticflow"}  # for bandwidth, or a block of GPUs
        assert waits or not kept_by_some(named, gpus, state.free.tolist(), CLUSTER)
        return
    assert not violated(named, placement, CLUSTER)
    state.place(job, placement)
    check(state)


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=4),
    st.integers(1, 16),
    st.sets(st.integers(0, 3)),
    st.sampled_from(["required", "preferred", None]),
    st.sampled_from(["titan", "best-fit", "tiresias", "elasticflow", "gpu-balance", "random", "netpack"]),
)
def test_constraints_are_always_kept(
    held: list[int], gpus: int, excluded: set[int], same_rack: SameRack | None, policy: str
) -> None:
    state = with_held(*held)
    job = Job("a", gpus, STREAMS, "ina") if policy == "netpack" else Job(id="a", gpus=gpus)
    placer = constrained(Constraints(mask_of(excluded), same_rack), policy)
    placement = placer.place(job, state.snapshot())
    if placement is None:
        assert placer.why_wait(job, state.snapshot())
        return
    server = set() if placement.server is None else {placement.server}
    used = placement.counts.keys() | server
    assert not excluded & used
    if same_rack == "required":
        assert len({CLUSTER.rack_of[machine] for machine in used}) == 1
    state.place(job, placement)
    check(state)


@pytest.mark.parametrize("policy", ["titan", "best-fit"])
def test_a_copy_of_a_state_goes_its_own_way(policy: str) -> None:
    state = with_held(1, 0, 0, 0)
    state.drain(3)
    other = state.copy()
    placement = seeded_policy(policy, 0).place(Job(id="a", gpus=3), other.snapshot())
    assert placement is not None
    other.place(Job(id="a", gpus=3), placement)
    assert "a" in other
    assert "a" not in state
    assert not other.is_up(3)
    check(state)
    check(other)
