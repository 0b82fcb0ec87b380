import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.buddy import aligned, smallest_block
from cranny.policies.elasticflow import ElasticFlow, power_of_two_from


def place(state: ClusterState, name: str, gpus: int) -> Placement | None:
    job = Job(id=name, gpus=gpus)
    placement = ElasticFlow().place(job, state.snapshot())
    if placement is not None:
        state.place(job, placement)
        check(state)
    return placement


def rack(*gpus: int) -> Cluster:
    machines = tuple(Machine(f"machine{i}", size) for i, size in enumerate(gpus))
    return Cluster.of(Switch("rack", machines, (100.0,) * len(machines)))


def test_a_job_of_five_holds_eight_gpus() -> None:
    state = ClusterState(Cluster.single_rack(2, 8))
    placement = place(state, "a", 5)
    assert placement == Placement((0,) * 5, spare=(0,) * 3, gpus=(0, 1, 2, 3, 4, 5, 6, 7))
    assert state.free.tolist() == [0, 8]


def test_a_block_begins_at_a_multiple_of_its_size() -> None:
    state = ClusterState(Cluster.single_rack(1, 8))
    assert [place(state, str(gpus), gpus) for gpus in (1, 2, 3)] == [
        Placement((0,), gpus=(0,)),
        Placement((0, 0), gpus=(2, 3)),
        Placement((0, 0, 0), spare=(0,), gpus=(4, 5, 6, 7)),
    ]
    assert place(state, "last", 1) == Placement((0,), gpus=(1,))


def test_splits_the_smallest_block_of_the_tightest_machine() -> None:
    state = ClusterState(Cluster.single_rack(3, 8))
    state.place(Job(id="a", gpus=4), Placement((0,) * 4))
    state.place(Job(id="b", gpus=5), Placement((1,) * 5, gpus=(0, 1, 2, 3, 6)))
    assert place(state, "c", 1) == Placement((1,), gpus=(7,))  # the rest of a broken pair
    assert place(state, "d", 2) == Placement((1, 1), gpus=(4, 5))
    assert place(state, "e", 2) == Placement((0, 0), gpus=(4, 5))


def test_waits_when_free_gpus_form_no_block_although_they_are_enough() -> None:
    state = ClusterState(Cluster.single_rack(1, 8))
    state.place(Job(id="a", gpus=2), Placement((0, 0), gpus=(1, 5)))
    assert place(state, "b", 4) is None
    assert ElasticFlow().why_wait(Job(id="b", gpus=4), state.snapshot()) == (
        "needs a free block of 4 GPUs; the 6 free GPUs are scattered"
    )


def test_says_that_the_rounding_is_what_does_not_fit() -> None:
    state = ClusterState(Cluster.single_rack(1, 8))
    state.place(Job(id="a", gpus=2), Placement((0, 0)))
    assert place(state, "b", 5) is None
    assert ElasticFlow().why_wait(Job(id="b", gpus=5), state.snapshot()) == (
        "needs 8 GPUs (5 rounded up to a power of two), 6 free"
    )
    assert ElasticFlow().why_wait(Job(id="b", gpus=7), state.snapshot()) == "needs 7 GPUs, 6 free"


def test_a_large_job_takes_a_power_of_two_of_machines_below_one_switch() -> None:
    state = ClusterState(Cluster.fat_tree(2, 4, 8))
    place(state, "small", 1)  # on machine 0
    placement = place(state, "large", 20)
    assert placement is not None
    assert sorted(placement.counts.items()) == [(4, 8), (5, 8), (6, 8), (7, 8)]
    assert len(placement.spare) == 12
    assert place(state, "two", 16) == Placement((2,) * 8 + (3,) * 8, gpus=tuple(range(8)) * 2)


def test_prefers_the_block_of_machines_that_splits_the_least() -> None:
    state = ClusterState(Cluster.fat_tree(2, 4, 2))
    place(state, "a", 2)  # breaks up the first rack
    placement = place(state, "b", 4)
    assert placement is not None
    assert set(placement.machines) == {2, 3}


def test_a_large_job_takes_scattered_idle_machines_when_no_block_of_them_is_left() -> None:
    state = ClusterState(Cluster.fat_tree(2, 3, 4))
    for machine in (1, 3):
        state.place(Job(id=f"on-{machine}", gpus=1), Placement((machine,)))
    placement = place(state, "a", 8)  # machines 0 and 2, or 4 and 5: each below one switch, neither a block
    assert placement is not None
    assert set(placement.machines) in ({0, 2}, {4, 5})
    second = place(state, "b", 8)
    assert second is not None
    assert place(state, "c", 8) is None


def test_a_large_job_spans_switches_when_none_has_enough_machines() -> None:
    state = ClusterState(Cluster.fat_tree(2, 2, 4))
    for machine in (0, 3):
        state.place(Job(id=f"on-{machine}", gpus=1), Placement((machine,)))
    placement = place(state, "a", 8)
    assert placement is not None
    assert set(placement.machines) == {1, 2}


def test_a_machine_of_six_has_blocks_of_four_and_two() -> None:
    state = ClusterState(rack(6, 6))
    assert place(state, "a", 2) == Placement((0, 0), gpus=(4, 5))
    assert place(state, "b", 3) == Placement((0, 0, 0), spare=(0,), gpus=(0, 1, 2, 3))
    assert place(state, "c", 5) is None  # holds 8: the blocks of 4 of both machines
    state.release("b")
    placement = place(state, "c", 5)
    assert placement is not None
    assert dict(placement.counts) == {0: 4, 1: 4}
    assert state.free.tolist() == [0, 2]


def test_smaller_machines_together_stand_in_for_a_large_one() -> None:
    state = ClusterState(rack(8, 4, 4))
    state.place(Job(id="a", gpus=1), Placement((0,)))
    placement = place(state, "b", 8)
    assert placement is not None
    assert dict(placement.counts) == {1: 4, 2: 4}


def test_a_job_too_large_for_its_power_of_two_is_not_rounded() -> None:
    state = ClusterState(Cluster.single_rack(3, 8))
    placement = place(state, "a", 20)
    assert placement is not None
    assert (placement.machines, placement.spare) == ((0,) * 8 + (1,) * 8 + (2,) * 4, ())
    waiting = Job(id="b", gpus=17)
    assert ElasticFlow().place(waiting, state.snapshot()) is None
    state.release("a")
    state.place(Job(id="c", gpus=1), Placement((1,)))
    assert place(state, "b", 17) is None
    assert "scattered" in ElasticFlow().why_wait(waiting, state.snapshot())


def test_keeps_to_the_type_of_gpu_that_a_job_names() -> None:
    machines = (Machine("a", 4, "A100"), Machine("h", 4, "H100"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0, 100.0))))
    job = Job(id="a", gpus=3, gpu_type="H100")
    placement = ElasticFlow().place(job, state.snapshot())
    assert placement is not None
    assert set(placement.counts) == {1}
    assert ElasticFlow().place(Job(id="b", gpus=1, gpu_type="V100"), state.snapshot()) is None
    assert "0 free" in ElasticFlow().why_wait(Job(id="b", gpus=1, gpu_type="V100"), state.snapshot())


def test_machines_that_cannot_run_a_job_say_nothing_about_its_rounding() -> None:
    machines = (Machine("a", 8, "A100"), Machine("b", 8, "A100"), Machine("h", 6, "H100"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    job = Job(id="a", gpus=5, speeds={"H100": 1.0})  # 8 GPUs in a block are there, but none of its type
    placement = ElasticFlow().place(job, state.snapshot())
    assert placement is not None
    assert (placement.machines, placement.spare) == ((2,) * 5, ())
    state.place(Job(id="small", gpus=1), Placement((2,)))
    assert ElasticFlow().place(job, state.snapshot()) is None
    assert ElasticFlow().why_wait(job, state.snapshot()) == (
        "needs idle machines with 5 GPUs in all; the 5 free GPUs are scattered"
    )


@settings(max_examples=examples(60))
@given(
    machines=st.lists(st.tuples(st.sampled_from([2, 4, 6, 8]), st.sampled_from("ab")), min_size=1, max_size=5),
    gpus=st.integers(1, 16),
)
def test_a_job_with_a_speed_on_one_type_only_is_placed_as_if_it_named_the_type(
    machines: list[tuple[int, str]], gpus: int
) -> None:
    described = tuple(Machine(f"m{i}", size, kind) for i, (size, kind) in enumerate(machines))
    view = ClusterState(Cluster.of(Switch("rack", described, (100.0,) * len(described)))).snapshot()
    named = ElasticFlow().place(Job(id="a", gpus=gpus, gpu_type="b"), view)
    assert ElasticFlow().place(Job(id="a", gpus=gpus, speeds={"b": 2.0}), view) == named


@pytest.mark.parametrize(("gpus", "rounded"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16)])
def test_rounds_up_to_a_power_of_two(gpus: int, rounded: int) -> None:
    assert power_of_two_from(gpus) == rounded


@given(free=st.integers(0, 2**12 - 1), level=st.integers(0, 4))
def test_free_blocks_are_what_looking_at_each_position_finds(free: int, level: int) -> None:
    size = 1 << level
    positions = [at for at in range(0, 16, size) if free >> at & (1 << size) - 1 == (1 << size) - 1]
    assert aligned(free, size) == sum(1 << at for at in positions)
    block = smallest_block(free, size)
    assert (block is None) == (not positions)
    if block is not None:
        start, width = block
        assert start % width == 0
        assert aligned(free, width) >> start & 1
        buddies = start & ~width
        assert not aligned(free, 2 * width) >> buddies & 1  # nothing larger holds it
        assert all(not _whole(free, at, smaller) for smaller in _sizes(size, width) for at in range(16))


def _sizes(size: int, width: int) -> list[int]:
    return [1 << k for k in range(5) if size <= 1 << k < width]


def _whole(free: int, at: int, size: int) -> bool:
    """Say whether a free block of this size at this position is no half of a larger free one."""
    return bool(aligned(free, size) >> at & 1) and not aligned(free, 2 * size) >> (at & ~size) & 1


@settings(max_examples=examples(60))
@given(
    sizes=st.sampled_from([(8,) * 6, (4,) * 5, (8, 8, 4, 4), (6, 6, 8)]),
    steps=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 3)), max_size=40),
)
def test_every_job_holds_aligned_powers_of_two(sizes: tuple[int, ...], steps: list[tuple[int, int]]) -> None:
    state = ClusterState(rack(*sizes))
    for number, (gpus, releases) in enumerate(steps):
        for job_id in list(state.running)[:releases]:
            state.release(job_id)
        place(state, str(number), gpus)
    rounded = {units: sum(1 << (g.bit_length() - 1) == units for g in sizes) for units in (1, 2, 4, 8)}
    for running in state.running.values():
        size = power_of_two_from(running.job.gpus)
        if any(units * count >= size for units, count in rounded.items()):
            assert sum(gpus.bit_count() for gpus in running.held.values()) == size
            for gpus in running.held.values():
                block = gpus.bit_count()
                assert block & (block - 1) == 0
                assert aligned(gpus, block).bit_count() == 1
            assert len({gpus.bit_count() for gpus in running.held.values()}) == 1
