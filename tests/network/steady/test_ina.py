"""Jobs that stream to a parameter server through switches that aggregate: what they cost, alone and together."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.flows import isolated_rate, parameter_server
from cranny.core.state import ClusterState
from cranny.core.traffic import SILENT, communication, traffic
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError, PlacementError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Aggregate, Plan
from cranny.model.profile import ModelProfile
from cranny.network.networks import network
from cranny.network.steady.rates import Rates, stream

UNIT = ModelProfile("unit", grad_bytes=1e9, iteration_ms=80.0)  # 8 Gbit: 80 ms at 100 Gbps


def job(gpus: int, name: str = "a") -> Job:
    return Job(name, gpus, UNIT, "ina")


@st.composite
def trees(draw: st.DrawFn) -> Cluster:
    """Racks of machines with links and switch memory of all sizes."""
    gbps = st.sampled_from([10.0, 25.0, 40.0, 100.0])
    racks = []
    for rack in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 4))
        machines = tuple(Machine(f"r{rack}m{number}", 4) for number in range(count))
        links = tuple(draw(gbps) for _ in range(count))
        racks.append(Switch(f"r{rack}", machines, links, draw(st.sampled_from([None, 5.0, 30.0, 1000.0]))))
    return Cluster.of(Switch("core", tuple(racks), tuple(draw(gbps) for _ in racks)))


@settings(max_examples=examples(150))
@given(trees(), st.data())
def test_alone_is_what_water_filling_gives_a_single_job(cluster: Cluster, data: st.DataObject) -> None:
    everywhere = st.integers(0, len(cluster.machines) - 1)
    workers = data.draw(st.sets(everywhere, min_size=1))
    server = data.draw(everywhere)
    racks = st.sets(st.integers(0, len(cluster.rack_names) - 1)).map(tuple)
    flows = parameter_server(cluster, workers, server, ina=data.draw(st.booleans() | racks))
    rate, carried = isolated_rate(cluster, flows)
    rates = Rates.of(cluster)
    number = rates.add(flows)
    assert rate == pytest.approx(rates.rate_gbps(number), rel=1e-9)
    left = rates.left_gbps()[0]
    for link, gbps in enumerate(cluster.uplink_gbps):
        if math.isfinite(gbps):
            assert carried.get(link, 0.0) == pytest.approx(gbps - left[link], abs=1e-6)


def test_a_switch_that_aggregates_makes_a_job_as_fast_as_its_link() -> None:
    for pat_gbps, seconds in ((1000.0, 0.08), (None, 0.24)):  # else three streams share the server's link
        cluster = Cluster.fat_tree(1, 4, 1, pat_gbps=pat_gbps)
        assert communication(cluster, job(3), (0, 1, 2), server=3).comm_s == pytest.approx(seconds)
    assert communication(cluster, job(3), (0, 1, 2), 3, aggregate=False).comm_s == pytest.approx(0.24)


@settings(max_examples=examples(100))
@given(trees(), st.data())
def test_a_rack_where_a_job_is_not_aggregated_is_to_it_as_one_without_memory(
    cluster: Cluster, data: st.DataObject
) -> None:
    everywhere = st.integers(0, len(cluster.machines) - 1)
    workers, server = data.draw(st.sets(everywhere, min_size=1)), data.draw(everywhere)
    on = tuple(data.draw(st.sets(st.integers(0, len(cluster.rack_names) - 1))))
    nodes = {cluster.rack_nodes[rack] for rack in on}
    without = replace(
        cluster, pat_gbps=tuple(gbps if node in nodes else None for node, gbps in enumerate(cluster.pat_gbps))
    )
    found = isolated_rate(cluster, parameter_server(cluster, workers, server, ina=on))
    assert found[0] == pytest.approx(isolated_rate(without, parameter_server(without, workers, server))[0])


def test_other_switches_for_a_running_job_change_its_streams_and_nothing_else() -> None:
    # Three workers in rack 0, the server in rack 1: merged by the first switch, by none, by the second.
    state = ClusterState(Cluster.fat_tree(2, 3, 1, oversubscription=1.5, pat_gbps=1000.0))
    where = Placement((0, 1, 2), server=3)
    state.place(job(3), where)
    seconds = {}
    for racks in ((0,), (), (1,)):
        changed = where.aggregated(racks or False, None)
        state.commit(Plan(state.version, (Aggregate("a", changed),)))
        check(state)
        running = state.find("a")
        assert running.placement.aggregate == (racks or False)
        seconds[racks] = running.communication.comm_s
    # 8 Gbit at 100 Gbps; three streams over the server's link; three over the uplink of rack 0, of 200 Gbps.
    assert seconds == pytest.approx({(0,): 0.08, (): 0.24, (1,): 0.12})
    with pytest.raises(PlacementError, match="job 'a': other switches do not move it"):
        state.commit(Plan(state.version, (Aggregate("a", Placement((0, 1, 2), server=4)),)))


def test_workers_of_one_machine_send_one_stream() -> None:
    cluster = Cluster.single_rack(3, 4)
    cost = communication(cluster, job(6), (0, 0, 0, 1, 1, 1), server=2)
    assert cost.comm_s == pytest.approx(0.16)
    assert cost.cross_bytes == 4e9  # two machines push K and pull K
    # Talking two thirds of the time, at 50 Gbps from each worker.
    assert cost.link_gbps == pytest.approx({0: 50.0 * 2 / 3, 1: 50.0 * 2 / 3, 2: 100.0 * 2 / 3})


def test_the_server_is_beside_rank_0_if_nothing_else_is_said() -> None:
    cluster = Cluster.single_rack(3, 4)
    assert communication(cluster, job(2), (1, 2)) == communication(cluster, job(2), (1, 2), server=1)
    assert traffic(job(2), (1, 2)).cross_machine_bytes == communication(cluster, job(2), (1, 2)).cross_bytes
    assert communication(cluster, job(2), (1, 1)) is SILENT
    assert communication(cluster, job(2), (1, 1), server=1) is SILENT
    assert communication(cluster, job(2), (1, 1), server=0).comm_s == pytest.approx(0.08)


def test_the_books_know_of_servers() -> None:
    state = ClusterState(Cluster.fat_tree(2, 2, 2, pat_gbps=100.0))
    state.place(job(2), Placement((0, 1), server=3))
    state.place(job(2, "b"), Placement((2, 2), server=3, aggregate=False))
    check(state)
    assert state.snapshot().link_users(3) == 2
    with pytest.raises(PlacementError, match="job 'c' has no parameter server: its collective is 'ring'"):
        state.place(Job("c", 1, collective="ring"), Placement((3,), server=3))
    with pytest.raises(PlacementError, match="there is no machine 9"):
        state.place(job(1, "d"), Placement((3,), server=9))
    lost = state.fail(3)  # a job whose server is gone cannot go on
    assert [running.job.id for running in lost] == ["a", "b"]
    check(state)
    with pytest.raises(PlacementError, match="is down"):
        state.place(job(1, "e"), Placement((0,), server=3))


def test_a_server_must_be_a_machine() -> None:
    with pytest.raises(InputError, match="server must be whole numbers"):
        Placement((0,), server=-1)


def test_jobs_that_share_a_server_link_slow_each_other() -> None:
    cluster = Cluster.fat_tree(1, 5, 1, pat_gbps=1000.0)
    model, state = network("steady").on(cluster), ClusterState(cluster)
    slowdown: dict[str, float] = {}
    for name, machines in (("a", (0, 1)), ("b", (2, 3))):
        state.place(job(2, name), Placement(machines, server=4))
        slowdown |= dict(model.start(state.find(name)))
    # Each gets half of the server's link: 160 ms of talking on top of 80 ms.
    assert slowdown == pytest.approx({"a": 3.0, "b": 3.0})
    slowdown |= dict(model.end("b"))
    assert slowdown["a"] == pytest.approx(2.0)


def test_a_stream_moves_a_gradient_an_iteration_whatever_the_server() -> None:
    cluster = Cluster.fat_tree(1, 3, 2, pat_gbps=1000.0)
    assert stream(cluster, job(2), Placement((0, 1), server=2)).gigabits == 8.0
