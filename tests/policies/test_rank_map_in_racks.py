"""Maps of ranks that know of racks: never worse than simpler ones, and the best of all on few ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.rank_map import comm_s, least_comm_s

from cranny.core.state import ClusterState
from cranny.core.traffic import communication, exchange_graph, tree_above
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.collective import COLLECTIVES
from cranny.model.job import Job
from cranny.policies._shared.rank_map import mapped
from cranny.policies._shared.rank_map_in_racks import candidates, mapped_in_racks, problem_of
from cranny.policies._shared.rank_map_kernel import cheapest, empty_tally

NEAR = 1 + 1e-9
UNEVEN = Cluster.of(
    Switch(
        "top",
        (
            Machine("head", 8),
            Switch("r0", tuple(Machine(f"a{i}", 8) for i in range(3)), (100.0, 100.0, 25.0)),
            Switch(
                "pod",
                (
                    Switch("r1", tuple(Machine(f"b{i}", 8) for i in range(3)), (100.0,) * 3, 50.0),
                    Switch("r2", tuple(Machine(f"c{i}", 8) for i in range(2)), (10.0, 40.0)),
                ),
                (50.0, 25.0),
            ),
        ),
        (10.0, 50.0, 25.0),
    )
)
CLUSTERS = (
    UNEVEN,
    Cluster.fat_tree(2, 4, 8, oversubscription=4, pat_gbps=200),
    Cluster.fat_tree(4, 2, 8, oversubscription=2, racks_per_pod=2),
    Cluster.single_rack(6, 8),
)
PARALLEL = ((2, 1), (1, 2), (2, 2), (4, 1))  # tp and pp


@st.composite
def jobs(draw: st.DrawFn, cluster: Cluster) -> tuple[Job, dict[int, int]]:
    """Jobs of all collectives, and how many ranks each machine takes, in any order."""
    machines = draw(st.permutations(range(len(cluster.machines))))
    ranks = draw(st.lists(st.integers(1, 8), min_size=1, max_size=len(machines)))
    model = draw(st.sampled_from(["vgg16", "gpt2", "gpt3-2.7b"]))
    counts = dict(zip(machines, ranks, strict=False))
    gpus = sum(ranks)
    fitting = [(tp, pp) for tp, pp in PARALLEL if gpus % (tp * pp) == 0]
    parallel = draw(st.sampled_from([(1, 1), *fitting]))
    if parallel != (1, 1):
        tp, pp = parallel
        return Job("a", gpus, model, draw(st.sampled_from(["ring", "halving-doubling"])), tp=tp, pp=pp), counts
    return Job("a", gpus, model, draw(st.sampled_from(COLLECTIVES))), counts


def in_order(counts: dict[int, int]) -> tuple[int, ...]:
    return tuple(machine for machine, ranks in counts.items() for _ in range(ranks))


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.describe())
def test_every_rank_is_placed_once_and_simpler_maps_are_no_better(cluster: Cluster) -> None:
    view = ClusterState(cluster).snapshot()

    @settings(max_examples=examples(60))
    @given(jobs(cluster))
    def run(wanted: tuple[Job, dict[int, int]]) -> None:
        job, counts = wanted
        found = mapped_in_racks(job, cluster, counts)
        assert {machine: found.count(machine) for machine in found} == counts
        assert found == mapped_in_racks(job, cluster, counts)
        ours = communication(cluster, job, found)
        plain = view.placement(job, in_order(counts))
        one_level = mapped(job, view, plain)
        assert one_level is not None
        for other in (plain, one_level):
            theirs = communication(cluster, job, other.machines)
            assert ours.comm_s <= theirs.comm_s * NEAR
            if ours.comm_s * NEAR >= theirs.comm_s:
                assert ours.cross_bytes <= theirs.cross_bytes * NEAR

    run()


def small_world(
    rng: np.random.Generator, collective: str, gpus: int
) -> tuple[Cluster, Job, dict[int, int]] | None:
    """Return two racks and a job somewhere on them; None if it would be on one machine or on too many."""
    pat_gbps = (None, 50.0, 200.0)[rng.integers(3)]
    oversubscription = float(rng.choice([1, 2, 4, 8]))
    cluster = Cluster.fat_tree(2, int(rng.integers(1, 4)), 4, oversubscription=oversubscription, pat_gbps=pat_gbps)
    seats = rng.permutation(np.repeat(np.arange(len(cluster.machines)), 4))[:gpus].tolist()
    counts = {machine: seats.count(machine) for machine in dict.fromkeys(seats)}
    if len(seats) < gpus or not 2 <= len(counts) <= 4:
        return None
    return cluster, Job("a", gpus, "vgg16", collective), counts


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_no_map_of_up_to_eight_ranks_in_two_racks_is_faster(collective: str) -> None:
    rng = np.random.default_rng(0)
    for gpus in (3, 4, 5, 6, 6, 7, 7, 8):
        world = None
        while world is None:
            world = small_world(rng, collective, gpus)
        cluster, job, counts = world
        found = mapped_in_racks(job, cluster, counts)
        assert comm_s(cluster, job, found) <= least_comm_s(cluster, job, counts) * NEAR


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (1, 2), (2, 2)])
def test_no_map_of_six_or_eight_ranks_with_tensor_and_pipeline_parallelism_is_faster(tp: int, pp: int) -> None:
    cluster = Cluster.fat_tree(2, 2, 4, oversubscription=4)
    for counts in ({0: 2, 2: 2, 1: 2, 3: 2}, {0: 4, 2: 3, 1: 1}, {2: 4, 0: 4}):
        job = Job("a", 8, "gpt2", "ring", tp=tp, pp=pp)
        found = mapped_in_racks(job, cluster, counts)
        assert comm_s(cluster, job, found) <= least_comm_s(cluster, job, counts) * NEAR


@given(st.data())
def test_compiled_costs_choose_as_messages_one_by_one_do(data: st.DataObject) -> None:
    counts = {0: 2, 3: 1, 4: 2, 6: 2, 1: 1}
    collective = data.draw(st.sampled_from(["halving-doubling", "tree", "all-to-all", "gloo-halving-doubling"]))
    job, machines = Job("a", 8, "vgg16", collective), list(counts)
    shape, local = (
        tree_above(UNEVEN, machines)[0],
        [at for at, each in enumerate(counts.values()) for _ in range(each)],
    )
    maps = data.draw(st.lists(st.permutations(local), min_size=2, max_size=6))
    problem = problem_of(exchange_graph(job), shape)
    chosen = cheapest(problem, empty_tally(problem), np.array(maps))
    took_s = [comm_s(UNEVEN, job, tuple(machines[at] for at in each)) for each in maps]
    assert took_s[chosen] <= min(took_s) * NEAR


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_machines_of_the_same_shape_get_the_same_map(collective: str) -> None:
    cluster = Cluster.fat_tree(4, 4, 8, oversubscription=4)
    job = Job("a", 16, "vgg16", collective)
    first = mapped_in_racks(job, cluster, {0: 6, 4: 4, 1: 4, 5: 2})
    other = {0: 9, 4: 14, 1: 10, 5: 15}
    assert mapped_in_racks(job, cluster, {9: 6, 14: 4, 10: 4, 15: 2}) == tuple(other[machine] for machine in first)


def test_a_ring_leaves_each_rack_once_whatever_the_order_of_machines() -> None:
    cluster = Cluster.fat_tree(2, 2, 4, oversubscription=4)
    job, counts = Job("a", 8, "vgg16", "ring"), {0: 2, 2: 2, 1: 2, 3: 2}
    assert mapped_in_racks(job, cluster, counts) == (0, 0, 1, 1, 2, 2, 3, 3)
    between = communication(cluster, job, in_order(counts)).comm_s
    assert communication(cluster, job, mapped_in_racks(job, cluster, counts)).comm_s == pytest.approx(between / 2)


def test_halving_doubling_keeps_its_largest_exchange_on_machines_and_the_next_in_racks() -> None:
    cluster = Cluster.fat_tree(2, 2, 2, oversubscription=4)
    job = Job("a", 8, "vgg16", "halving-doubling")
    found = mapped_in_racks(job, cluster, dict.fromkeys(range(4), 2))
    for rank in range(4):
        assert found[rank] == found[rank + 4]  # K/2
        assert cluster.rack_of[found[rank]] == cluster.rack_of[found[rank ^ 2]]  # K/4


def test_only_the_first_machine_matters_with_aggregation_and_it_is_where_the_server_is_fastest() -> None:
    cluster = Cluster.of(
        Switch("top", (Machine("slow", 4), Machine("fast", 4), Machine("other", 4)), (10.0, 100.0, 10.0))
    )
    job = Job("a", 6, "vgg16", "ina")
    assert mapped_in_racks(job, cluster, {0: 2, 2: 2, 1: 2}) == (1, 1, 0, 0, 2, 2)


@pytest.mark.parametrize("collective", ["ring", "halving-doubling", "tree", "parameter-server", "hierarchical"])
def test_a_thousand_ranks_are_mapped_too(collective: str) -> None:
    cluster = Cluster.fat_tree(16, 8, 8, oversubscription=4)
    view, job = ClusterState(cluster).snapshot(), Job("a", 1024, "vgg16", collective)
    counts = dict.fromkeys(np.random.default_rng(0).permutation(128).tolist(), 8)
    found = mapped_in_racks(job, cluster, counts)
    one_level = mapped(job, view, view.placement(job, in_order(counts)))
    assert one_level is not None
    assert {machine: found.count(machine) for machine in counts} == counts
    ours = communication(cluster, job, found).comm_s
    assert ours <= communication(cluster, job, one_level.machines).comm_s * NEAR
    assert ours <= communication(cluster, job, in_order(counts)).comm_s * NEAR


def test_candidates_are_few_and_all_of_them_are_maps() -> None:
    cluster = Cluster.fat_tree(2, 2, 4, oversubscription=4)
    machines, ranks = [0, 2, 1], [3, 2, 1]
    for collective in ("halving-doubling", "tree"):
        job = Job("a", 6, "vgg16", collective)
        found = list(candidates(exchange_graph(job), ranks, tree_above(cluster, machines)[0]))
        assert 3 <= len(found) <= 5
        assert all([each.count(at) for at in range(3)] == ranks for each in found)


def test_a_job_on_one_machine_needs_no_map() -> None:
    assert mapped_in_racks(Job("a", 3, "vgg16"), UNEVEN, {4: 3}) == (4, 4, 4)
