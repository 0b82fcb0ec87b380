import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.invariants import check

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile
from cranny.policies.tiresias import Tiresias

# The skews are 1.8 and 1.0.
SKEWED = ModelProfile("skewed", 10e6, 10.0, gradient_buckets=((1.0, 1), (2.0, 9)))
LEVEL = ModelProfile("level", 10e6, 10.0, gradient_buckets=((1.0, 5), (2.0, 5)))


def job(gpus: int, profile: ModelProfile = LEVEL, name: str = "job", gpu_type: str | None = None) -> Job:
    return Job(id=name, gpus=gpus, model=profile, gpu_type=gpu_type)


def state_with(free: list[int], gpus: int = 4) -> ClusterState:
    state = ClusterState(Cluster.single_rack(len(free), gpus))
    for machine, left in enumerate(free):
        if left < gpus:
            state.place(job(gpus - left, name=f"on-{machine}"), Placement((machine,) * (gpus - left)))
    return state


def placed(state: ClusterState, wanted: Job, policy: Tiresias | None = None) -> tuple[int, ...] | None:
    placement = (policy or Tiresias()).place(wanted, state.snapshot())
    if placement is None:
        return None
    state.place(wanted, placement)
    check(state)
    return placement.machines


def test_a_skewed_job_goes_to_the_tightest_machine_that_holds_it() -> None:
    assert placed(state_with([1, 4, 2, 3]), job(2, SKEWED)) == (2, 2)


def test_a_skewed_job_waits_rather_than_be_split() -> None:
    state = state_with([1, 1, 1])
    assert placed(state, job(2, SKEWED)) is None
    assert Tiresias().why_wait(job(2, SKEWED), state.snapshot()) == (
        "must be consolidated: 2 GPUs on one machine; the free GPUs are on more"
    )


def test_a_skewed_job_opens_an_idle_machine_rather_than_be_split() -> None:
    assert placed(state_with([1, 1, 4]), job(2, SKEWED)) == (2, 2)


def test_a_level_job_uses_up_the_smallest_fragments() -> None:
    assert placed(state_with([4, 2, 1, 3]), job(4)) == (2, 1, 1, 3)


def test_a_level_job_opens_idle_machines_last() -> None:
    assert placed(state_with([4, 3, 4]), job(5)) == (1, 1, 1, 0, 0)


def test_a_large_skewed_job_takes_whole_machines_and_a_tight_one() -> None:
    assert placed(state_with([4, 2, 3, 4]), job(10, SKEWED)) == (0,) * 4 + (3,) * 4 + (1,) * 2


def test_a_large_skewed_job_waits_when_it_would_need_a_machine_more() -> None:
    state = state_with([4, 3, 3, 2])
    assert placed(state, job(8, SKEWED)) is None
    assert "8 GPUs on 2 machines" in Tiresias().why_wait(job(8, SKEWED), state.snapshot())
    assert placed(state, job(8)) is not None


def test_waiting_for_gpus_is_told_apart_from_waiting_for_machines() -> None:
    state = state_with([1, 1])
    assert Tiresias().why_wait(job(3, SKEWED), state.snapshot()) == "needs 3 GPUs, 2 free"
    assert placed(state, job(3)) is None
    assert Tiresias().why_wait(job(2), state.snapshot()) == "can start now"


def test_the_limit_decides_what_is_skewed() -> None:
    assert placed(state_with([1, 1]), job(2, SKEWED), Tiresias(skew_limit=2.0)) == (0, 1)
    assert placed(state_with([1, 1]), job(2, LEVEL), Tiresias(skew_limit=0.5)) is None
    assert placed(state_with([1, 1]), job(2, SKEWED), Tiresias(skew_limit=1.8)) == (
        0,
        1,
    )  # not above the limit


def test_of_real_models_vgg_is_consolidated_and_resnet_is_not() -> None:
    state = state_with([1, 1])
    assert Tiresias().place(Job(id="v", gpus=2, model="vgg16"), state.snapshot()) is None
    placement = Tiresias().place(Job(id="r", gpus=2, model="resnet50"), state.snapshot())
    assert placement is not None
    assert "not consolidated: skew" in placement.explain()


def test_machines_of_several_sizes_are_counted_from_the_largest() -> None:
    machines = tuple(Machine(f"m{i}", size, kind) for i, (size, kind) in enumerate(((2, ""), (8, ""), (4, "x"))))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    assert placed(state, job(10, SKEWED)) == (1,) * 8 + (0,) * 2
    assert placed(state, job(3, SKEWED, "typed", "x")) == (2,) * 3
    assert Tiresias().place(job(3, SKEWED, "other", "y"), state.snapshot()) is None


def test_machines_that_cannot_run_a_job_are_not_counted() -> None:
    machines = (Machine("large", 8, "a"), Machine("small0", 4, "b"), Machine("small1", 4, "b"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    wanted = Job(id="job", gpus=8, model=SKEWED, speeds={"b": 1.0})
    assert placed(state, wanted) == (1,) * 4 + (2,) * 4
    state.release("job")
    state.place(job(2, name="on-1"), Placement((1, 1)))
    six = Job(id="six", gpus=6, model=SKEWED, speeds={"b": 1.0})
    assert placed(state, six) == (2,) * 4 + (1,) * 2
    state.release("six")
    four = Job(id="four", gpus=4, model=SKEWED, speeds={"b": 1.0})
    state.place(job(2, name="on-2"), Placement((2, 2)))
    assert placed(state, four) is None
    assert "4 GPUs on one machine" in Tiresias().why_wait(four, state.snapshot())


def test_the_machines_of_all_types_that_can_run_a_job_count() -> None:
    machines = (Machine("a", 2, "a"), Machine("b", 4, "b"), Machine("c", 8, "c"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    wanted = Job(id="job", gpus=6, model=SKEWED, speeds={"a": 1.0, "b": 2.0})
    assert placed(state, wanted) == (1,) * 4 + (0,) * 2


@pytest.mark.parametrize("limit", [-1.0, float("nan"), True])
def test_refuses_a_limit_that_is_no_skew(limit: float) -> None:
    with pytest.raises(InputError, match="skew_limit"):
        Tiresias(limit)


@given(free=st.lists(st.integers(0, 4), min_size=1, max_size=6), gpus=st.integers(1, 20))
def test_a_skewed_job_never_has_more_machines_than_in_an_empty_cluster(free: list[int], gpus: int) -> None:
    used = placed(state_with(free), job(gpus, SKEWED))
    fewest = -(-gpus // 4)
    possible = sum(sorted(free, reverse=True)[:fewest]) >= gpus
    assert (used is not None) == possible
    assert used is None or len(set(used)) <= fewest


@given(free=st.lists(st.integers(0, 4), min_size=1, max_size=6), gpus=st.integers(1, 20))
def test_a_level_job_starts_whenever_there_are_gpus(free: list[int], gpus: int) -> None:
    assert (placed(state_with(free), job(gpus)) is not None) == (sum(free) >= gpus)
