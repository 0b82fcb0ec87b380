from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies.ideal import Ideal

CLUSTERS = [Cluster.fat_tree(3, 2, 2), Cluster.fat_tree(4, 2, 2, racks_per_pod=2)]


def test_takes_one_machine_then_a_rack_of_its_own() -> None:
    state = ClusterState(CLUSTERS[0])
    state.place(Job(id="old", gpus=3), Placement((0, 0, 2)))  # crosses the uplinks of two racks
    ideal = Ideal()
    assert ideal.place(Job(id="a", gpus=1), state.snapshot()) == Placement((2,))
    assert ideal.place(Job(id="a", gpus=3), state.snapshot()) == Placement((4, 4, 5))


def test_waits_rather_than_share_a_link() -> None:
    state = ClusterState(CLUSTERS[0])
    state.place(Job(id="old", gpus=3), Placement((0, 0, 2)))
    job = Job(id="a", gpus=5)
    assert Ideal().place(job, state.snapshot()) is None
    assert Ideal().why_wait(job, state.snapshot()) == "the free GPUs are at links that other jobs use"
    assert Ideal().why_wait(Job(id="b", gpus=12), state.snapshot()) == "needs 12 GPUs, 9 free"


@settings(max_examples=examples(60))
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.sampled_from(CLUSTERS))
def test_no_link_ever_has_two_jobs_and_an_empty_cluster_takes_any(sizes: list[int], cluster: Cluster) -> None:
    state = ClusterState(cluster)
    for number, gpus in enumerate(sizes):
        job = Job(id=f"j{number}", gpus=gpus)
        placement = Ideal().place(job, state.snapshot())
        if placement is not None:
            state.place(job, placement)
            check(state)
        assert placement is not None or state.running
    assert all(state.snapshot().link_users(link) <= 1 for link in range(len(cluster.parent)))
