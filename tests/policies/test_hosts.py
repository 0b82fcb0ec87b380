"""Themis and Pollux: who gets GPUs and how many, and that all their candidates are equally good."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

import cranny
from cranny.core.engine import Engine
from cranny.core.protocol import Host
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.event import Finished, Submitted
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Move, Plan, Start, Stop
from cranny.policies import policy
from cranny.policies._shared.candidates import BaseCluster
from cranny.policies._shared.locality import level
from cranny.policies.themis import Themis

FOUR = Cluster.single_rack(1, 4)
SINGLES = Cluster.fat_tree(racks=4, machines_per_rack=2, gpus_per_machine=1, link_gbps=50.0, oversubscription=2.0)
RACKS = Cluster.fat_tree(racks=3, machines_per_rack=2, gpus_per_machine=2)
MIXED = Cluster.of(Switch("rack", (Machine("a", 4, "A"), Machine("b", 4, "B")), (100.0,) * 2))
HOUR = 3600.0
FEW = {"pollux": {"population": 20, "generations": 10}}


def job(job_id: str, gpus: int, **fields: object) -> Job:
    return Job(id=job_id, gpus=gpus, **{"model": "resnet50", "duration_s": HOUR, **fields})  # type: ignore[arg-type]


def elastic(job_id: str, least: int, gpus: int, most: int, **fields: object) -> Job:
    return job(job_id, gpus, least_gpus=least, most_gpus=most, **fields)


def asked(host: Host, state: ClusterState, now_s: float, *jobs: Job) -> tuple[Action, ...]:
    return host.plan(state.snapshot(now_s, [Waiting(each) for each in jobs])).actions


# -- Themis ----------------------------------------------------------------------------------------------------


def test_a_lease_is_respected_and_then_the_job_farthest_from_fairness_wins() -> None:
    state, themis = ClusterState(FOUR), Themis(lease_s=600.0)
    state.place(job("a", 4), Placement((0,) * 4), 0.0)
    late = job("b", 4)
    assert asked(themis, state, 599.0, late) == ()
    assert "needs 4 GPUs, 0 free" in themis.why_wait(late, state.snapshot(599.0))
    stop, start = asked(themis, state, 600.0, late)
    assert isinstance(stop, Stop)
    assert stop.job_id == "a"
    assert "lease" in stop.reason
    assert isinstance(start, Start)
    assert start.job is late


def test_a_job_that_wins_again_what_it_had_stays_and_has_a_new_lease() -> None:
    state, themis = ClusterState(FOUR), Themis(lease_s=600.0)
    state.place(job("a", 4), Placement((0,) * 4), 0.0)
    assert asked(themis, state, 600.0) == ()
    assert asked(themis, state, 1199.0, job("b", 4)) == ()  # the second lease
    assert len(asked(themis, state, 1200.0, job("b", 4))) == 2


def test_finish_time_fairness_is_the_shared_over_the_ideal_time() -> None:
    state, themis = ClusterState(FOUR), Themis(slowdowns=(1.0, 1.0, 1.0))
    view = state.snapshot(1800.0, [Waiting(job("a", 2)), Waiting(job("b", 2))])
    bidder = themis._bidder(view, view.waiting[0])
    # Alone it has half of the cluster, two GPUs, and takes an hour; here it has waited half an hour already.
    assert bidder.ideal_s == HOUR
    assert themis._rho(bidder, 2, view) == pytest.approx(1.5)
    assert themis._rho(bidder, 1, view) == pytest.approx(2.5)


def test_elastic_jobs_share_what_there_is() -> None:
    state, themis = ClusterState(FOUR), Themis(fairness=0.0)
    twins = [elastic("a", 1, 4, 4), elastic("b", 1, 4, 4)]
    starts = asked(themis, state, 0.0, *twins)
    assert [len(start.placement.machines) for start in starts if isinstance(start, Start)] == [2, 2]


def test_leases_end_one_by_one_or_together_in_epochs() -> None:
    state = ClusterState(SINGLES)
    for number, at_s in enumerate((0.0, 30.0, 100.0)):
        state.place(job(f"j{number}", 2), Placement((2 * number, 2 * number + 1)), at_s)
    view = state.snapshot(110.0, [Waiting(job("new", 4))])
    assert [*Themis(lease_s=100.0)._lease_ends_s(view).values()] == [100.0, 130.0, 200.0]
    assert [*Themis(lease_s=100.0, epochs=True)._lease_ends_s(view).values()] == [100.0, 100.0, 200.0]


@st.composite
def winners(draw: st.DrawFn) -> tuple[ClusterState, list[Job]]:
    """Draw jobs that hold some machines with one GPU each, and others that wait for the rest."""
    state = ClusterState(SINGLES)
    order = draw(st.permutations(range(8)))
    held = draw(st.integers(1, 5))
    for number, machines in enumerate((order[: held // 2], order[held // 2 : held])):
        if machines:
            state.place(job(f"old{number}", len(machines)), Placement(tuple(machines)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    return state, [job(f"new{number}", gpus) for number, gpus in enumerate(sizes)]


@settings(max_examples=examples(60))
@given(winners())
def test_themis_gives_all_candidates_that_there_are_up_to_ten(case: tuple[ClusterState, list[Job]]) -> None:
    """On machines with one GPU it matters below which switches workers are; what is alike counts once."""
    state, made = case
    plans = Themis().candidates(state.snapshot(0.0, [Waiting(each) for each in made]), 10)
    placed = [
        {each.job_id: each.placement.machines for each in plan.actions if isinstance(each, Start)}
        for plan in plans
    ]
    free = [machine for machine in range(8) if state.snapshot().free_on(machine)]
    used = sum(len(machines) for machines in placed[0].values())

    def racks(machines: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(SINGLES.rack_of[machine] for machine in machines))

    every = set()
    for order in permutations(free, used):
        left, choice = list(order), {}
        for job_id, machines in placed[0].items():
            choice[job_id], left = tuple(left[: len(machines)]), left[len(machines) :]
        if all(level(choice[job_id], SINGLES) == level(placed[0][job_id], SINGLES) for job_id in choice):
            every.add(tuple(racks(machines) for machines in choice.values()))
    given = {tuple(racks(machines) for machines in each.values()) for each in placed}
    assert given <= every
    last = BaseCluster.of(state.snapshot()).contended_uses(placed[-1])
    assert len(given) == len(plans) == (min(len(every), 10) if last else len(plans))  # where none meet it ends


def test_themis_splits_workers_otherwise_where_machines_have_several_gpus() -> None:
    # In rack 0 one GPU of three machines is taken, and a job of four is to share its uplink or not.
    state = ClusterState(Cluster.fat_tree(2, 3, 2, 50.0, oversubscription=3.0))
    state.place(job("old", 2), Placement((0, 3)), 0.0)
    plans = Themis().candidates(state.snapshot(0.0, [Waiting(job("new", 6))]), 10)
    shapes = {
        tuple(sorted(each.placement.counts.values()))
        for plan in plans
        for each in plan.actions
        if isinstance(each, Start)
    }
    assert len(plans) == 10
    assert len(shapes) > 1


def test_only_the_jobs_farthest_from_fairness_bid_at_first() -> None:
    state, themis = ClusterState(FOUR), Themis(fairness=0.8)
    long_ago, now = elastic("old", 1, 4, 4), elastic("new", 1, 4, 4, submit_s=HOUR)
    (start,) = asked(themis, state, HOUR, now, long_ago)
    assert isinstance(start, Start)
    assert start.job is long_ago
    assert len(start.placement.machines) == 4


def test_a_job_does_not_win_more_than_there_is_of_its_type() -> None:
    machines = (Machine("old", 4, "T4"), Machine("new", 4, "V100"))
    mixed = Cluster.of(Switch("rack", machines, (100.0,) * 2))
    picky, plain = job("picky", 6, gpu_type="T4", submit_s=0.0), job("plain", 8, submit_s=50.0)
    (start,) = asked(Themis(), ClusterState(mixed), 60.0, picky, plain)
    assert isinstance(start, Start)
    assert start.job is plain


@pytest.mark.parametrize("field", [{"gpu_type": "A"}, {"speeds": {"A": 1.0}}])
def test_a_job_whose_gpus_no_other_job_can_use_is_not_stopped_at_the_end_of_its_lease(
    field: dict[str, object],
) -> None:
    state, themis = ClusterState(MIXED), Themis(lease_s=600.0)
    state.place(job("z", 4, gpu_type="B", duration_s=5000.0), Placement((1,) * 4), 0.0)
    x, y = (job(job_id, 4, submit_s=1.0, duration_s=50_000.0, **field) for job_id in "xy")
    (start,) = asked(themis, state, 700.0, x, y)
    assert isinstance(start, Start)
    assert start.job is x


def test_gpus_of_a_type_that_bidders_cannot_use_go_to_the_next_who_can() -> None:
    state, themis = ClusterState(MIXED), Themis(lease_s=600.0, fairness=0.5)
    state.place(job("z", 4, gpu_type="B"), Placement((1,) * 4), 0.0)
    far = [job(job_id, 4, gpu_type="A") for job_id in "xy"]
    next_far = job("w", 4, submit_s=500.0, gpu_type="B")
    actions = asked(themis, state, 700.0, *far, next_far)
    assert [action.job_id for action in actions if isinstance(action, Stop)] == ["z"]
    assert {action.job.id for action in actions if isinstance(action, Start)} == {"x", "w"}


def test_a_job_shrinks_on_its_own_machines_at_the_end_of_its_lease() -> None:
    state, themis = ClusterState(RACKS), Themis(fairness=0.0)
    state.place(elastic("a", 2, 8, 8), Placement((0, 0, 1, 1, 2, 2, 3, 3)), 0.0)
    state.place(job("rigid", 4), Placement((4, 4, 5, 5)), 0.0)
    actions = asked(themis, state, 600.0, elastic("b", 4, 8, 8, submit_s=0.0))
    moves = [action for action in actions if isinstance(action, Move)]
    assert [move.job_id for move in moves] == ["a"]
    assert set(moves[0].placement.machines) < {0, 1, 2, 3}


def test_themis_prefers_a_machine_then_a_rack_and_looks_no_closer() -> None:
    state = ClusterState(RACKS)
    state.place(job("x", 1), Placement((0,)))
    themis = Themis()
    assert themis.place(job("a", 1), state.snapshot()) == Placement((0,))
    assert themis.place(job("a", 2), state.snapshot()) == Placement((1, 1))
    assert themis.place(job("a", 3), state.snapshot()) == Placement((0, 1, 1))
    assert themis.place(job("a", 5), state.snapshot()) == Placement((0, 1, 1, 2, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lease_s": 0}, "lease_s"), ({"fairness": 1.0}, "fairness"), ({"slowdowns": (1.0, 0.5, 1.0)}, "slowdowns")],
)
def test_themis_refuses_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        policy("themis", **options)


# -- both ------------------------------------------------------------------------------------------------------


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    made = []
    for number in range(draw(st.integers(1, 7))):
        gpus = draw(st.integers(1, 8))
        least = draw(st.integers(1, gpus)) if draw(st.booleans()) else None
        most = draw(st.integers(gpus, 12)) if draw(st.booleans()) else None
        submit_s = draw(st.sampled_from([0.0, 0.0, 100.0, 700.0, 2000.0]))
        made.append(
            Job(
                id=f"j{number}",
                gpus=gpus,
                model=draw(st.sampled_from(["resnet50", "vgg16"])),
                collective="ring",
                submit_s=submit_s,
                duration_s=draw(st.sampled_from([50.0, 900.0, 4000.0])),
                least_gpus=least,
                most_gpus=most,
            )
        )
    return sorted(made, key=lambda each: each.submit_s)


@pytest.mark.parametrize("name", ["themis", "pollux"])
def test_candidates_can_be_done_differ_and_are_equally_good(name: str) -> None:
    @settings(max_examples=examples(40))
    @given(jobs(), st.integers(2, 10))
    def run(made: Sequence[Job], count: int) -> None:
        host = policy(name, **FEW.get(name, {}))
        assert isinstance(host, Host)
        state, now_s = ClusterState(RACKS), 0.0
        waiting = [Waiting(replace(each, submit_s=0.0)) for each in made]
        for _ in range(4):
            plans = host.candidates(state.snapshot(now_s, waiting), count)
            assert len(plans) <= count
            placed = [_after(state, plan, now_s) for plan in plans]
            assert all(placed.count(each) == 1 for each in placed)
            assert all(_workers(each) == _workers(placed[0]) for each in placed)
            if name == "themis":
                levels = [{job_id: level(p.machines, RACKS) for job_id, p in each.items()} for each in placed]
                assert all(each == levels[0] for each in levels)
            state.commit(plans[-1], now_s)
            check(state)
            started = {action.job.id for action in plans[-1].actions if isinstance(action, Start)}
            stopped = {action.job_id for action in plans[-1].actions if isinstance(action, Stop)} - started
            waiting = [each for each in waiting if each.job.id not in started]
            waiting += [Waiting(each) for each in made if each.id in stopped]
            now_s += 600.0

    run()


def _workers(placed: dict[str, Placement]) -> dict[str, int]:
    return {job_id: len(placement.machines) for job_id, placement in placed.items()}


def _after(state: ClusterState, plan: Plan, now_s: float) -> dict[str, Placement]:
    """Return where jobs are when a plan is done."""
    trial = state.copy()
    trial.commit(plan, now_s)
    check(trial)
    return {job_id: running.placement for job_id, running in trial.running.items()}


@pytest.mark.parametrize("name", ["themis", "pollux", "themis+cassini", "pollux+cassini"])
def test_jobs_come_and_go_and_nothing_is_lost(name: str) -> None:
    @settings(max_examples=examples(30))
    @given(jobs(), st.lists(st.tuples(st.integers(0, 9), st.sampled_from([10.0, 300.0, 900.0])), max_size=12))
    def run(made: Sequence[Job], ends: Sequence[tuple[int, float]]) -> None:
        chosen = policy(name, **FEW.get(name.partition("+")[0], {}))
        state = ClusterState(RACKS)
        engine = Engine(state, chosen)  # type: ignore[arg-type]
        started: dict[str, float] = {}
        now_s = 0.0

        def watch(actions: Sequence[Action]) -> None:
            check(state)
            for action in actions:
                if isinstance(action, Move | Stop) and name.startswith("themis"):
                    assert now_s >= started[action.job_id] + 600.0  # the lease
                if isinstance(action, Start | Move):
                    started[action.job_id] = now_s

        for each in made:
            now_s = max(now_s, each.submit_s)
            watch(engine.handle(Submitted(each), now_s))
        for which, after_s in ends:
            if not state.running:
                break
            now_s += after_s
            watch(engine.handle(Finished(list(state.running)[which % len(state.running)]), now_s))

    run()


CONSTRAINTS = st.sampled_from(
    [{}, {"gpu_type": "A"}, {"gpu_type": "B"}, {"speeds": {"B": 1.0, "C": 2.0}}, {"speeds": {"A": 1.0, "B": 1.0}}]
)


def test_no_job_waits_beside_enough_free_gpus_and_none_is_stopped_to_start_again() -> None:
    kinds = "AABBC"
    cluster = Cluster.of(
        Switch("rack", tuple(Machine(f"m{at}", 2, kind) for at, kind in enumerate(kinds)), (100.0,) * len(kinds))
    )

    @settings(max_examples=examples(60))
    @given(jobs(), st.lists(CONSTRAINTS, min_size=7, max_size=7), st.lists(st.integers(0, 9), max_size=4))
    def run(made: Sequence[Job], constraints: Sequence[dict[str, Any]], ends: Sequence[int]) -> None:
        state = ClusterState(cluster)
        engine = Engine(state, Themis())
        typed = [replace(each, **constraint) for each, constraint in zip(made, constraints, strict=False)]
        now_s = 0.0

        def handle(event: Submitted | Finished) -> None:
            actions = engine.handle(event, now_s)
            check(state)
            stopped = {action.job_id for action in actions if isinstance(action, Stop)}
            view = state.snapshot(now_s)
            for waiting in engine.queue:
                assert view.available(waiting.job).gpus < (waiting.job.least_gpus or waiting.job.gpus)
            before = placed.copy()
            placed.clear()
            placed.update({job_id: running.placement.machines for job_id, running in state.running.items()})
            assert not [job_id for job_id in stopped if placed.get(job_id) == before[job_id]]

        placed: dict[str, tuple[int, ...]] = {}
        for each in typed:
            now_s = each.submit_s
            handle(Submitted(each))
        for which in ends:
            if state.running:
                now_s += 700.0
                handle(Finished(list(state.running)[which % len(state.running)]))

    run()


@pytest.mark.parametrize("name", ["themis", "pollux", "themis+cassini"])
def test_all_jobs_are_done_and_twice_the_same(name: str) -> None:
    cluster = Cluster.fat_tree(racks=4, machines_per_rack=2, gpus_per_machine=2, link_gbps=50, oversubscription=2)
    trace = [
        elastic(f"j{number}", 1 + number % 2, 2 + number % 5, 8, submit_s=100.0 * number, restart_s=5.0)
        for number in range(20)
    ]
    options = FEW.get(name, {})
    results = [cranny.simulate(cluster, trace, name, "phases", options=options) for _ in range(2)]
    assert results[0].summary["jobs_done"] == 20
    assert results[0].jobs.equals(results[1].jobs)


@pytest.mark.parametrize(
    ("name", "options", "start_s"),
    [
        ("themis", {"lease_s": 100.0}, 100.0),
        ("themis+cassini", {"lease_s": 100.0}, 100.0),
        ("pollux", {"interval_s": 60.0}, 60.0),
    ],
)
def test_hosts_divide_gpus_anew_when_a_lease_or_an_interval_ends_and_nothing_else_happens(
    name: str, options: dict[str, Any], start_s: float
) -> None:
    jobs = [elastic("a", 1, 4, 4, duration_s=2000.0), job("b", 2, submit_s=10.0, duration_s=50.0)]
    cluster = Cluster.single_rack(4, 1, 50.0)
    result = cranny.simulate(cluster, jobs, policy=name, options=options)
    assert dict(zip(result.jobs["job_id"], result.jobs["start_s"], strict=True))["b"] == start_s


def test_a_lease_that_ends_is_no_reason_to_wake_where_no_job_could_win_it() -> None:
    state, themis = ClusterState(FOUR), Themis(lease_s=600.0)
    state.place(job("a", 4), Placement((0,) * 4), 0.0)
    assert themis.next_s(state.snapshot(10.0)) == float("inf")
    assert themis.next_s(state.snapshot(10.0, [Waiting(job("b", 1))])) == 600.0
    assert themis.next_s(state.snapshot(600.0, [Waiting(job("b", 1))])) == float("inf")  # it is auctioned now
