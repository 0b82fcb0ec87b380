"""NetPack: its search against the paper's table by the book, and what its four steps must do."""

import itertools
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import netpack as book
from tests.reference.invariants import check

import cranny
from cranny.core.constraints import ConstrainedPlacer, Constraints
from cranny.core.protocol import Placer
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch, mask_of
from cranny.model.event import Event, MachineDrained, MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Start
from cranny.model.profile import ModelProfile
from cranny.policies.netpack import NetPack, NetPackLean
from cranny.policies.netpack.plan_kernel import NONE, PlanRules, ServerArrays, best, tightest

UNIT = ModelProfile("unit", grad_bytes=1e9, iteration_ms=80.0)


def job(name: str, gpus: int, collective: str = "ina") -> Job:
    return Job(name, gpus, UNIT, collective)


@st.composite
def servers(draw: st.DrawFn) -> tuple[ServerArrays, list[tuple[int, int]]]:
    """ServerArrays in racks, no two of which have the same value, and the spans to look at."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    count = sum(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    up = rng.random(count) < 0.8
    free = np.where(up, rng.integers(0, 5, count), 0)
    # No machine without flows is free: then no two machines are alike.
    flows = rng.integers(1, 4, count).astype(float)
    left = rng.uniform(0.0, 99.0, count)
    rack = np.repeat(np.arange(len(sizes)), sizes)
    rack_gbps = rng.choice([50.0, 100.0, 400.0], len(sizes))
    rack_flows = rng.integers(0, 6, len(sizes)).astype(float)
    ends = np.cumsum(sizes).tolist()
    spans = [(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    built = ServerArrays(free, up, np.full(count, 100.0), left, flows, rack, rack_gbps, rack_flows)
    return built, [*spans, (0, count)]


@settings(max_examples=300)
@given(servers(), st.integers(2, 12), st.booleans(), st.booleans(), st.booleans())
def test_finds_what_the_table_over_all_servers_finds(
    drawn: tuple[ServerArrays, list[tuple[int, int]]],
    gpus: int,
    lean: bool,  # noqa: FBT001
    printed: bool,  # noqa: FBT001
    has_server: bool,  # noqa: FBT001
) -> None:
    built, spans = drawn
    rules = PlanRules(lean, printed, has_server)
    if built.free.sum() < gpus:
        return
    found = best(built, np.array(spans), gpus, int(built.free.max()), rules)
    known = book.best(built, spans, gpus, int(built.free.max()), rules)
    assert found.value == pytest.approx(known.value, rel=1e-12)
    assert found.machines.tolist() == list(known.machines)
    assert built.free[found.machines].sum() >= gpus
    assert (found.server == NONE) == (known.server is None)
    assert found.server == NONE or built.up[found.server]


def test_a_job_that_fits_one_machine_exactly_goes_there() -> None:
    assert tightest(np.array([4, 2, 3]), 2) == 1
    assert tightest(np.array([4, 1, 3]), 2) == 2
    assert tightest(np.array([1, 1]), 2) == NONE


@pytest.mark.parametrize("policy", [NetPack, NetPackLean])
def test_a_server_of_its_own_is_chosen_only_if_it_is_better(policy: type[NetPack]) -> None:
    state = ClusterState(Cluster.single_rack(4, 4))
    placement = policy().place(job("a", 8), state.snapshot())
    assert placement is not None
    assert placement.server in placement.machines


def test_machines_whose_links_are_taken_are_avoided() -> None:
    state = ClusterState(Cluster.single_rack(4, 4))
    state.place(job("a", 2), Placement((0, 1)))  # streams all the time over two links
    placement = NetPack().place(job("b", 8), state.snapshot())
    assert placement is not None
    assert set(placement.counts) == {2, 3}
    assert not {0, 1} & {placement.server}


@pytest.mark.parametrize("policy", [NetPack, NetPackLean])
@pytest.mark.parametrize("order", list(itertools.permutations((10.1, 20.3, 3.3))))
def test_machines_with_the_same_streams_are_equal_in_whichever_order_these_came(
    policy: type[NetPack], order: tuple[float, ...]
) -> None:
    # Machines 0, 1 and 2 stream to three slow ones each, at the same rates in another order.
    slow_gbps = [*order, *reversed(order), *order]
    machines = tuple(Machine(f"m{at}", 8) for at in range(12))
    state = ClusterState(Cluster.of(Switch("top", machines, (100.0, 100.0, 100.0, *slow_gbps))))
    for at in range(9):
        state.place(job(f"to-{at}", 9, "ring"), Placement((at // 3,) + (3 + at,) * 8))
    placement = policy().place(job("a", 7, "ring"), state.snapshot())
    assert placement is not None
    assert placement.machines == (0,) * 2 + (1,) * 5


@pytest.mark.parametrize("policy", [NetPack, NetPackLean])
@pytest.mark.parametrize("name", ["fail", "drain", "exclude"])
def test_no_parameter_server_goes_to_a_machine_that_takes_no_jobs(policy: type[NetPack], name: str) -> None:
    state = ClusterState(Cluster.single_rack(5, 4))
    state.place(job("a", 8), Placement((0, 0, 0, 0, 1, 1, 1, 1)))
    state.place(job("b", 4), Placement((2, 2, 3, 3)))  # whose links are taken too, unlike that of machine 4
    state.place(job("c", 4), Placement((4,) * 4))
    placement = policy().place(job("d", 4), state.snapshot())
    assert placement is not None
    assert (placement.server == 4) == (policy is NetPack)
    placer: Placer = policy()
    if name == "exclude":
        placer = ConstrainedPlacer(placer, lambda _: Constraints(mask_of([4])))
    else:
        getattr(state, name)(4)
    placement = placer.place(job("d", 4), state.snapshot())
    assert placement is not None
    assert placement.server in {0, 1, 2, 3}
    state.place(job("d", 4), placement)
    check(state)


@pytest.mark.parametrize("name", ["netpack", "netpack-lean", "netpack+cassini"])
def test_jobs_with_parameter_servers_end_while_machines_fail_and_drain(name: str) -> None:
    cluster = Cluster.single_rack(6, 4, link_gbps=50.0)
    jobs = [
        Job(f"j{number}", 2 + number * 5 % 7, UNIT, "ina", submit_s=10.0 * number, duration_s=60.0 + 23 * number)
        for number in range(20)
    ]
    events: list[tuple[float, Event]] = [
        (0.0, MachineDrained(3)),
        (100.0, MachineFailed(0)),
        (200.0, MachineRepaired(3)),
    ]
    result = cranny.simulate(cluster, jobs, name, "steady", machine_events=events)
    assert set(result.jobs["status"]) == {"done"}


def test_a_job_stays_within_a_rack_if_racks_are_oversubscribed() -> None:
    state = ClusterState(Cluster.fat_tree(2, 4, 2, oversubscription=4.0, pat_gbps=1000.0))
    for machine in (0, 1, 4):  # the emptiest machines are 2, 3 and 5, 6, 7
        state.place(job(f"b{machine}", 1), Placement((machine,)))
    for policy in (NetPack(), NetPackLean()):
        placement = policy.place(job("a", 6), state.snapshot())
        assert placement is not None
        assert min(placement.machines) >= 4 or max(placement.machines) < 4


def test_jobs_of_a_batch_do_not_take_the_same_gpus() -> None:
    state = ClusterState(Cluster.fat_tree(2, 2, 4, pat_gbps=100.0))
    policy = NetPack()
    waiting = [Waiting(job(f"j{number}", gpus)) for number, gpus in enumerate([3, 3, 3, 3, 4])]
    plan = policy.plan(state.snapshot(1.0, waiting))
    state.commit(plan)
    check(state)
    assert state.held_gpus == 16  # all but one of the jobs of 3 GPUs: worth as much as any four


def test_surplus_gpus_are_given_back_and_every_rank_is_placed_once() -> None:
    state = ClusterState(Cluster.single_rack(3, 4))
    placement = NetPack().place(job("a", 10), state.snapshot())
    assert placement is not None
    assert len(placement.machines) == 10
    assert sorted(placement.counts.values()) == [2, 4, 4]


def test_switch_memory_goes_to_jobs_that_merge_more_flows() -> None:
    rack = Switch("rack", tuple(Machine(f"m{i}", 1) for i in range(8)), (100.0,) * 8, pat_gbps=10.0)
    state = ClusterState(Cluster.of(Switch("core", (rack,), (1000.0,))))
    waiting = [Waiting(job("small", 2)), Waiting(job("large", 5))]
    starts = [
        action for action in NetPack().plan(state.snapshot(0.0, waiting)).actions if isinstance(action, Start)
    ]
    on = {start.job.id: start.placement.aggregate for start in starts}
    assert on == {"small": False, "large": True}
    facts = next(start.placement.facts for start in starts if start.job.id == "small")
    assert facts["switch_without_memory"] == "rack"
    text = next(start.placement.explain() for start in starts if start.job.id == "small")
    assert "in-network aggregation is off: the switch of rack has no memory left for it" in text


def test_memory_that_is_used_up_but_for_rounding_is_used_up() -> None:
    rack = Switch("rack", tuple(Machine(f"m{i}", 1) for i in range(18)), (0.1,) * 18, pat_gbps=0.8)
    state = ClusterState(Cluster.of(Switch("core", (rack,), (1000.0,))))
    plan = NetPack().plan(state.snapshot(0.0, [Waiting(job(f"j{number}", 2)) for number in range(9)]))
    aggregates = [start.placement.aggregate for start in plan.actions if isinstance(start, Start)]
    assert aggregates == [True] * 8 + [False]


def test_a_switch_that_never_had_memory_is_not_said_to_have_none_left() -> None:
    placement = NetPack().place(job("a", 3), ClusterState(Cluster.fat_tree(2, 2, 2)).snapshot())
    assert placement is not None
    assert placement.facts["switch_without_memory"] == "rack0"
    assert "off: the switch of rack0 has no memory to aggregate with" in placement.explain()


def test_an_explanation_tells_values_server_and_aggregation() -> None:
    state = ClusterState(Cluster.fat_tree(2, 2, 2, pat_gbps=1000.0))
    placement = NetPack().place(job("a", 3), state.snapshot())
    assert placement is not None
    text = placement.explain()
    assert "rack0-machine0: 100.0 Gbps left, 0 flows, value 100.0" in text
    assert "share of its most crowded link: 100.0 Gbps" in text
    assert "parameter server on rack0-machine0, beside a worker" in text
    assert "in-network aggregation is on" in text
    assert placement.facts["beside_a_worker"] is True
    alone = NetPack().place(job("b", 1), state.snapshot())
    assert alone is not None
    assert "fits one machine" in alone.explain()


def test_lean_takes_no_more_servers_than_it_needs() -> None:
    state = ClusterState(Cluster.single_rack(5, 4))
    for machine, held in enumerate([0, 0, 2, 3, 3]):
        if held:
            state.place(job(f"b{machine}", held), Placement((machine,) * held))
    spread, lean = NetPack(), NetPackLean()
    placements = [policy.place(job("a", 7), state.snapshot()) for policy in (spread, lean)]
    assert [len(placement.counts) for placement in placements if placement] == [3, 2]


def test_other_collectives_get_no_server() -> None:
    state = ClusterState(Cluster.fat_tree(2, 2, 2))
    placement = NetPackLean().place(job("a", 3, "ring"), state.snapshot())
    assert placement is not None
    assert placement.server is None
    state.place(job("a", 3, "ring"), placement)
    check(state)


def test_a_job_waits_only_for_gpus_or_for_jobs_worth_more() -> None:
    state = ClusterState(Cluster.single_rack(1, 2))
    policy = NetPack()
    assert policy.place(job("a", 3), state.snapshot()) is None
    assert policy.why_wait(job("a", 3), state.snapshot()) == "needs 3 GPUs, 2 free"
    assert "higher total value" in policy.why_wait(job("a", 2), state.snapshot())


def test_a_copy_knows_who_was_passed_over() -> None:
    state = ClusterState(Cluster.single_rack(2, 2))
    policy = NetPack()
    for second in range(3):
        policy.plan(state.snapshot(float(second), [Waiting(job("large", 5))]))
    state.place(job("a", 3), Placement((0, 0, 1)))
    policy.plan(state.snapshot(3.0, [Waiting(job("large", 5))]))  # it has looked at links by now
    copied = deepcopy(policy)
    assert copied._batches.worth("large") == policy._batches.worth("large") == 4
    assert copied.place(job("b", 1), state.snapshot()) == policy.place(job("b", 1), state.snapshot())


@pytest.mark.parametrize("order", [None, "fifo", "backfill"])
@pytest.mark.parametrize("name", ["netpack", "netpack-lean"])
def test_a_trace_runs_to_its_end_in_any_order_and_comes_out_the_same_again(name: str, order: str | None) -> None:
    cluster = Cluster.fat_tree(4, 4, 4, oversubscription=2.0, pat_gbps=200.0)
    trace = cranny.generate_trace("philly", jobs=150, seed=3, load=2.0, gpus=cluster.gpus)
    runs = [cranny.simulate(cluster, trace, name, "steady", order=order, collective="ina").jobs for _ in range(2)]
    assert runs[0].equals(runs[1])
    assert set(runs[0]["status"]) <= {"done", "skipped"}
