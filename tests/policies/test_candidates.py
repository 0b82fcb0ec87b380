from collections import Counter
from collections.abc import Callable, Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.protocol import Host
from cranny.core.state import ClusterState
from cranny.core.traffic import communication
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start
from cranny.policies import policy
from cranny.policies._shared.candidates import BaseCluster, Quality, host_of, variations, vary_plan
from cranny.policies._shared.locality import level

SINGLES = Cluster.fat_tree(racks=4, machines_per_rack=1, gpus_per_machine=1)
PAIRS = Cluster.fat_tree(racks=4, machines_per_rack=2, gpus_per_machine=2)

Distance = Callable[[tuple[int, ...], Cluster], Hashable]


def spread(machines: tuple[int, ...], cluster: Cluster) -> tuple[int, int]:
    """Return how many machines workers are on, and below how many switches these are."""
    return len(set(machines)), len({cluster.rack_of[machine] for machine in machines})


def by(distance: Distance, cluster: Cluster) -> Quality:
    """Let seats be as good as others whose workers are as far apart."""
    return lambda _, machines: distance(machines, cluster)


def test_winners_may_have_each_others_workers() -> None:
    # Sec. 4.2, step 1: two jobs win two workers each; one loser gives up a worker, another one three.
    taken = Job(id="other", gpus=1)
    state = ClusterState(Cluster.fat_tree(racks=5, machines_per_rack=1, gpus_per_machine=1))
    state.place(taken, Placement((4,)))
    seats = {"j1": (0, 1), "j2": (2, 3)}
    # Every link has one job at most, so the search is content with what it has.
    assert variations(seats, BaseCluster.of(state.snapshot()), 10, by(spread, state.cluster)) == [seats]
    # With another job on the links of machines 0 and 1 all ways to distribute them are found.
    base = BaseCluster.of(state.snapshot())._replace(users=(1, 1, 1, 1, 0, *[0] * 6))
    found = variations(seats, base, 100, by(spread, state.cluster))
    assert {(frozenset(each["j1"]), frozenset(each["j2"])) for each in found} == {
        (frozenset(pair), frozenset(range(4)) - frozenset(pair))
        for pair in [(0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2)]
    }


def test_a_job_leaves_links_that_others_use() -> None:
    state = ClusterState(PAIRS)
    state.place(Job(id="old", gpus=2), Placement((0, 2)))  # on the uplinks of racks 0 and 1
    plan = Plan(state.version, (Start(Job(id="new", gpus=2), Placement((0, 2))),))
    found = vary_plan(plan, state.snapshot(), 10)
    assert found == [plan]  # no machine is like those two
    plan = Plan(state.version, (Start(Job(id="new", gpus=3), Placement((1, 1, 3))),))
    best = vary_plan(plan, state.snapshot(), 10)[-1]  # where no two jobs share a link, the search ends
    start = best.actions[0]
    assert isinstance(start, Start)
    assert {PAIRS.rack_of[machine] for machine in start.placement.machines} <= {2, 3}


def test_named_gpus_and_spares_are_left_alone() -> None:
    state = ClusterState(PAIRS)
    plan = Plan(state.version, (Start(Job(id="a", gpus=1), Placement((0,), spare=(0,))),))
    assert vary_plan(plan, state.snapshot(), 10) == [plan]


def test_any_policy_becomes_a_host() -> None:
    for name in ("titan", "netpack", "themis", "best-fit"):
        host = host_of(policy(name))
        assert isinstance(host, Host)
        assert host.candidates(ClusterState(PAIRS).snapshot(), 10)[0].actions == ()
    themis = policy("themis")
    assert host_of(themis) is themis
    assert host_of(themis, "sjf") is not themis


@st.composite
def scenes(draw: st.DrawFn) -> tuple[ClusterState, dict[str, tuple[int, ...]]]:
    """A cluster with running jobs, and free seats for some more."""
    cluster = draw(st.sampled_from([SINGLES, PAIRS, Cluster.fat_tree(3, 3, 2, racks_per_pod=2)]))
    state = ClusterState(cluster)
    slots = [machine for machine, each in enumerate(cluster.machines) for _ in range(each.gpus)]
    slots = draw(st.permutations(slots))
    cuts = sorted(draw(st.lists(st.integers(0, len(slots)), min_size=2, max_size=5)))
    groups = [tuple(slots[a:b]) for a, b in zip([0, *cuts], [*cuts, len(slots)], strict=True) if b > a]
    seats: dict[str, tuple[int, ...]] = {}
    for number, machines in enumerate(groups):
        kind = draw(st.integers(0, 2))
        if kind == 0:
            state.place(Job(id=f"old{number}", gpus=len(machines)), Placement(machines))
        elif kind == 1:
            seats[f"new{number}"] = machines
    return state, seats


@settings(max_examples=examples(60))
@given(scenes(), st.integers(1, 12), st.sampled_from([spread, level]))
def test_variations_fit_differ_and_keep_every_distance(
    scene: tuple[ClusterState, dict[str, tuple[int, ...]]], count: int, distance: Distance
) -> None:
    state, seats = scene
    if not seats:
        return
    view = state.snapshot()
    found = variations(seats, BaseCluster.of(view), count, by(distance, state.cluster))
    assert found[0] == seats
    assert 1 <= len(found) <= count
    held = [tuple(tuple(sorted(machines)) for machines in each.values()) for each in found]
    assert len(set(held)) == len(held)
    free, idle = view.free.tolist(), [view.is_idle(machine) for machine in range(len(view.free))]
    opened = sum(idle[machine] for machine in {m for machines in seats.values() for m in machines})
    for each in found:
        assert each.keys() == seats.keys()
        used = Counter(machine for machines in each.values() for machine in machines)
        assert all(gpus <= free[machine] for machine, gpus in used.items())
        assert sum(idle[machine] for machine in used) == opened
        for job, machines in each.items():
            assert distance(machines, state.cluster) == distance(seats[job], state.cluster)
            assert sorted(Counter(machines).values()) == sorted(Counter(seats[job]).values())
        for job, machines in each.items():
            state.place(Job(id=job, gpus=len(machines)), Placement(machines))
        for job in each:
            state.release(job)


def test_rings_cross_racks_no_more_often_than_before() -> None:
    state = ClusterState(Cluster.fat_tree(4, 2, 1, 50.0, oversubscription=2.0))
    state.place(Job(id="old", gpus=2, collective="ring"), Placement((3, 4)))
    job = Job(id="new", gpus=4, collective="ring")
    plan = Plan(state.version, (Start(job, Placement((0, 1, 5, 6))),))
    found = vary_plan(plan, state.snapshot(), 10)
    assert len(found) > 1
    costs = {
        communication(state.cluster, job, start.placement.machines).comm_s
        for each in found
        for start in each.actions
        if isinstance(start, Start)
    }
    assert max(costs) == pytest.approx(min(costs))


def test_switches_do_not_count_but_what_is_left_above_them() -> None:
    # Pairs of one-GPU servers; on the first free servers, 1 and 3, a new job would share both of its uplinks.
    state = ClusterState(Cluster.fat_tree(4, 2, 1, 50.0, oversubscription=2.0))
    state.place(Job(id="old", gpus=2, collective="ring"), Placement((0, 2)))
    base = BaseCluster.of(state.snapshot(), by_links=True)
    assert base.shares((1, 3)) == [25.0, 50.0, 50.0]
    assert base.shares((4, 5)) == [50.0, 50.0, 50.0]
    start = Start(Job(id="new", gpus=2, collective="ring"), Placement((1, 3)))
    for by_links in (False, True):
        found = vary_plan(Plan(state.version, (start,)), state.snapshot(), 10, by_links=by_links)[-1].actions[0]
        assert isinstance(found, Start)
        assert base.contended_uses({"new": found.placement.machines}) == 0
        assert spread(found.placement.machines, state.cluster) == (2, 1)  # it was (2, 2)


@settings(max_examples=examples(60))
@given(scenes())
def test_by_links_no_job_has_less_of_its_links_than_first(
    scene: tuple[ClusterState, dict[str, tuple[int, ...]]],
) -> None:
    state, seats = scene
    base = BaseCluster.of(state.snapshot(), by_links=True)
    for each in variations(seats, base, 12, lambda _, machines: len(set(machines))) if seats else []:
        for job, machines in each.items():
            pairs = zip(base.shares(machines), base.shares(seats[job]), strict=True)
            assert all(now >= before for now, before in pairs)


@pytest.mark.parametrize("name", ["titan", "netpack"])
def test_variations_of_titan_and_netpack_open_as_many_machines(name: str) -> None:
    state = ClusterState(PAIRS)
    state.place(Job(id="old", gpus=2), Placement((0, 2)))
    host = host_of(policy(name))
    job = Job(id="new", gpus=4)
    placement = host.place(job, state.snapshot())
    assert placement is not None
    for plan in vary_plan(Plan(state.version, (Start(job, placement),)), state.snapshot(), 10):
        start = plan.actions[0]
        assert isinstance(start, Start)
        assert len(start.placement.counts) == len(placement.counts)
        assert start.placement.explain()


def test_a_parameter_server_stays_one_when_machines_change_places() -> None:
    # The server is on a full machine, where no worker could go; so is the other one, 5.
    state = ClusterState(Cluster.single_rack(6, 4))
    for machine in (0, 5):
        state.place(Job(id=f"full{machine}", gpus=4), Placement((machine,) * 4))
    state.place(Job(id="old", gpus=2, collective="ina"), Placement((1, 2)))
    job = Job(id="new", gpus=5, collective="ina")
    plan = Plan(state.version, (Start(job, Placement((1, 1, 2, 2, 2), server=0)),))
    found = vary_plan(plan, state.snapshot(), 10)
    starts = [action for each in found for action in each.actions if isinstance(action, Start)]
    assert {start.placement.server for start in starts} == {0, 5}
    assert all(start.placement.counts.keys() <= {1, 2, 3, 4} for start in starts)
    assert len({start.placement for start in starts}) == len(starts) > 2


@settings(max_examples=examples(80))
@given(scenes(), st.data())
def test_every_candidate_with_parameter_servers_can_be_committed(
    scene: tuple[ClusterState, dict[str, tuple[int, ...]]], data: st.DataObject
) -> None:
    state, seats = scene
    machines = range(len(state.cluster.machines))
    for machine in data.draw(st.sets(st.sampled_from(machines), max_size=2)):
        if not any(machine in each for each in seats.values()):
            state.drain(machine)
    up = [machine for machine in machines if state.is_up(machine)]
    starts = []
    for name, ranks in seats.items():
        in_order = tuple(sorted(ranks)) if data.draw(st.booleans()) else ranks
        server = data.draw(st.sampled_from([None, *up]))
        job = Job(id=name, gpus=len(ranks), model="vgg16", collective="ina")
        starts.append(Start(job, Placement(in_order, server=server)))
    plan = Plan(state.version, tuple(starts))
    for each in vary_plan(plan, state.snapshot(), 12, by_links=data.draw(st.booleans())):
        trial = state.copy()
        trial.commit(each)
        check(trial)
        for start in starts:
            had, has = start.placement, trial.find(start.job.id).placement
            assert (had.server is None) == (has.server is None)
            assert (had.server in had.counts) == (has.server in has.counts)
            assert sorted(had.counts.values()) == sorted(has.counts.values())
