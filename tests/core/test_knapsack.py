"""Which things to take: the best set, checked by trying all of them."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from cranny.core.batch import Batches
from cranny.core.knapsack import most_valuable
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job

things = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=8)


@settings(max_examples=200, deadline=None)
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
    batches = Batches()
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
    batches = Batches()
    view = state.snapshot(5.0, [Waiting(Job("a", 2))])
    for _ in range(3):
        assert batches.choose(view) == []
    assert batches.worth("a") == 1
