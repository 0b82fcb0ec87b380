from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.buddy import smallest_block
from cranny.policies.hived import HiveD, cell_sizes, fit


def place(
    state: ClusterState, name: str, gpus: int, tenant: str = "", policy: HiveD | None = None
) -> Placement | None:
    job = Job(id=name, gpus=gpus, tenant=tenant)
    placement = (policy or HiveD()).place(job, state.snapshot())
    if placement is not None:
        state.place(job, placement)
        check(state)
    return placement


def machines_of(state: ClusterState, tenant: str) -> set[int]:
    return {
        machine for running in state.running.values() if running.job.tenant == tenant for machine in running.held
    }


def test_a_cell_is_split_from_the_smallest_free_one() -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    assert place(state, "a", 1) == Placement((0,), gpus=(0,))
    assert place(state, "b", 2) == Placement((0, 0), gpus=(2, 3))  # GPU 1 is no pair
    assert place(state, "c", 1) == Placement((0,), gpus=(1,))
    assert place(state, "d", 4) == Placement((0,) * 4, gpus=(4, 5, 6, 7))
    assert place(state, "e", 1) == Placement((1,), gpus=(0,))


def test_the_smallest_free_cell_of_all_machines_is_split_not_that_of_the_fullest() -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    state.place(Job(id="a", gpus=6), Placement((0,) * 6, gpus=(0, 1, 2, 3, 4, 5)))  # leaves a pair
    state.place(Job(id="b", gpus=5), Placement((1,) * 5, gpus=(0, 1, 2, 3, 4)))  # leaves 5 and the pair 6, 7
    assert place(state, "c", 1) == Placement((1,), gpus=(5,))
    assert place(state, "d", 2) == Placement((0, 0), gpus=(6, 7))


def test_cells_merge_again_when_their_jobs_end() -> None:
    state = ClusterState(Cluster.single_rack(1, 4))
    for name in "abcd":
        place(state, name, 1)
    for name in "ac":
        state.release(name)
    assert place(state, "e", 2) is None  # two free GPUs, but no pair
    assert HiveD().why_wait(Job(id="e", gpus=2), state.snapshot()) == (
        "needs cells of 2 GPUs; the 2 free GPUs are scattered"
    )
    state.release("b")
    assert place(state, "e", 2) == Placement((0, 0), gpus=(0, 1))


def test_five_gpus_are_a_quad_and_one_on_the_same_machine() -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    state.place(Job(id="a", gpus=3), Placement((0,) * 3))
    assert place(state, "b", 5) == Placement((0,) * 5, gpus=(3, 4, 5, 6, 7))


def test_cells_of_one_job_come_from_several_machines_if_they_must() -> None:
    state = ClusterState(Cluster.single_rack(2, 4))
    state.place(Job(id="a", gpus=2), Placement((0, 0)))
    state.place(Job(id="b", gpus=3), Placement((1,) * 3))
    assert place(state, "c", 3) == Placement((0, 0, 1), gpus=(2, 3, 3))
    assert place(state, "d", 1) is None
    assert HiveD().why_wait(Job(id="d", gpus=1), state.snapshot()) == "needs 1 GPU, 0 free"


def test_a_large_job_takes_machines_of_one_rack_and_cells_for_the_rest() -> None:
    state = ClusterState(Cluster.fat_tree(2, 3, 8))
    state.place(Job(id="a", gpus=1), Placement((0,)))
    placement = place(state, "b", 20)
    assert placement is not None
    assert dict(placement.counts) == {1: 8, 2: 8, 0: 4}
    assert place(state, "c", 24) == Placement((3,) * 8 + (4,) * 8 + (5,) * 8, gpus=(*range(8),) * 3)


def test_a_large_job_spans_few_racks_if_none_has_enough_machines() -> None:
    state = ClusterState(Cluster.fat_tree(3, 3, 2))
    for machine in (0, 1, 3):
        state.place(Job(id=f"on-{machine}", gpus=2), Placement((machine, machine)))
    placement = place(state, "a", 8)
    assert placement is not None
    assert set(placement.counts) == {6, 7, 8, 4}


def test_a_large_job_waits_for_whole_machines() -> None:
    state = ClusterState(Cluster.single_rack(3, 4))
    for machine in (0, 1):
        state.place(Job(id=f"on-{machine}", gpus=2), Placement((machine, machine)))
    assert place(state, "a", 8) is None
    assert "4 + 4" in HiveD().why_wait(Job(id="a", gpus=8), state.snapshot())


def test_smaller_machines_serve_a_job_larger_than_any_machine() -> None:
    machines = tuple(Machine(f"m{i}", gpus) for i, gpus in enumerate((8, 4, 4, 8)))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 4)))
    state.place(Job(id="a", gpus=1), Placement((3,)))
    placement = place(state, "b", 16)
    assert placement is not None
    assert dict(placement.counts) == {0: 8, 1: 4, 2: 4}
    assert place(state, "c", 8) is None  # one cell of 8 fits a machine, so it waits for one


def test_an_idle_rack_is_split_last() -> None:
    state = ClusterState(Cluster.fat_tree(2, 2, 2))
    state.place(Job(id="a", gpus=2), Placement((2, 2)))
    assert place(state, "b", 2) == Placement((3, 3), gpus=(0, 1))


def test_a_tenant_never_takes_a_machine_that_another_uses() -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    policy = HiveD({"a": 0.5, "b": 0.5})
    assert place(state, "a1", 1, "a", policy) == Placement((0,), gpus=(0,))
    assert place(state, "b1", 8, "b", policy) == Placement((1,) * 8, gpus=tuple(range(8)))
    assert place(state, "b2", 1, "b", policy) is None
    assert policy.why_wait(Job(id="b2", gpus=1, tenant="b"), state.snapshot()) == (
        "needs cells of 1 GPUs; tenant 'b' uses 1 of its 1 machines"
    )
    assert place(state, "a2", 7, "a", policy) is not None


def test_a_tenant_never_has_more_machines_than_its_share_even_if_all_others_sleep() -> None:
    state = ClusterState(Cluster.single_rack(4, 2))
    policy = HiveD({"a": 0.5, "b": 0.5})
    assert [place(state, f"a{i}", 2, "a", policy) is not None for i in range(3)] == [True, True, False]
    assert place(state, "a-large", 6, "a", policy) is None
    assert policy.why_wait(Job(id="x", gpus=6, tenant="a"), state.snapshot()) == "needs 6 GPUs, tenant 'a' owns 4"
    assert place(state, "b", 4, "b", policy) is not None


def test_a_large_job_stays_within_the_share_of_its_tenant() -> None:
    state = ClusterState(Cluster.single_rack(4, 2))
    policy = HiveD({"a": 0.75})
    place(state, "small", 1, "a", policy)
    assert place(state, "large", 5, "a", policy) is not None
    assert machines_of(state, "a") == {0, 1, 2}


def test_a_machine_is_free_for_all_when_its_last_job_has_left() -> None:
    state = ClusterState(Cluster.single_rack(2, 2))
    policy = HiveD({"a": 0.5, "b": 0.5})
    place(state, "a1", 1, "a", policy)
    state.place(Job(id="by-hand", gpus=2, tenant="c"), Placement((1, 1)))
    assert place(state, "b1", 1, "b", policy) is None
    state.release("a1")
    assert place(state, "b1", 1, "b", policy) == Placement((0,), gpus=(0,))


def test_a_tenant_without_cells_is_told_so() -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    policy = HiveD({"a": 0.4, "b": 0.6})
    assert place(state, "x", 1, "x", policy) is None
    assert policy.why_wait(Job(id="x", gpus=1, tenant="x"), state.snapshot()) == "tenant 'x' has no cells"
    assert place(state, "a", 1, "a", policy) is None  # 0.4 of two machines is none
    assert policy.why_wait(Job(id="a", gpus=1, tenant="a"), state.snapshot()) == "tenant 'a' has no cells"


def test_shares_count_for_each_kind_of_machine() -> None:
    machines = (
        Machine("a0", 4, "A100"),
        Machine("a1", 4, "A100"),
        Machine("h0", 4, "H100"),
        Machine("h1", 4, "H100"),
    )
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 4)))
    policy = HiveD({"a": 0.5})
    for index, wanted in enumerate(("H100", "H100", "A100")):
        job = Job(id=str(index), gpus=4, tenant="a", gpu_type=wanted)
        placement = policy.place(job, state.snapshot())
        assert (placement is None) == (index == 1)
        if placement is not None:
            state.place(job, placement)
    check(state)
    assert machines_of(state, "a") == {0, 2}


def test_a_job_takes_several_machines_if_none_that_can_run_it_is_large_enough() -> None:
    machines = (Machine("a", 8, "A100"), Machine("h0", 4, "H100"), Machine("h1", 4, "H100"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    job = Job(id="a", gpus=8, speeds={"H100": 1.0})
    placement = HiveD().place(job, state.snapshot())
    assert placement is not None
    assert dict(placement.counts) == {1: 4, 2: 4}
    state.place(Job(id="b", gpus=1), Placement((1,)))
    state.drain(2)
    state.place(Job(id="c", gpus=4), Placement((0,) * 4))
    three = Job(id="d", gpus=3, speeds={"H100": 1.0, "none": 1.0})
    assert HiveD().place(three, state.snapshot()) == Placement((1,) * 3, gpus=(1, 2, 3))
    assert "needs 8 GPUs, 3 free" in HiveD().why_wait(job, state.snapshot())


def test_a_tenant_owns_only_what_can_run_the_job() -> None:
    machines = (Machine("a0", 8, "A100"), Machine("a1", 8, "A100"), Machine("h", 4, "H100"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    policy = HiveD({"a": 0.5, "b": 0.5})
    job = Job(id="a", gpus=4, tenant="a", speeds={"H100": 1.0})
    assert policy.place(job, state.snapshot()) is None
    assert policy.why_wait(job, state.snapshot()) == "tenant 'a' has no cells"  # half of one H100 machine is none
    whole = HiveD({"a": 1.0})
    assert whole.place(job, state.snapshot()) == Placement((2,) * 4, gpus=(0, 1, 2, 3))
    larger = Job(id="b", gpus=5, tenant="a", speeds={"H100": 1.0})
    assert whole.why_wait(larger, state.snapshot()) == "needs 5 GPUs, tenant 'a' owns 4"


@pytest.mark.parametrize("vcs", [{"a": 0.6, "b": 0.6}, {"a": -0.1}, {"a": 1.5}, {"a": float("nan")}])
def test_refuses_shares_that_are_no_shares(vcs: Mapping[str, float]) -> None:
    with pytest.raises(InputError, match="hived"):
        HiveD(vcs)


def test_cells_of_a_number_of_gpus_are_the_fewest() -> None:
    assert cell_sizes(5, 8) == [4, 1]
    assert cell_sizes(20, 8) == [8, 8, 4]
    assert cell_sizes(7, 6) == [6, 1]


@given(slots=st.integers(0, 2**10 - 1))
def test_the_free_cells_cover_every_free_gpu_once_and_are_the_largest(slots: int) -> None:
    cells, rest = list[tuple[int, int]](), slots
    while cell := smallest_block(rest, 1):
        cells.append(cell)
        rest &= ~((1 << cell[1]) - 1 << cell[0])
    covered = [gpu for first, size in cells for gpu in range(first, first + size)]
    assert sorted(covered) == [gpu for gpu in range(10) if slots >> gpu & 1]
    for first, size in cells:
        assert first % size == 0
        assert (first ^ size, size) not in cells  # buddies are merged


@given(slots=st.integers(0, 2**8 - 1), gpus=st.integers(1, 8))
def test_cells_fit_whenever_they_could(slots: int, gpus: int) -> None:
    found = fit(slots, gpus)
    largest = 1 << (gpus.bit_length() - 1)
    if found is None:
        rest = slots
        for size in cell_sizes(gpus, 16):  # taking any free cells, the largest first, gets no further
            at = next((a for a in range(0, 8, size) if rest >> a & (1 << size) - 1 == (1 << size) - 1), None)
            if at is None:
                return
            rest &= ~((1 << size) - 1 << at)
        pytest.fail("there are cells")
    else:
        split, taken = found
        assert taken & ~slots == 0
        assert taken.bit_count() == gpus
        assert split >= largest


@settings(max_examples=examples(60))
@given(
    shares=st.tuples(*[st.sampled_from([0.0, 0.1, 0.25, 1 / 3]) for _ in range(3)]),
    machines=st.integers(2, 9),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 18), st.integers(0, 2)), max_size=40),
)
def test_no_tenant_ever_exceeds_its_share_or_shares_a_machine(
    shares: tuple[float, ...], machines: int, steps: list[tuple[int, int, int]]
) -> None:
    tenants = ("a", "b", "c")
    policy = HiveD(dict(zip(tenants, shares, strict=True)))
    state = ClusterState(Cluster.fat_tree(2, machines, 4))
    for number, (tenant, gpus, releases) in enumerate(steps):
        for job_id in list(state.running)[:releases]:
            state.release(job_id)
        place(state, str(number), gpus, tenants[tenant], policy)
        used = [machines_of(state, name) for name in tenants]
        for have, share in zip(used, shares, strict=True):
            assert len(have) <= share * 2 * machines + 1e-6
        assert len(set().union(*used)) == sum(map(len, used))


@settings(max_examples=examples(40))
@given(
    tenants=st.integers(1, 3),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 2)), max_size=30),
)
def test_a_tenant_with_a_machine_left_always_gets_one(tenants: int, steps: list[tuple[int, int, int]]) -> None:
    names = [f"t{i}" for i in range(tenants)]
    policy = HiveD(dict.fromkeys(names, 1 / tenants))
    state = ClusterState(Cluster.single_rack(3 * tenants, 4))
    for number, (tenant, gpus, releases) in enumerate(steps):
        name = names[tenant % tenants]
        for job_id in list(state.running)[:releases]:
            state.release(job_id)
        has_one_left = len(machines_of(state, name)) < 3
        assert place(state, str(number), gpus, name, policy) is not None or not has_one_left
