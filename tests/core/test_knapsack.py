"""Which things to take: the best set, checked by trying all of them."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.engine import Engine
from cranny.core.knapsack import KnapsackBatches, most_valuable
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies import policy

things = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=8)


@settings(max_examples=examples(200))
@given(things, st.integers(0, 20))
def test_no_set_that_fits_is_worth_more(each: list[tuple[int, int]], room: int) -> None:
    sizes, values = [size for size, _ in each], [float(value) for _, value in each]
    chosen = most_valuable(sizes, values, room)
    assert chosen == sorted(set(chosen))
    assert sum(sizes[thing] for thing in chosen) <= room
    best = max(
        sum(values[thing] for thing in some)
        for count in range(len(each) + 1)
        for some in combinations(range(len(each)), count)
        if sum(sizes[thing] for thing in some) <= room
    )
    assert sum(values[thing] for thing in chosen) == best


def test_earlier_things_are_preferred_at_equal_worth() -> None:
    assert most_valuable([2, 2, 2], [1.0, 1.0, 1.0], 4) == [0, 1]


def test_a_job_that_is_passed_over_gains_worth_until_it_beats_several_others() -> None:
    state = ClusterState(Cluster.single_rack(1, 4))
    large = Job("large", 4)
    batches = KnapsackBatches()
    chosen = []
    for second in range(4):
        small = [Waiting(Job(f"small-{second}-{number}", 2)) for number in range(2)]
        picked = batches.choose(state.snapshot(float(second), [Waiting(large), *small]))
        chosen.append([waiting.job.id for waiting in picked])
    # Two new jobs are worth 2 together; the large one is worth 1, then 2, and at a tie the earlier one goes.
    assert chosen[0] == ["small-0-0", "small-0-1"]
    assert chosen[1:] == [["large"]] * 3
    assert batches.worth("large") == 4


def test_asking_twice_at_the_same_time_does_not_age_anybody() -> None:
    state = ClusterState(Cluster.single_rack(1, 1))
    batches = KnapsackBatches()
    view = state.snapshot(5.0, [Waiting(Job("a", 2))])
    for _ in range(3):
        assert batches.choose(view) == []
    assert batches.worth("a") == 1


# -- types of GPUs ---------------------------------------------------------------------------------------------

MIXED = Cluster.of(Switch("rack", (Machine("a", 4, "A"), Machine("b", 4, "B")), (100.0,) * 2))


def chosen_by(batches: KnapsackBatches, state: ClusterState, now_s: float, *jobs: Job) -> list[str]:
    view = state.snapshot(now_s, [Waiting(job) for job in jobs])
    return [waiting.job.id for waiting in batches.choose(view)]


@pytest.mark.parametrize("field", [{"gpu_type": "A"}, {"speeds": {"A": 1.0}}])
def test_a_job_whose_type_of_gpu_is_taken_does_not_take_the_room_of_others(field: dict[str, object]) -> None:
    state, batches = ClusterState(MIXED), KnapsackBatches()
    state.place(Job("long", 4, gpu_type="A"), Placement((0,) * 4))
    old, new = Job("old", 4, **field), Job("new", 4, gpu_type="B")  # type: ignore[arg-type]
    for second in range(3):
        assert chosen_by(batches, state, float(second), old) == []
    assert chosen_by(batches, state, 3.0, old, new) == ["new"]
    assert batches.worth("old") == 4


def test_no_more_jobs_of_a_type_are_chosen_than_it_holds() -> None:
    state, batches = ClusterState(MIXED), KnapsackBatches()
    wide, a = Job("wide", 8), [Job(f"a{number}", 4, gpu_type="A") for number in range(2)]
    assert chosen_by(batches, state, 0.0, *a, Job("b", 3, gpu_type="B"), Job("any", 1)) == ["any", "b", "a0"]
    # Two jobs would be worth more than the wide one, but only one of them could start.
    assert chosen_by(KnapsackBatches(), state, 0.0, wide, *a) == ["wide"]


@pytest.mark.parametrize("name", ["netpack", "best-fit"])
def test_who_can_start_does_start_beside_old_jobs_of_a_type_that_is_taken(name: str) -> None:
    state = ClusterState(MIXED)
    chosen = policy(name)
    engine = Engine(state, chosen if name == "netpack" else QueuePolicy(chosen, "knapsack"))  # type: ignore[arg-type]
    engine.submit(Job("long", 2, gpu_type="A"), 0.0)
    for number in range(3):  # of which one fits
        engine.submit(Job(f"old{number}", 2 + number, gpu_type="A"), 1.0)
    for second in range(2, 20):
        engine.tick(float(second))
    engine.submit(Job("new", 4, gpu_type="B"), 20.0)
    assert set(state.running) == {"long", "old0", "new"}


TYPES = st.sampled_from(
    [{}, {"gpu_type": "A"}, {"gpu_type": "B"}, {"speeds": {"B": 1.0}}, {"speeds": {"A": 1, "B": 2}}]
)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(1, 8), TYPES), max_size=8), st.sampled_from(["netpack", "best-fit"]))
def test_no_job_waits_beside_enough_free_gpus(each: list[tuple[int, dict[str, object]]], name: str) -> None:
    state = ClusterState(MIXED)
    chosen = policy(name)
    engine = Engine(state, chosen if name == "netpack" else QueuePolicy(chosen, "knapsack"))  # type: ignore[arg-type]
    for number, (gpus, field) in enumerate(each):
        engine.submit(Job(f"j{number}", gpus, **field), float(number))  # type: ignore[arg-type]
    view = state.snapshot(99.0)
    assert all(view.available(waiting.job).gpus < waiting.job.gpus for waiting in engine.queue)
