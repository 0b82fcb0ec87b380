"""NetPack: its search against the paper's table by the book, and what its four steps must do."""

import itertools
from collections import Counter
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import netpack as book
from tests.reference.invariants import check

import cranny
from cranny.core.constrained_placer import ConstrainedPlacer
from cranny.core.constraints import Constraints
from cranny.core.protocol import Placer
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch, mask_of
from cranny.model.event import Event, MachineDrained, MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.model.placement import Aggregation, Placement
from cranny.model.plan import Action, Aggregate, Start
from cranny.model.profile import ModelProfile
from cranny.policies.netpack import NetPack, NetPackLean
from cranny.policies.netpack.plan_kernel import NONE, PlanRules, ServerArrays, best, tight_racks, tightest
from cranny.policies.netpack.selective_ina import INA_RULES, Aggregated, give_memory
from cranny.policies.netpack.tie_rules import TIE_RULES

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


@settings(max_examples=examples(300))
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
    by_free = False
    racks = np.array([0, 0, 1, 1]), np.array([1.0, 0.0]), by_free
    assert tightest(np.array([4, 2, 3, 3]), 2, *racks) == 1
    assert tightest(np.array([4, 1, 3, 3]), 2, *racks) == 2
    assert tightest(np.array([2, 2, 2, 2]), 2, *racks) == 2  # in the rack that comes first
    assert tightest(np.array([1, 1, 0, 0]), 2, *racks) == NONE


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32 - 1))
def test_tight_racks_are_sorted_by_memory_then_by_free_gpus_and_full_ones_come_last(seed: int) -> None:
    rng = np.random.default_rng(seed)
    racks = int(rng.integers(1, 6))
    rack = np.sort(rng.integers(0, racks, 12))
    free, memory = rng.integers(0, 3, 12), rng.choice([0.0, 99.0, 100.0, 500.0], racks)
    gpus = [int(free[rack == each].sum()) for each in range(racks)]
    order = sorted(range(racks), key=lambda each: (memory[each] < 100.0, gpus[each] == 0, gpus[each], each))
    assert np.argsort(tight_racks(free, rack, (memory < 100.0).astype(float)), kind="stable").tolist() == order


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


def one_rack(pat_gbps: float, machines: int = 8) -> ClusterState:
    return ClusterState(Cluster.fat_tree(1, machines, 1, pat_gbps=pat_gbps))


def commit(policy: NetPack, state: ClusterState, at_s: float, *waiting: Job) -> list[Action]:
    """Decide once, and commit the plan."""
    plan = policy.plan(state.snapshot(at_s, [Waiting(each) for each in waiting]))
    state.commit(plan, at_s)
    check(state)
    return list(plan.actions)


def aggregates(state: ClusterState) -> dict[str, bool | tuple[int, ...]]:
    return {job_id: running.placement.aggregate for job_id, running in state.running.items()}


@pytest.mark.parametrize("ina", INA_RULES)
def test_memory_goes_to_a_job_that_merges_more_if_running_jobs_are_decided_about_again(ina: str) -> None:
    state, policy = one_rack(10.0), NetPack(ina=ina)
    commit(policy, state, 0.0, job("small", 2))
    commit(policy, state, 1.0, job("large", 5))
    first = {"always": (True, True), "again": (False, True)}.get(ina, (True, False))
    assert aggregates(state) == dict(zip(("small", "large"), first, strict=True))
    state.release("large" if ina == "again" else "small")
    actions = commit(policy, state, 2.0)
    assert aggregates(state) == ({"small": True} if ina == "again" else {"large": ina == "always"})
    assert [type(each) for each in actions] == ([Aggregate] if ina == "again" else [])
    assert commit(policy, state, 2.0) == commit(policy, state, 3.0) == []


@pytest.mark.parametrize(("ina", "expected"), [("per-job", False), ("per-rack", (1,))])
def test_each_switch_of_a_job_is_decided_by_itself(ina: str, expected: Aggregation) -> None:
    # The memory of rack 0 goes to a job of five; one of the other workers is there, two are in rack 1.
    racks = [
        Switch(f"rack{rack}", tuple(Machine(f"m{rack}{i}", 1) for i in range(6)), (100.0,) * 6, pat)
        for rack, pat in enumerate((10.0, 1000.0))
    ]
    state = ClusterState(Cluster.of(Switch("core", tuple(racks), (1000.0, 1000.0))))
    state.place(job("large", 5), Placement((0, 1, 2, 3, 4), server=0))
    for machine in (6, 7, 8, 9):
        state.place(job(f"b{machine}", 1), Placement((machine,)))
    (start,) = commit(NetPack(ina=ina, ties="lowest"), state, 0.0, job("small", 3))
    assert isinstance(start, Start)
    assert set(start.placement.machines) == {5, 10, 11}
    assert start.placement.aggregate == expected
    text = start.placement.explain()
    assert "the switch of rack0 has no memory left for it" in text
    assert ("is on in rack1 only" in text) == (ina != "per-job")
    assert start.placement.facts["aggregation"] == (["rack1"] if expected else False)


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1))
def test_memory_is_given_by_efficiency_and_no_switch_has_some_left_that_a_job_wants(seed: int) -> None:
    rng = np.random.default_rng(seed)
    racks = int(rng.integers(1, 4))
    memory = rng.choice([0.0, 50.0, 120.0], racks).tolist()
    jobs = [
        Aggregated(
            f"j{number}",
            float(rng.choice([20.0, 50.0, 100.0])),
            Counter(
                {int(rack): int(rng.integers(1, 4)) for rack in rng.choice(racks, rng.integers(1, racks + 1))}
            ),
        )
        for number in range(int(rng.integers(1, 8)))
    ]
    decided = give_memory(jobs, memory, "per-rack")
    given = Counter[int]()
    for each in sorted(jobs, key=lambda each: -each.efficiency):
        on, _ = decided[each.job_id]
        for rack in each.flows:
            assert (on is True or (on is not False and rack in on)) == (memory[rack] > given[rack])
            given[rack] += int(each.rate_gbps) if memory[rack] > given[rack] else 0


def test_a_tie_between_racks_is_decided_by_the_rule() -> None:
    # Racks of two machines with 2 GPUs. Rack 0 is free, rack 1 has one GPU taken, rack 2 has its memory used up.
    racks = [
        Switch(f"rack{rack}", (Machine(f"a{rack}", 2), Machine(f"b{rack}", 2)), (100.0, 100.0), pat)
        for rack, pat in enumerate((1000.0, 500.0, 50.0))
    ]
    state = ClusterState(Cluster.of(Switch("core", tuple(racks), (1000.0,) * 3)))
    state.place(job("c", 1), Placement((2,)))

    def rack(ties: str, seed: int = 0) -> int:
        policy = NetPack(ties=ties, rng=np.random.default_rng(seed))
        placement = policy.place(job("a", 3), state.snapshot())
        assert placement is not None
        (found,) = {state.cluster.rack_of[machine] for machine in placement.machines}
        return found

    assert rack("lowest") == rack("most-memory") == 0
    assert rack("tightest") == 1  # rack 2 has as few free GPUs as rack 0, but no memory for a link's rate
    assert {rack("random", seed) for seed in range(20)} == {0, 1, 2}
    assert TIE_RULES == ("lowest", "tightest", "most-memory", "random")


@pytest.mark.parametrize(("ties", "denied"), [("lowest", 3), ("tightest", 0)])
def test_no_job_is_denied_aggregation_for_life_while_racks_with_memory_are_idle(ties: str, denied: int) -> None:
    # Four racks with memory for one job each, and room for four jobs in any of them.
    state, policy = ClusterState(Cluster.fat_tree(4, 8, 1, pat_gbps=100.0)), NetPack(ties=ties, ina="per-job")
    for number in range(4):
        commit(policy, state, float(number), job(f"j{number}", 2))
    assert sum(not aggregate for aggregate in aggregates(state).values()) == denied


def test_jobs_on_one_machine_follow_the_tie_rule_too() -> None:
    state = ClusterState(Cluster.fat_tree(2, 2, 2, pat_gbps=1000.0))
    state.place(job("c", 2), Placement((2, 2)))  # rack 1 has fewer free GPUs
    found = {ties: NetPack(ties=ties).place(job("a", 2), state.snapshot()) for ties in ("lowest", "tightest")}
    assert {ties: each.machines for ties, each in found.items() if each} == {"lowest": (0, 0), "tightest": (3, 3)}


def test_equation_1_as_printed_draws_a_job_to_the_crowded_server_and_ours_away_from_it() -> None:
    # By hand, C = 100: the servers of rack 0 have 100 Gbps left, those of rack 1 half. Plans are the two racks.
    rack_of = np.repeat([0, 1], 2)
    left, flows = np.array([100.0, 100.0, 99.0, 99.0]), np.array([0.0, 0.0, 1.0, 1.0])
    free, up = np.full(4, 2), np.ones(4, np.bool_)
    servers = ServerArrays(free, up, np.full(4, 100.0), left, flows, rack_of, np.full(2, 200.0), np.zeros(2))
    spans = np.array([[0, 2], [2, 4]])
    found = {
        printed: best(servers, spans, 4, 2, PlanRules(lean=False, printed=printed, has_server=True))
        for printed in (False, True)
    }
    # V + s.bw - 0 = 300 in rack 0; 2 (99 - 1/2) + 99 - 1/2 = 295.5 in rack 1. Ours adds 100 and 50; as printed
    # 100 and 50 are taken off.
    assert (found[False].machines.tolist(), found[False].value) == ([0, 1], 400.0)
    assert (found[True].machines.tolist(), found[True].value) == ([2, 3], 245.5)


@pytest.mark.parametrize(("rack_plans", "machines"), [(True, {5, 6, 7}), (False, {2, 3, 5})])
def test_without_plans_of_single_racks_a_job_may_cross_racks(*, rack_plans: bool, machines: set[int]) -> None:
    # The links of machines 0 and 1 are taken, machine 4 has one GPU: three of 2, 3, 5, 6 and 7 are equally good.
    state = ClusterState(Cluster.fat_tree(2, 4, 2, pat_gbps=1000.0))
    state.place(job("c", 2, "ring"), Placement((0, 1)))
    state.place(job("d", 1), Placement((4,)))
    placement = NetPack(rack_plans=rack_plans, ties="lowest").place(job("a", 6), state.snapshot())
    assert placement is not None
    assert set(placement.machines) == machines


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
