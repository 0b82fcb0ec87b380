import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import links

from cranny.core.traffic import CACHED, communication, exchange_graph, footprint, parts, renumber, traffic
from cranny.core.traffic import _cached_cost as cached_cost
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.collective import COLLECTIVES, PLACED, pattern
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.profile import ModelProfile

K = 1e9  # bytes of gradient
UNIT = ModelProfile(name="unit", grad_bytes=K, iteration_ms=100)
# Four layers whose activations are 10 MB each.
LAYERED = ModelProfile(name="layered", grad_bytes=K, iteration_ms=100, params=1_000_000, peak_mem_mb=52, layers=4)
ACTIVATIONS = 10e6


def job_of(gpus: int, collective: str = "halving-doubling", tp: int = 1, pp: int = 1) -> Job:
    return Job(id="a", gpus=gpus, model=LAYERED if tp * pp > 1 else UNIT, collective=collective, tp=tp, pp=pp)


def seconds_for(moved_bytes: float, gbps: float) -> float:
    return moved_bytes * 8 / (gbps * 1e9)


@pytest.mark.parametrize(
    ("machines", "crossing"),
    [
        ((0, 0, 0, 0), 0.0),  # consolidation
        ((1, 1, 1, 3), 1.5),  # fragments first
        ((1, 2, 1, 2), 1.0),  # Titan
        ((1, 1, 2, 2), 2.0),  # the other way to halve them
    ],
)
def test_fig_1_traffic(machines: tuple[int, ...], crossing: float) -> None:
    moved = traffic(job_of(4), machines)
    assert moved.cross_machine_bytes == crossing * K
    assert moved.machines == len(set(machines))


def test_a_job_on_one_machine_is_silent() -> None:
    cost = communication(Cluster.single_rack(2, 8), job_of(8), (1,) * 8)
    assert (cost.cross_bytes, cost.comm_s, cost.link_gbps) == (0.0, 0.0, {})


def test_two_machines_in_a_ring_exchange_k_each_way() -> None:
    cost = communication(Cluster.single_rack(2, 8, link_gbps=100), job_of(2, "ring"), (0, 1))
    assert cost.comm_s == pytest.approx(seconds_for(K, 100))
    assert cost.cross_bytes == K  # an exchange counts once
    rate = K * 8 / 1e9 / (0.1 + cost.comm_s)
    assert cost.link_gbps == pytest.approx({0: rate, 1: rate})


def test_a_ring_of_four_on_two_machines() -> None:
    cost = communication(Cluster.single_rack(2, 8, link_gbps=100), job_of(4, "ring"), (0, 0, 1, 1))
    assert cost.comm_s == pytest.approx(6 * seconds_for(K / 4, 100))
    assert cost.cross_bytes == 6 * 2 * K / 4


def test_halving_doubling_in_halves_sends_two_streams_at_once() -> None:
    cluster = Cluster.single_rack(2, 8, link_gbps=100)
    assert communication(cluster, job_of(4), (0, 0, 1, 1)).comm_s == pytest.approx(seconds_for(2 * K, 100))
    assert communication(cluster, job_of(4), (0, 1, 0, 1)).comm_s == pytest.approx(seconds_for(K, 100))


def test_a_parameter_server_is_the_bottleneck() -> None:
    cost = communication(Cluster.single_rack(3, 1, link_gbps=50), job_of(3, "parameter-server"), (2, 0, 1))
    assert cost.comm_s == pytest.approx(seconds_for(4 * K, 50))
    assert cost.link_gbps[2] == pytest.approx(2 * cost.link_gbps[0])


def test_an_oversubscribed_rack_uplink_is_the_bottleneck() -> None:
    cluster = Cluster.fat_tree(2, 2, 1, link_gbps=100, oversubscription=8)  # 25 Gbps out of each rack
    assert communication(cluster, job_of(2, "ring"), (0, 1)).comm_s == pytest.approx(seconds_for(K, 100))
    cost = communication(cluster, job_of(2, "ring"), (0, 2))
    assert cost.comm_s == pytest.approx(seconds_for(K, 25))
    assert set(cost.link_gbps) == {0, 2, 4, 5}


def test_the_slowest_link_of_a_phase_decides() -> None:
    slow, fast = Machine("slow", 4), Machine("fast", 4)
    cluster = Cluster.of(Switch("rack", (slow, fast), (10.0, 100.0)))
    assert communication(cluster, job_of(2, "ring"), (0, 1)).comm_s == pytest.approx(seconds_for(K, 10))


def test_two_replicas_shards_and_stages_talk_in_their_groups() -> None:
    job = job_of(8, tp=2, pp=2)
    (replicas, grad), (shards, reduced), (stages, handed) = parts(job, tuple(range(8)))
    assert (grad, reduced, handed) == (K / 4, ACTIVATIONS, ACTIVATIONS / 2)
    assert {pair for phase in replicas.phases for pair in phase.pairs} == {(0, 2), (1, 3), (4, 6), (5, 7)}
    assert {pair for phase in shards.phases for pair in phase.pairs} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert [phase.pairs for phase in stages.phases] == [
        ((0, 4), (1, 5), (2, 6), (3, 7)),
        ((4, 0), (5, 1), (6, 2), (7, 3)),
    ]
    assert sum(phase.times * phase.share for phase in shards.phases) == 4 * 2  # four for each of two layers


@pytest.mark.parametrize(
    ("machines", "crossing"),
    [
        ((0, 0, 0, 0, 1, 1, 1, 1), 2 * 4 * ACTIVATIONS / 2),  # a machine for each stage
        ((0, 0, 1, 1, 0, 0, 1, 1), 4 * K / 4),  # a machine for each replica
        ((0, 1, 0, 1, 0, 1, 0, 1), 4 * 8 * ACTIVATIONS),  # a machine for each shard
    ],
)
def test_what_crosses_depends_on_which_groups_are_torn(machines: tuple[int, ...], crossing: float) -> None:
    job = job_of(8, tp=2, pp=2)
    assert traffic(job, machines).cross_machine_bytes == pytest.approx(crossing)
    cost = communication(Cluster.single_rack(2, 8), job, machines)
    assert cost.cross_bytes == pytest.approx(crossing)


def test_the_exchange_graph_holds_all_that_a_job_exchanges() -> None:
    job = job_of(8, tp=2, pp=2)
    _, shares = exchange_graph(job).edges
    assert shares.sum() * K / 4 == pytest.approx(
        sum(what.edges[1].sum() * k_bytes for what, k_bytes in parts(job, tuple(range(8))))
    )
    assert exchange_graph(job_of(4)).collective == "halving-doubling"


def test_partitioned_embeddings_go_from_all_to_all_besides_the_ring() -> None:
    model = replace(UNIT, exchanged_bytes=6e8)
    job = Job(id="a", gpus=3, model=model, collective="ring")
    assert [(what.collective, k_bytes) for what, k_bytes in parts(job, (0, 1, 2))] == [
        ("ring", K),
        ("all-to-all", 6e8),
    ]
    cluster = Cluster.single_rack(3, 1, 50.0)
    found = communication(cluster, job, (0, 1, 2))
    # A third of it to each of two others, and two thirds of K twice round the ring.
    assert found.comm_s == pytest.approx(seconds_for(2 / 3 * 6e8 + 4 / 3 * K, 50.0))
    assert exchange_graph(job).collective == "hybrid"


def test_tied_embeddings_are_reduced_between_the_first_stage_and_the_last() -> None:
    plain = Job(id="a", gpus=6, model=LAYERED, collective="ring", pp=3)
    tied = Job(id="a", gpus=6, model=replace(LAYERED, tied_bytes=3e8), collective="ring", pp=3)
    what, k_bytes = parts(tied, ())[-1]
    assert (k_bytes, {pair for phase in what.phases for pair in phase.pairs}) == (3e8, {(0, 4), (1, 5)})
    assert parts(plain, ()) == parts(tied, ())[:-1]
    machines = (0, 1, 2, 3, 4, 5)
    more = traffic(tied, machines).cross_machine_bytes - traffic(plain, machines).cross_machine_bytes
    assert more == pytest.approx(2 * 3e8)  # an exchange counts once


def test_machines_are_numbered_in_order_of_first_use() -> None:
    assert renumber((7, 3, 7, 9, 3)) == (0, 1, 0, 2, 1)


@pytest.mark.parametrize("machines", [2, 16, 17, 64])
@pytest.mark.parametrize("collective", ["ring", "halving-doubling", "all-to-all"])
def test_what_is_remembered_of_costs_stays_small(collective: str, machines: int) -> None:
    cluster, job = Cluster.fat_tree(64, 8, 8), Job("a", 64, collective=collective)
    rng = np.random.default_rng(0)
    pattern(collective, 64).arrays  # noqa: B018 - worked out before memory is measured
    cached_cost.cache_clear()
    count = 40
    tracemalloc.start()
    try:
        for _ in range(count):
            distinct = rng.permutation(512)[:machines]
            placed = (*distinct, *rng.choice(distinct, 64 - machines))
            footprint.__wrapped__(cluster, job, tuple(int(machine) for machine in placed))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        cached_cost.cache_clear()
    assert held_bytes / count * CACHED < 200e6


def test_refuses_a_map_of_the_wrong_length() -> None:
    with pytest.raises(InputError, match="job 'a' has 4 ranks, but 3 machines were given"):
        traffic(job_of(4), (0, 1, 2))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = iter(range(10_000))
    gbps = st.sampled_from([10.0, 25.0, 40.0, 100.0, 400.0])

    def switch(level: int) -> Switch:
        children: list[Switch | Machine] = []
        for _ in range(draw(st.integers(1, 3))):
            if level < 3 and draw(st.booleans()):
                children.append(switch(level + 1))
            else:
                children.append(Machine(f"m{next(names)}", 4))
        return Switch(f"s{next(names)}", tuple(children), tuple(draw(gbps) for _ in children))

    return Cluster.of(switch(0))


@st.composite
def placed_jobs(draw: st.DrawFn) -> tuple[Cluster, Job, tuple[int, ...]]:
    cluster = draw(clusters())
    tp, pp = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (2, 2), (3, 2)]))
    gpus = draw(st.integers(1, 17 if tp * pp == 1 else 3)) * tp * pp
    flat = [name for name in COLLECTIVES if name not in PLACED]
    # Aggregation by switches makes no messages that could be added up; it has tests of its own.
    collective = draw(st.sampled_from([*flat, "hierarchical"] if tp * pp == 1 else flat))
    machine = st.integers(0, len(cluster.machines) - 1)
    return cluster, job_of(gpus, collective, tp, pp), tuple(draw(machine) for _ in range(gpus))


@settings(max_examples=examples(150))
@given(placed_jobs())
def test_costs_agree_with_adding_up_messages_link_by_link(
    placed: tuple[Cluster, Job, tuple[int, ...]],
) -> None:
    cluster, job, machines = placed
    literal = links.communicate(cluster, job, machines)
    cost = communication(cluster, job, machines)
    assert cost.cross_bytes == pytest.approx(literal.cross_bytes)
    assert traffic(job, machines).cross_machine_bytes == pytest.approx(literal.cross_bytes)
    assert cost.comm_s == pytest.approx(literal.comm_s)
    iteration_s = job.profile.iteration_s + literal.comm_s
    rates = {link: moved * 8 / 1e9 / iteration_s for link, moved in literal.link_bytes.items() if moved}
    assert cost.link_gbps == pytest.approx(rates)
