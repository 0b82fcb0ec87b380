"""Water-filling against references by the book, the paper's values, and itself from scratch."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.steady import Tenant, by_programs, could_rise, fill, water_filling

from cranny.core.flows import fixed, parameter_server
from cranny.core.traffic import communication
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.network.steady.link_arrays import NOT_DRAWN
from cranny.network.steady.rates import Rates, stream

CASES = 1_000
NEAR = 1e-9


def tree(racks: Sequence[int], pat: Sequence[float | None], link: float = 100.0, up: float = 100.0) -> Cluster:
    """Build racks of so many machines each, with the PAT of their switches."""
    switches = tuple(
        Switch(f"r{i}", tuple(Machine(f"m{i}-{k}", 4) for k in range(size)), (link,) * size, pat_gbps=pat[i])
        for i, size in enumerate(racks)
    )
    return Cluster.of(Switch("top", switches, (up,) * len(racks)))


def drawn_cluster(rng: np.random.Generator) -> Cluster:
    """Draw a small tree: some links oversubscribed, some racks in pods, some switches without memory."""

    def rack(i: int) -> Switch:
        size = int(rng.integers(1, 5))
        pat = [None, None, *rng.integers(1, 200, 3).astype(float).tolist()][int(rng.integers(5))]
        links = tuple(float(gbps) for gbps in rng.choice([10, 25, 100], size))
        return Switch(f"r{i}", tuple(Machine(f"m{i}-{k}", 4) for k in range(size)), links, pat_gbps=pat)

    racks = [rack(i) for i in range(int(rng.integers(1, 6)))]
    ups = [float(gbps) for gbps in rng.choice([10, 40, 100, 400], len(racks))]
    if len(racks) > 2 and rng.random() < 0.5:
        pod = Switch("pod", tuple(racks[:2]), tuple(ups[:2]))
        return Cluster.of(Switch("top", (pod, *racks[2:], Machine("head", 4)), (30.0, *ups[2:], 10.0)))
    return Cluster.of(Switch("top", tuple(racks), tuple(ups)))


def drawn_tenant(rng: np.random.Generator, cluster: Cluster) -> Tenant:
    machines = rng.integers(0, len(cluster.machines), int(rng.integers(1, 7))).tolist()
    most = Fraction(int(rng.integers(1, 40))) if rng.random() < 0.2 else None
    racks = tuple(np.flatnonzero(rng.random(len(cluster.rack_names)) < 0.5).tolist())
    ina: bool | tuple[int, ...] = bool(rng.random() < 0.7)
    return Tenant(machines, int(rng.integers(len(cluster.machines))), racks if rng.random() < 0.3 else ina, most)


def drawn_weights(rng: np.random.Generator, links: int) -> dict[int, Fraction]:
    chosen = rng.choice(links, int(rng.integers(0, min(links, 5) + 1)), replace=False)
    return {int(link): Fraction(int(rng.integers(1, 9)), int(rng.integers(1, 5))) for link in chosen}


def add(rates: Rates, cluster: Cluster, job: Tenant) -> int:
    flows = parameter_server(cluster, job.machines, job.server, ina=job.ina)
    return rates.add(flows, math.inf if job.most is None else float(job.most))


def as_floats(weights: Mapping[int, Fraction]) -> dict[int, float]:
    return {link: float(weight) for link, weight in weights.items()}


def as_float(rate: Fraction | None) -> float:
    return math.inf if rate is None else float(rate)


def test_rates_are_those_of_progressive_filling() -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES):
        links = int(rng.integers(1, 12))
        gbps = [Fraction(int(n)) for n in rng.integers(1, 100, links)]
        jobs = [drawn_weights(rng, links) for _ in range(int(rng.integers(1, 16)))]
        most = [Fraction(int(rng.integers(1, 50))) if rng.random() < 0.2 else None for _ in jobs]
        rates = Rates([float(n) for n in gbps])
        numbers = [
            rates.add(fixed(as_floats(weights)), as_float(limit))
            for weights, limit in zip(jobs, most, strict=True)
        ]
        found = [rates.rate_gbps(job) for job in numbers]
        assert found == pytest.approx([as_float(rate) for rate in fill(gbps, jobs, most)], rel=NEAR)


def test_rates_are_those_of_linear_programs() -> None:
    pytest.importorskip("ortools", reason="the linear solver comes with the extra `exact`")
    rng = np.random.default_rng(1)
    for _ in range(CASES):
        links = int(rng.integers(1, 8))
        gbps = rng.integers(1, 100, links).astype(float).tolist()
        jobs = [as_floats(drawn_weights(rng, links)) or {0: 1.0} for _ in range(int(rng.integers(1, 10)))]
        rates = Rates(gbps)
        found = [rates.rate_gbps(job) for job in rates.add_all(fixed(weights) for weights in jobs)]
        assert found == pytest.approx(by_programs(gbps, jobs), rel=NEAR)
        assert not could_rise(gbps, jobs, found)


def test_rates_with_aggregation_are_those_of_algorithm_1() -> None:
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        cluster = drawn_cluster(rng)
        jobs = [drawn_tenant(rng, cluster) for _ in range(int(rng.integers(1, 12)))]
        rates = Rates.of(cluster)
        numbers = [add(rates, cluster, job) for job in jobs]
        told = water_filling(cluster, jobs)
        assert [rates.rate_gbps(job) for job in numbers] == pytest.approx(
            [as_float(rate) for rate in told.rate], rel=NEAR
        )
        assert rates.left_gbps()[0][:-1].tolist() == pytest.approx(
            [float(left) for left in told.left[:-1]], abs=1e-7
        )
        racks = dict.fromkeys(cluster.parent[: len(cluster.machines)])
        assert rates.left_gbps()[1].tolist() == pytest.approx([float(told.pat[rack]) for rack in racks], abs=1e-7)
        assert rates.flows()[0].tolist() == pytest.approx(told.flows)


def test_without_memory_aggregation_is_a_plain_parameter_server() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        cluster = tree([3, 2, 4], [None] * 3, up=40.0)
        jobs = [drawn_tenant(rng, cluster) for _ in range(8)]
        merging, plain = Rates.of(cluster), Rates.of(cluster)
        for job in jobs:
            number = add(merging, cluster, job)
            assert number == plain.add(
                parameter_server(cluster, job.machines, job.server, ina=False), as_float(job.most)
            )
        for number in range(len(jobs)):
            assert merging.rate_gbps(number) == pytest.approx(plain.rate_gbps(number), rel=NEAR)


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1), st.sampled_from(["merging", "plain"]))
def test_a_stream_of_jobs_gives_the_rates_from_scratch(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    cluster = drawn_cluster(rng) if kind == "merging" else Cluster.fat_tree(3, 4, 4, oversubscription=4)
    rates = Rates.of(cluster)
    here: dict[int, Tenant] = {}
    before: dict[int, float] = {}
    for _ in range(60):
        if here and rng.random() < 0.4:
            gone = list(here)[int(rng.integers(len(here)))]
            rates.remove(gone)
            del here[gone], before[gone]
        else:
            job = drawn_tenant(rng, cluster)
            here[add(rates, cluster, job)] = job
        now = {number: rates.rate_gbps(number) for number in here}
        assert set(rates.changed().tolist()) == {job for job, rate in now.items() if rate != before.get(job)}
        before = now
        fresh = Rates.of(cluster)
        numbers = [add(fresh, cluster, job) for job in here.values()]
        expected = [fresh.rate_gbps(number) for number in numbers]
        assert list(now.values()) == pytest.approx(expected, rel=NEAR)
    rates.solve()
    assert [rates.rate_gbps(number) for number in here] == pytest.approx(list(before.values()), rel=NEAR)


@pytest.mark.parametrize("seed", range(4))
def test_a_long_stream_of_jobs_ends_at_the_rates_of_algorithm_1(seed: int) -> None:
    # Long enough for lines to be edited thousands of times: what rounding leaves must not add up.
    rng = np.random.default_rng(seed)
    cluster = tree([4, 3, 5], [90.0, 40.0, None], up=60.0)
    rates = Rates.of(cluster)
    here: dict[int, Tenant] = {}
    for _ in range(4_000):
        if rng.random() < len(here) / 40:
            gone = list(here)[int(rng.integers(len(here)))]
            rates.remove(gone)
            del here[gone]
        else:
            job = drawn_tenant(rng, cluster)
            here[add(rates, cluster, job)] = job
    told = water_filling(cluster, list(here.values()))
    assert [rates.rate_gbps(number) for number in here] == pytest.approx(
        [as_float(rate) for rate in told.rate], rel=NEAR
    )


def test_a_link_may_have_more_jobs_than_edits_before_it_is_drawn_again() -> None:
    jobs = 3 * NOT_DRAWN
    rates = Rates([100.0, 1.0])
    numbers = [rates.add(fixed({0: 1.0})) for _ in range(jobs)]
    slow = rates.add(fixed({0: 1.0, 1: 1000.0}))
    assert rates.rate_gbps(slow) == pytest.approx(0.001, rel=NEAR)
    assert rates.rate_gbps(numbers[0]) == pytest.approx((100.0 - 0.001) / jobs, rel=NEAR)
    for number in numbers[1:]:
        rates.remove(number)
    assert rates.rate_gbps(numbers[0]) == pytest.approx(100.0 - 0.001, rel=NEAR)


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32 - 1))
def test_no_link_is_over_capacity_and_every_job_has_a_bottleneck(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = drawn_cluster(rng)
    rates = Rates.of(cluster)
    jobs = [drawn_tenant(rng, cluster) for _ in range(20)]
    numbers = [add(rates, cluster, job) for job in jobs]
    net = rates._net
    load, _ = rates.carried()
    assert (load <= net.resources["gbps"] * (1 + NEAR) + NEAR).all()
    left = rates.left_gbps()[0]
    for number, job in zip(numbers, jobs, strict=True):
        link = rates.bottleneck(number)
        if link is not None:
            assert left[link] <= NEAR * cluster.uplink_gbps[link]
            assert rates.rate_gbps(number) == net.resources["level"][link]
        else:
            assert rates.rate_gbps(number) == as_float(job.most)


@settings(max_examples=examples(50))
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 3.0, 1e6]))
def test_larger_links_and_switches_give_rates_larger_by_as_much(seed: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    cluster = drawn_cluster(rng)
    pat = [cluster.pat_gbps[rack] or 0.0 for rack in dict.fromkeys(cluster.parent[: len(cluster.machines)])]
    jobs = [drawn_tenant(rng, cluster) for _ in range(12)]
    flows = [parameter_server(cluster, job.machines, job.server, ina=job.ina) for job in jobs]
    small = Rates(cluster.uplink_gbps, pat)
    large = Rates([factor * gbps for gbps in cluster.uplink_gbps], [factor * gbps for gbps in pat])
    for number in small.add_all(flows):
        large.add(flows[number])
    assert [large.rate_gbps(i) for i in range(len(jobs))] == pytest.approx(
        [factor * small.rate_gbps(i) for i in range(len(jobs))], rel=NEAR
    )


@pytest.mark.parametrize("jobs", [1, 2, 3, 7, 100])
def test_jobs_on_one_link_share_it_evenly(jobs: int) -> None:
    rates = Rates([100.0])
    numbers = rates.add_all([fixed({0: 1.0})] * jobs)
    assert [rates.rate_gbps(job) for job in numbers] == pytest.approx([100 / jobs] * jobs)


def test_a_short_job_takes_what_a_long_one_cannot_use() -> None:
    # The textbook's two links of 1 and 2: the job on both is held by the first, and the other gets the rest.
    rates = Rates([1.0, 2.0])
    first, both, second = rates.add_all([fixed({0: 1.0}), fixed({0: 1.0, 1: 1.0}), fixed({1: 1.0})])
    assert [rates.rate_gbps(job) for job in (first, both, second)] == pytest.approx([0.5, 0.5, 1.5])
    assert rates.bottleneck(both) == 0
    rates.remove(first)
    assert [rates.rate_gbps(job) for job in (both, second)] == pytest.approx([1.0, 1.0])
    assert set(rates.changed().tolist()) == {both, second}


def test_an_update_elsewhere_changes_nothing_here() -> None:
    rates = Rates([10.0, 10.0])
    here = rates.add(fixed({0: 1.0}))
    there = rates.add(fixed({1: 1.0}))
    assert rates.changed().tolist() == [there]
    rates.remove(there)
    assert rates.changed().tolist() == []
    assert rates.rate_gbps(here) == 10.0


def test_a_job_on_one_machine_has_no_limit() -> None:
    cluster = tree([2], [None])
    rates = Rates.of(cluster)
    assert rates.rate_gbps(rates.add(parameter_server(cluster, [1, 1], 1))) == math.inf
    assert rates.rate_gbps(rates.add(parameter_server(cluster, [1, 1], 1), most_gbps=7.0)) == 7.0
    assert rates.left_gbps()[0].tolist() == [100.0, 100.0, 100.0, math.inf]


def test_one_job_with_enough_memory_gets_the_rate_of_its_links_and_two_get_half() -> None:
    cluster = tree([3, 2], [100.0, 100.0])
    rates = Rates.of(cluster)
    first = rates.add(parameter_server(cluster, [0, 1, 3, 4], 2))
    assert rates.rate_gbps(first) == pytest.approx(100.0)
    second = rates.add(parameter_server(cluster, [0, 1, 3, 4], 2))
    assert rates.rate_gbps(first) == rates.rate_gbps(second) == pytest.approx(50.0)


A1, AP, A3, A4 = 10.0, 20.0, 30.0, 40.0


@pytest.mark.parametrize(
    ("rate", "fc", "fs"),
    [(5.0, 3, 1), (15.0, 4, 1), (25.0, 4, 6), (35.0, 5, 7), (45.0, 6, 8), (A1, 3, 1), (AP, 4, 1)],
)
def test_flows_grow_with_the_rate_as_in_figure_5(rate: float, fc: int, fs: int) -> None:
    cluster = tree([2, 3, 2, 2], [A1, AP, A3, A4], link=1e6, up=1e6)
    server, home = 4, cluster.parent[4]
    rates = Rates.of(cluster)
    rates.add(parameter_server(cluster, [0, 1, 2, 3, 5, 6, 7, 8], server), most_gbps=rate)
    flows = rates.flows()[0]
    assert (flows[home], flows[server]) == (fc, fs)


@pytest.mark.parametrize(("pat", "flows", "carried"), [(30.0, 1, 20.0), (20.0, 1, 20.0), (8.0, 3, 8.0 + 12.0 * 3)])
def test_a_switch_merges_as_in_table_1(pat: float, flows: int, carried: float) -> None:
    cluster = tree([4], [pat], link=1000.0)
    rates = Rates.of(cluster)
    rates.add(parameter_server(cluster, [0, 1, 2], 3), most_gbps=20.0)
    assert rates.flows()[0][3] == flows
    assert 1000.0 - rates.left_gbps()[0][3] == pytest.approx(carried)
    assert rates.left_gbps()[1][0] == pytest.approx(max(0.0, pat - 20.0))


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("ratio", [0.1, 0.25, 0.5, 0.75, 1.0])
def test_the_share_that_is_merged_is_that_of_figure_14(ratio: float, jobs: int) -> None:
    cluster = tree([3], [10.0 * ratio])
    rates = Rates.of(cluster)
    for _ in range(jobs):
        number = rates.add(parameter_server(cluster, [0, 1], 2), most_gbps=10.0)
    switch = len(cluster.uplink_gbps)
    assert rates.rate_gbps(number) == 10.0
    assert min(10.0, rates._net.resources["level"][switch]) / 10.0 == pytest.approx(ratio / jobs)


def test_a_switch_without_memory_left_slows_jobs_but_does_not_stop_them() -> None:
    # Up to 10 Gbps one flow reaches the server, beyond that three: 10 + 3 (C - 10) = 100.
    cluster = tree([4], [10.0])
    rates = Rates.of(cluster)
    job = rates.add(parameter_server(cluster, [0, 1, 2], 3))
    assert rates.rate_gbps(job) == pytest.approx(40.0)
    assert rates.bottleneck(job) == 3
    assert rates.flows()[1].tolist() == [1]


def test_workers_beside_the_parameter_server_send_nothing() -> None:
    cluster = tree([2], [None])
    rates = Rates.of(cluster)
    rates.add(parameter_server(cluster, [0, 0, 1, 1], 0))
    assert rates.flows()[0][:2].tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["ring", "halving-doubling"])
def test_a_collective_alone_fills_a_link(kind: str) -> None:
    cluster = tree([2, 2], [None, None], up=400.0)
    job = Job(id="a", gpus=4, model="vgg16", collective=kind)
    machines = (0, 1, 2, 3)
    flows, gigabits = stream(cluster, job, Placement(machines))
    rates = Rates.of(cluster)
    number = rates.add(flows)
    gbps = [cluster.uplink_gbps[link] for link in flows.resource]
    assert rates.rate_gbps(number) == pytest.approx(min(gbps / flows.many))
    assert max(flows.many) == 1.0
    if kind == "ring":  # 2 (n - 1) / n of the gradient passes every machine's link
        assert gigabits == pytest.approx(1.5 * job.profile.grad_bytes * 8e-9)
        assert gigabits / rates.rate_gbps(number) == pytest.approx(communication(cluster, job, machines).comm_s)


def test_a_collective_on_one_machine_uses_no_link() -> None:
    flows, gigabits = stream(tree([2], [None]), Job(id="a", gpus=2, model="vgg16"), Placement((1, 1)))
    assert len(flows.resource) == 0
    assert gigabits == 0.0


def test_an_attempt_says_what_one_job_more_would_change_and_changes_nothing() -> None:
    rng = np.random.default_rng(6)
    for _ in range(CASES):
        links = int(rng.integers(1, 8))
        jobs = [as_floats(drawn_weights(rng, links)) or {0: 1.0} for _ in range(int(rng.integers(2, 12)))]
        rates = Rates(rng.integers(1, 100, links).astype(float).tolist())
        *others, more = [fixed(weights) for weights in jobs]
        numbers = np.array([rates.add(flows, 40.0) for flows in others])
        before = rates.rates_gbps(numbers).copy()
        tried = rates.attempt(more, 40.0)
        assert rates.rates_gbps(numbers) == pytest.approx(before, rel=NEAR)
        added = rates.add(more, 40.0)
        assert tried.own_gbps == pytest.approx(rates.rate_gbps(added), rel=NEAR)
        changed = rates.changed()
        assert set(tried.others.tolist()) == {*changed.tolist()} - {added}
        assert tried.rates_gbps == pytest.approx(rates.rates_gbps(tried.others), rel=NEAR)
