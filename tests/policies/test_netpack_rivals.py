import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.test_simple_policies import state_with, typed
from tests.reference.invariants import check

from cranny.core.protocol import Placer
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile
from cranny.policies import policy
from cranny.policies._shared.ranked_fill import candidates, fill, ordered
from cranny.policies.netpack_baselines import (
    Comb,
    FlowBalance,
    FlowBalancePerWorker,
    GpuBalance,
    GpuBalancePerWorker,
    LeastFragmentation,
    left_above,
)
from cranny.policies.optimus import Optimus
from cranny.policies.tetris import Tetris, TetrisPerWorker

RIVALS = ("gpu-balance", "flow-balance", "least-fragmentation", "optimus", "tetris", "comb")
PER_WORKER = ("gpu-balance-per-worker", "flow-balance-per-worker", "tetris-per-worker")
# 8 Gbit in 80 ms at 100 Gbps, and 80 ms of computing: it talks half of its time.
UNIT = ModelProfile("unit", grad_bytes=1e9, iteration_ms=80.0)


def job(gpus: int, name: str = "job") -> Job:
    return Job(name, gpus, UNIT, "ina")


def placed(placer: Placer, state: ClusterState, gpus: int) -> tuple[int, ...] | None:
    wanted = job(gpus)
    placement = placer.place(wanted, state.snapshot())
    if placement is None:
        return None
    assert placement.server is None  # beside rank 0
    state.place(wanted, placement)
    check(state)
    state.release(wanted.id)
    return placement.machines


def occupy(state: ClusterState, *machines: int) -> None:
    """Run a job with a worker on each of these machines."""
    state.place(job(len(machines), f"on-{machines}"), Placement(machines))


# -- the walk -------------------------------------------------------------------------------------------------


def test_machines_that_hold_the_whole_job_are_the_only_candidates() -> None:
    found = candidates(job(3), state_with([2, 4, 0, 3]).snapshot())
    assert found.whole
    assert found.machines.tolist() == [1, 3]
    assert found.free.tolist() == [4, 3]


def test_all_machines_with_a_free_gpu_are_candidates_if_none_holds_the_job() -> None:
    found = candidates(job(5), state_with([2, 4, 0, 3]).snapshot())
    assert not found.whole
    assert found.machines.tolist() == [0, 1, 3]


def test_there_are_no_candidates_if_gpus_are_short() -> None:
    assert candidates(job(10), state_with([2, 4, 0, 3]).snapshot()).machines.size == 0
    untyped = Job(id="a", gpus=1, gpu_type="none")
    assert candidates(untyped, typed().snapshot()).machines.size == 0


@pytest.mark.parametrize("name", [*RIVALS, *PER_WORKER, "netpack", "netpack-lean", "netpack+cassini"])
def test_jobs_get_only_gpus_of_types_that_can_run_them(name: str) -> None:
    state = typed()
    for speeds, machines in (({"h200": 1.0}, {1, 2}), ({"t4": 0.5}, {0}), ({"t4": 0.5, "h200": 1.0}, {0, 1, 2})):
        wanted = Job(id="a", gpus=5, model=UNIT, collective="ina", speeds=speeds)
        placement = policy(name).place(wanted, state.snapshot())
        assert placement is not None
        assert set(placement.machines) <= machines
        state.place(wanted, placement)
        check(state)
        state.release(wanted.id)
    never = Job(id="a", gpus=1, gpu_type="t4", speeds={"h200": 1.0})
    assert policy(name).place(never, state.snapshot()) is None


def test_earlier_keys_outweigh_later_ones_and_equals_go_by_number() -> None:
    found = candidates(job(9), state_with([1, 4, 2, 4]).snapshot())
    assert ordered(found, [1, 1, 0, 1], -found.free) == [(2, 2), (1, 4), (3, 4), (0, 1)]


def test_keys_that_differ_by_rounding_alone_are_equal() -> None:
    found = candidates(job(9), state_with([4, 4, 4]).snapshot())
    assert ordered(found, [0.1 + 0.2, 0.3, 0.2], [0, 1, 1]) == [(2, 4), (0, 4), (1, 4)]
    assert ordered(found, [0.3 + 1e-6, 0.3, 0.2], [0, 1, 1]) == [(2, 4), (1, 4), (0, 4)]


@pytest.mark.parametrize("name", ["comb", "tetris"])
def test_machines_with_the_same_jobs_are_equal_in_whichever_order_these_came(name: str) -> None:
    state = ClusterState(Cluster.single_rack(4, 8))
    models = ("alexnet", "resnet18", "resnet101")
    for machine, other, came in ((0, 2, models), (1, 3, models[::-1])):
        for model in came:
            state.place(Job(f"{model} on {machine}", 2, model, "ring"), Placement((machine, other)))
    view = state.snapshot()
    assert view.link_use_gbps(0) > view.link_use_gbps(1)  # in the last bit
    placement = policy(name).place(Job("a", 12, "vgg16", "ring"), view)
    assert placement is not None
    assert placement.machines == (0,) * 5 + (1,) * 5 + (2,) * 2


def test_machines_are_filled_one_after_the_other() -> None:
    view = state_with([4, 4, 4]).snapshot()
    placement = fill(job(6), view, [(2, 4), (0, 4), (1, 4)], "because")
    assert placement is not None
    assert placement.machines == (2, 2, 2, 2, 0, 0)
    assert placement.explain().endswith("because")
    assert fill(job(6), view, [(2, 4)], "") is None


# -- one by one -----------------------------------------------------------------------------------------------


def test_gpu_balance_takes_the_most_free_gpus() -> None:
    assert placed(GpuBalance(), state_with([2, 3, 4, 1]), 1) == (2,)
    assert placed(GpuBalance(), state_with([2, 3, 4, 1]), 8) == (2, 2, 2, 2, 1, 1, 1, 0)


def test_least_fragmentation_uses_up_machines_in_use_and_opens_idle_ones_last() -> None:
    assert placed(LeastFragmentation(), state_with([4, 3, 2, 1]), 1) == (3,)
    assert placed(LeastFragmentation(), state_with([4, 3, 2, 1]), 2) == (2, 2)
    assert placed(LeastFragmentation(), state_with([4, 3, 2, 1]), 4) == (0, 0, 0, 0)  # not split
    assert placed(LeastFragmentation(), state_with([4, 3, 2, 1]), 7) == (3, 2, 2, 1, 1, 1, 0)


def test_least_fragmentation_knows_an_idle_machine_from_a_fragment_of_its_size() -> None:
    state = ClusterState(Cluster.of(Switch("top", (Machine("small", 2), Machine("large", 4)), (100.0, 100.0))))
    state.place(job(1, "old"), Placement((1,)))
    assert placed(LeastFragmentation(), state, 2) == (1, 1)


def test_flow_balance_takes_the_fewest_flows() -> None:
    state = state_with([4] * 4)
    occupy(state, 0, 1)
    occupy(state, 0, 2)
    assert [state.snapshot().link_users(machine) for machine in range(4)] == [2, 1, 1, 0]
    assert placed(FlowBalance(), state, 1) == (3,)
    assert placed(FlowBalance(), state, 10) == (3, 3, 3, 3, 1, 1, 1, 2, 2, 2)


def test_flow_balance_looks_at_flows_alone() -> None:
    assert placed(FlowBalance(), state_with([1, 2, 4, 3]), 6) == (0, 1, 1, 2, 2, 2)


def test_jobs_on_one_machine_are_no_flows() -> None:
    state = state_with([4, 4])
    occupy(state, 0, 0)
    assert placed(FlowBalance(), state, 1) == (0,)


@pytest.mark.parametrize(
    ("free", "gpus", "counts"),
    [
        ([4, 4, 4], 4, {0: 4}),
        ([4, 4, 4], 6, {0: 3, 1: 3}),
        ([4, 4, 4], 9, {0: 3, 1: 3, 2: 3}),
        ([4, 4, 4], 7, {0: 4, 1: 3}),  # a rank more on the first
        ([2, 3, 4], 6, {2: 3, 1: 3}),
        ([1, 4, 3], 8, {1: 4, 2: 3, 0: 1}),  # not even: the last machine has one GPU only
    ],
)
def test_optimus_divides_a_job_evenly_among_the_fewest_machines(
    free: list[int], gpus: int, counts: dict[int, int]
) -> None:
    placement = Optimus().place(job(gpus), state_with(free).snapshot())
    assert placement is not None
    assert dict(placement.counts) == counts
    assert list(placement.counts) == list(counts)
    assert f"evenly over k = {len(counts)}" in placement.explain()


@given(free=st.lists(st.integers(0, 8), min_size=1, max_size=8), gpus=st.integers(1, 40))
@settings(max_examples=examples(100))
def test_no_machine_of_optimus_could_take_a_rank_from_one_with_two_more(free: list[int], gpus: int) -> None:
    placement = Optimus().place(job(gpus), state_with(free, 8).snapshot())
    assert (placement is not None) == (sum(free) >= gpus)
    if placement is None:
        return
    roomiest = sorted(free, reverse=True)
    k = next(k for k in range(1, len(free) + 1) if sum(roomiest[:k]) >= gpus)
    counts = placement.counts
    assert len(counts) == k
    assert sorted((free[machine] for machine in counts), reverse=True) == roomiest[:k]
    most = max(counts.values())
    assert all(count == free[machine] or count >= most - 1 for machine, count in counts.items())


def test_tetris_aligns_a_job_on_one_machine_with_its_gpus_alone() -> None:
    state = state_with([4] * 3)
    occupy(state, 0, 1)
    state.place(job(2, "silent"), Placement((2, 2)))
    # Free 3, 3 and 2 of 4: the third uplink is unused, but such a job does not send.
    assert placed(Tetris(), state, 1) == (0,)


def test_tetris_weighs_free_gpus_and_bandwidth() -> None:
    def loaded() -> ClusterState:
        state = state_with([4] * 3)
        occupy(state, 0, 1)  # half of both uplinks
        state.place(job(2, "silent"), Placement((2, 2)))
        return state

    view = loaded().snapshot()
    assert view.uplink_use_gbps.tolist() == pytest.approx([50.0, 50.0, 0.0])
    # Demand: all GPUs of a machine and half of its uplink. Scores by hand: GPUs 3/4, 3/4, 2/4; links half of
    # 50 %, 50 %, 100 %. With weight 1 both come to 1; from then on the links decide.
    assert placed(Tetris(link_weight=0.9), loaded(), 7) == (0, 0, 0, 1, 1, 1, 2)
    assert placed(Tetris(link_weight=1.1), loaded(), 7) == (2, 2, 0, 0, 0, 1, 1)
    assert placed(Tetris(link_weight=0), loaded(), 7) == (0, 0, 0, 1, 1, 1, 2)


def test_tetris_counts_shares_of_a_machine() -> None:
    state = ClusterState(Cluster.of(Switch("top", (Machine("large", 8), Machine("small", 2)), (100.0, 100.0))))
    assert placed(Tetris(), state, 2) == (1, 1)  # all of the small machine, a quarter of the large one


def test_gpu_balance_per_worker_levels_the_free_gpus() -> None:
    # 4, 3, 2 free become 3, 3, 2, then 2, 3, 2, 2, 2, 2 and 1, 2, 2: a job that one machine would hold is spread.
    assert placed(GpuBalancePerWorker(), state_with([4, 3, 2]), 1) == (0,)
    assert placed(GpuBalancePerWorker(), state_with([4, 3, 2]), 4) == (0, 0, 0, 1)
    assert placed(GpuBalancePerWorker(), state_with([4, 4, 4]), 4) == (0, 0, 1, 2)


@given(free=st.lists(st.integers(0, 8), min_size=1, max_size=8), gpus=st.integers(1, 40))
@settings(max_examples=examples(100))
def test_no_worker_of_gpu_balance_could_have_had_more_free_gpus_around_it(free: list[int], gpus: int) -> None:
    placement = GpuBalancePerWorker().place(job(gpus), state_with(free, 8).snapshot())
    assert (placement is not None) == (sum(free) >= gpus)
    if placement is not None:
        left = [have - placement.counts[machine] for machine, have in enumerate(free)]
        assert max(left) <= min(left[machine] for machine in placement.counts) + 1


def test_flow_balance_per_worker_adds_a_flow_with_the_first_worker_on_a_machine() -> None:
    state = state_with([4] * 4)
    occupy(state, 0, 1)
    occupy(state, 0, 2)
    # Flows 2, 1, 1, 0: machine 3 has 1 after the first worker, and so have 1, 2 and 3, of which 1 is first.
    assert placed(FlowBalancePerWorker(), state, 1) == (3,)
    assert placed(FlowBalancePerWorker(), state, 2) == (3, 1)
    assert placed(FlowBalancePerWorker(), state, 4) == (3, 3, 1, 2)


def test_tetris_per_worker_takes_what_a_worker_demands_off_its_machine() -> None:
    # A worker demands a quarter of a machine and half of an uplink: 1/4 + 1/2 on an idle machine, 3/16 + 1/4 after
    # the first worker there, 1/8 + 0 after the second.
    assert placed(TetrisPerWorker(), state_with([4] * 3), 4) == (0, 0, 1, 2)
    assert placed(TetrisPerWorker(link_weight=0), state_with([4, 2, 2]), 3) == (0, 0, 0)
    assert placed(TetrisPerWorker(), state_with([4, 2, 2]), 3) == (0, 1, 2)
    assert placed(TetrisPerWorker(), state_with([2, 3]), 1) == (1,)  # alone, it does not send


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), True, "much"])
def test_tetris_refuses_a_weight_that_is_none(weight: float) -> None:
    with pytest.raises(InputError, match="tetris: link_weight must be a number, zero or more"):
        Tetris(weight)


def test_comb_sorts_by_gpus_then_switch_memory_then_bandwidth() -> None:
    state = ClusterState(Cluster.fat_tree(3, 3, 4, pat_gbps=200.0))
    for machine in (0, 1, 2):
        occupy(state, machine, machine)  # silent
    occupy(state, 3, 4)  # 50 Gbps each
    occupy(state, 6, 7, 8)
    link_gbps, memory_gbps = left_above(state.snapshot())
    assert link_gbps.tolist() == pytest.approx([100] * 3 + [50, 50, 100] + [50] * 3)
    assert memory_gbps.tolist() == pytest.approx([200] * 3 + [100] * 3 + [50] * 3)
    # Free 2, 2, 2; 3, 3, 4; 3, 3, 3: more memory or bandwidth does not make up for fewer GPUs.
    assert placed(Comb(), state, 4) == (5, 5, 5, 5)
    assert placed(Comb(), state, 3) == (5, 5, 5)
    assert placed(Comb(), state, 20) == (5,) * 4 + (3,) * 3 + (4,) * 3 + (6,) * 3 + (7,) * 3 + (8,) * 3 + (0,)


def test_comb_lets_bandwidth_decide_where_memory_does_not() -> None:
    state = state_with([4, 4, 3, 3])
    occupy(state, 0, 1)  # so that all have 3 free
    assert left_above(state.snapshot())[1].tolist() == [0.0] * 4  # the switch does not aggregate
    assert placed(Comb(), state, 3) == (2, 2, 2)


def test_a_switch_that_is_asked_for_more_than_it_has_has_nothing_left() -> None:
    state = ClusterState(Cluster.fat_tree(1, 3, 4, pat_gbps=60.0))
    occupy(state, 0, 1, 2)
    assert left_above(state.snapshot())[1].tolist() == [0.0] * 3


# -- all of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RIVALS, *PER_WORKER])
def test_waits_only_when_gpus_are_short(name: str) -> None:
    view, large = state_with([2, 1, 0]).snapshot(), job(4)
    assert policy(name).place(large, view) is None
    assert policy(name).why_wait(large, view) == "needs 4 GPUs, 3 free"
    assert policy(name).why_wait(job(3), view) == "can start now"


@pytest.mark.parametrize("name", [*RIVALS, *PER_WORKER])
def test_keeps_to_the_type_of_gpu_and_to_machines_that_are_up(name: str) -> None:
    state = typed()
    assert placed_on(policy(name), state, Job(id="a", gpus=8, gpu_type="h200")) == {1, 2}
    state.drain(1)
    assert placed_on(policy(name), state, Job(id="a", gpus=12)) == {0, 2}
    assert placed_on(policy(name), state, Job(id="a", gpus=8, gpu_type="h200")) is None


def placed_on(placer: Placer, state: ClusterState, wanted: Job) -> set[int] | None:
    placement = placer.place(wanted, state.snapshot())
    return None if placement is None else set(placement.machines)


@pytest.mark.parametrize("name", [*RIVALS, *PER_WORKER])
def test_starts_a_job_whenever_it_fits_and_all_but_per_worker_on_one_machine_if_that_can_be(name: str) -> None:
    @settings(max_examples=examples(60))
    @given(free=st.lists(st.integers(0, 4), min_size=1, max_size=6), gpus=st.integers(1, 20))
    def run(free: list[int], gpus: int) -> None:
        machines = placed(policy(name), state_with(free), gpus)
        assert (machines is not None) == (sum(free) >= gpus)
        if machines is None:
            return
        runs = list(dict.fromkeys(machines))
        assert machines == tuple(sorted(machines, key=runs.index))  # the ranks of a machine are consecutive
        assert name in PER_WORKER or (len(runs) == 1) == (max(free) >= gpus)

    run()
