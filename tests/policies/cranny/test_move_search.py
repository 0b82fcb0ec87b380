"""Moves that pay: which are proposed, what they claim, and what they never do."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import move_costs
from tests.reference.invariants import check

import cranny
from cranny.core.constraints import Constraints
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan
from cranny.model.profile import ModelProfile
from cranny.policies.cranny.durations import worked_s
from cranny.policies.cranny.move_search import proposed_moves
from cranny.policies.cranny.moves import MoveGroup, MoveRules, actions, facts, restart_s
from cranny.policies.cranny.outlook import ExpectedRun, Outlook

QUIET = ModelProfile("quiet", grad_bytes=1.0, iteration_ms=100.0)
LOUD = ModelProfile("loud", grad_bytes=1e9, iteration_ms=100.0)
BOTH_LONG = {"a": (1, 1_000.0, (0,)), "b": (1, 2_000.0, (1,))}


def left_s(job: Job, ran_s: float) -> float:
    assert job.duration_s is not None
    return max(0.0, job.duration_s - ran_s)


ANY = MoveRules(lambda _: True, left_s)


def state_of(
    cluster: Cluster, jobs: Mapping[str, tuple[int, float, tuple[int, ...]]], model: ModelProfile = QUIET
) -> ClusterState:
    """Return a state with jobs of so many GPUs and seconds on these machines, as many GPUs on each as fit."""
    state = ClusterState(cluster)
    for name, (gpus, duration_s, machines) in jobs.items():
        ranks = [machines[at * len(machines) // gpus] for at in range(gpus)]
        state.place(Job(name, gpus, model, duration_s=duration_s), Placement(tuple(ranks)))
    return state


def row(machines: int, gpus: int, **given: float) -> Cluster:
    return Cluster.fat_tree(1, machines, gpus, **given)  # type: ignore[arg-type]


def where(groups: list[MoveGroup]) -> dict[str, tuple[int, ...]]:
    return {move.job_id: move.placement.machines for group in groups for move in group.moves}


def test_empties_a_machine() -> None:
    (group,) = proposed_moves(state_of(row(2, 4), BOTH_LONG).snapshot(), ANY)
    assert group.purpose == "empty"
    assert where([group]) == {"a": (1,)}  # the other way the machine would be in use longer
    assert group.emptied == (0,)
    assert group.gain == (0.0, 0.0, 4 * 1_000.0, 0.0)
    assert (group.cost_gpu_s, group.net_gpu_s) == (60.0, 3_940.0)


def test_says_what_that_saves_in_money() -> None:
    cluster = row(2, 4)
    told = facts(proposed_moves(state_of(cluster, BOTH_LONG).snapshot(), ANY), cluster, 3.0)
    assert told["emptied"] == [cluster.machines[0].name]
    assert told["saved_money_per_hour"] == 12.0
    assert told["saved_money"] == pytest.approx(4_000 / 3_600 * 3)
    assert told["groups"][0]["moves"] == [
        {"job": "a", "gpus": 1, "from": {"rack0-machine0": 1}, "to": {"rack0-machine1": 1}, "cost_gpu_s": 60.0}
    ]


@pytest.mark.parametrize(
    "rules",
    [
        replace(ANY, movable=lambda _: False),
        replace(ANY, most=0),
        replace(ANY, margin=100.0),
        replace(ANY, constraints_of=lambda name: Constraints(excluded=0b10 if name == "a" else 0b01)),
    ],
    ids=["no job allows it", "no moves wanted", "the margin is large", "excluded machines"],
)
def test_moves_nothing(rules: MoveRules) -> None:
    assert proposed_moves(state_of(row(2, 4), BOTH_LONG).snapshot(), rules) == []


def test_refuses_a_negative_margin() -> None:
    with pytest.raises(InputError, match="margin"):
        replace(ANY, margin=-1.0)


def test_moves_no_job_that_ends_soon() -> None:
    jobs = {"a": (1, 20.0, (0,)), "b": (1, 2_000.0, (1,))}
    assert proposed_moves(state_of(row(2, 4), jobs).snapshot(), ANY) == []


def test_moves_only_the_job_that_allows_it() -> None:
    groups = proposed_moves(
        state_of(row(2, 4), BOTH_LONG).snapshot(), replace(ANY, movable=lambda job: job.id == "b")
    )
    assert where(groups) == {"b": (0,)}


def test_jobs_leave_a_machine_together_or_not_at_all() -> None:
    jobs = {"a": (1, 1_000.0, (0,)), "b": (1, 1_000.0, (0,)), "c": (2, 5_000.0, (1,))}
    view = state_of(row(2, 4), jobs).snapshot()
    (group,) = proposed_moves(view, ANY)
    assert sorted(where([group])) == ["a", "b"]
    assert group.cost_gpu_s == 120.0
    assert proposed_moves(view, replace(ANY, movable=lambda job: job.id == "a")) == []


def test_leaves_a_machine_to_jobs_that_end_sooner() -> None:
    jobs = {"short": (2, 600.0, (0,)), "long": (2, 9_000.0, (0,)), "other": (2, 10_000.0, (1,))}
    rules = replace(ANY, movable=lambda job: job.id == "long")
    (group,) = proposed_moves(state_of(row(2, 4), jobs).snapshot(), rules)
    assert (group.purpose, group.emptied) == ("free", ())
    assert group.gain.machines_gpu_s == 4 * (9_000 - 600)


def test_brings_a_job_together() -> None:
    jobs = {"split": (4, 5_000.0, (0, 1)), "long": (2, 90_000.0, (2,))}
    view = state_of(row(3, 4), jobs, LOUD).snapshot()
    groups = proposed_moves(view, ANY)
    assert len(set(where(groups)["split"])) == 1
    assert sum(group.gain.own_gpu_s for group in groups) > 0


def test_leaves_links_that_others_use() -> None:
    jobs = {"a": (2, 50_000.0, (0, 1)), "b": (2, 50_000.0, (0, 1))}  # both use the same uplinks
    view = state_of(row(4, 2), jobs, LOUD).snapshot()
    (group,) = proposed_moves(view, replace(ANY, movable=lambda job: job.id == "a"))
    assert group.purpose == "gather"
    assert len(set(where([group])["a"])) == 1
    assert group.gain.others_gpu_s > 0


# Machines of 4 GPUs: a and b share machine 1, c has part of machine 4, and on machine 3 no job uses links.
CROWDED = {
    "a": (6, 50_000.0, (0, 0, 0, 0, 1, 1)),
    "b": (6, 90_000.0, (2, 2, 2, 2, 1, 1)),
    "small-1": (2, 95_000.0, (3,)),
    "small-2": (2, 95_000.0, (3,)),
    "c": (6, 80_000.0, (5, 5, 5, 5, 4, 4)),
}


def linked_jobs_on(view: Snapshot) -> Counter[int]:
    """Return how many jobs that are on several machines each machine has."""
    placements = [running.placement for running in view.running.values()]
    return Counter(machine for each in placements for machine in each.counts if len(each.counts) > 1)


def test_jobs_that_share_a_machine_move_apart_though_another_makes_room() -> None:
    state = state_of(row(6, 4), CROWDED, LOUD)
    view = state.snapshot()
    assert linked_jobs_on(view)[1] == 2
    (group,) = proposed_moves(view, ANY)
    assert group.purpose == "gather"
    assert where([group]) == {"small-1": (4, 4), "b": (2, 2, 2, 2, 3, 3)}
    assert group.gain.own_gpu_s > 0
    assert group.gain.others_gpu_s > 0
    state.commit(Plan(view.version, actions([group])))
    assert max(linked_jobs_on(state.snapshot()).values()) == 1


@pytest.mark.parametrize(
    ("rules", "moved"),
    [
        (replace(ANY, movable=lambda job: not job.id.startswith("small")), set()),
        (replace(ANY, movable=lambda job: job.id != "b"), {"small-1", "a"}),
        (replace(ANY, most=1), set()),
        (replace(ANY, kept=(3,)), set()),
        (replace(ANY, may_be_on=lambda name, *_: name not in "ab"), set()),
        (replace(ANY, constraints_of=lambda name: Constraints() if name in "ab" else None), set()),
    ],
    ids=["none makes room", "one stays", "one move", "a machine is kept", "promises", "constraints"],
)
def test_they_move_apart_only_as_far_as_they_may(rules: MoveRules, moved: set[str]) -> None:
    assert where(proposed_moves(state_of(row(6, 4), CROWDED, LOUD).snapshot(), rules)).keys() == moved


@pytest.mark.parametrize(("drained", "moved"), [(0, "b"), (2, "a"), (1, "b")])
def test_a_job_with_a_part_on_a_drained_machine_stays(drained: int, moved: str) -> None:
    """It could not go back there; from machine 1, which both share, either may go."""
    state = state_of(row(6, 4), CROWDED, LOUD)
    state.drain(drained)
    view = state.snapshot()
    groups = proposed_moves(view, ANY)
    assert where(groups).keys() == {"small-1", moved}
    state.commit(Plan(view.version, actions(groups)))


def test_a_job_leaves_all_machines_that_it_shares() -> None:
    """a shares one of its three machines with b and one with c; no other job on several machines may move."""
    jobs = {
        "a": (8, 90_000.0, (0, 0, 0, 0, 1, 1, 2, 2)),
        "b": (6, 90_000.0, (3, 3, 3, 3, 1, 1)),
        "c": (6, 90_000.0, (4, 4, 4, 4, 2, 2)),
        "d": (6, 90_000.0, (8, 8, 8, 8, 7, 7)),
        **{f"small-{at}": (2, 95_000.0, (machine,)) for at, machine in enumerate((5, 5, 6, 6))},
        "e": (6, 90_000.0, (10, 10, 10, 10, 9, 9)),
    }
    state = state_of(row(11, 4), jobs, LOUD)
    rules = replace(ANY, movable=lambda job: job.id[0] in "as")
    groups = proposed_moves(state.snapshot(), rules)
    assert set(where(groups)["a"]) == {0, 5, 6}


def test_a_part_of_a_job_stays_in_its_rack_if_it_can() -> None:
    """In rack 0 small-1 must make room; in rack 1 there is room."""
    cluster = Cluster.fat_tree(2, 6, 4)
    state = state_of(cluster, CROWDED, LOUD)
    state.place(Job("far", 2, duration_s=99_000.0), Placement((6, 6)))
    for machine in range(7, 12):
        state.place(Job(f"full-{machine}", 4, duration_s=99_000.0), Placement((machine,) * 4))
    moved = where(proposed_moves(state.snapshot(), ANY))
    assert set(moved["b"]) == {2, 3}


def waiting(view: Snapshot, *jobs: Job) -> Snapshot:
    return Snapshot(view._accounting, view.version, view.now_s, [Waiting(job) for job in jobs])


@pytest.mark.parametrize("gpus", [3, 4])
def test_makes_room_for_a_waiting_job(gpus: int) -> None:
    jobs = {"a": (2, 50_000.0, (0,)), "b": (2, 50_000.0, (1,))}
    state = state_of(row(2, 4), jobs, LOUD)
    new = Job("new", gpus, LOUD, duration_s=1_000.0)
    view = waiting(state.snapshot(), new)
    rules = replace(ANY, movable=lambda job: job.id == "b")
    (group,) = proposed_moves(view, rules)
    assert (group.purpose, group.starts, where([group])) == ("start", "new", {"b": (0, 0)})
    assert group.gain.waiting_gpu_s > 0
    assert group.emptied == ()  # the waiting job is there
    state.commit(Plan(view.version, actions([group])))
    state.place(new, Placement((1,) * gpus))


def test_no_room_for_a_job_behind_one_that_must_wait() -> None:
    jobs = {"a": (2, 50_000.0, (0,)), "b": (2, 50_000.0, (1,))}
    queue = (Job("large", 6, duration_s=1.0), Job("new", 4, duration_s=1_000.0))
    groups = proposed_moves(waiting(state_of(row(2, 4), jobs).snapshot(), *queue), ANY)
    assert [group.starts for group in groups] == [None]


def test_keeps_a_job_in_its_rack() -> None:
    cluster = Cluster.fat_tree(2, 2, 4)
    jobs = {"a": (2, 50_000.0, (0,)), "b": (2, 90_000.0, (2,))}
    rules = replace(ANY, constraints_of=lambda _: Constraints(excluded=0b1100, same_rack="required"))
    view = state_of(cluster, jobs).snapshot()
    assert set(where(proposed_moves(view, rules))) <= {"b"}  # b may come to rack 0, where a stays


@pytest.mark.parametrize(("restart_s", "moves"), [(0.0, 0), (60.0, 1)])
def test_the_policy_moves_jobs_that_state_their_restart(restart_s: float, moves: int) -> None:
    jobs = [Job(f"short-{number}", 3, QUIET, duration_s=10.0, restart_s=restart_s) for number in range(2)]
    long = [
        Job(f"long-{number}", 1, QUIET, submit_s=1.0, duration_s=40_000.0 + number, restart_s=restart_s)
        for number in range(2)
    ]
    found = cranny.simulate(row(2, 4), [*jobs, *long], "cranny", options={"wait": False}).summary
    assert found["moves"] == moves


# -- what always holds -----------------------------------------------------------------------------------


@st.composite
def busy_states(draw: st.DrawFn) -> ClusterState:
    racks, machines, gpus = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    cluster = Cluster.fat_tree(racks, machines, gpus, oversubscription=draw(st.sampled_from([1.0, 4.0])))
    state = ClusterState(cluster)
    for number in range(draw(st.integers(0, 7))):
        free = [machine for machine in range(len(cluster.machines)) for _ in range(int(state.free[machine]))]
        if not free:
            break
        ranks = draw(st.permutations(free))[: draw(st.integers(1, min(4, len(free))))]
        job = Job(
            f"job-{number}",
            len(ranks),
            draw(st.sampled_from([QUIET, LOUD])),
            duration_s=draw(st.sampled_from([0.0, 30.0, 600.0, 5_000.0, 5_000.5, 80_000.0])),
            restart_s=draw(st.sampled_from([0.0, 20.0, 900.0])),
        )
        state.place(job, Placement(tuple(ranks)))
    return state


def as_reference(view: Snapshot) -> dict[str, move_costs.Job]:
    return {
        job_id: move_costs.Job(running, left_s(running.job, worked_s(running, view.now_s)))
        for job_id, running in view.running.items()
    }


def after(view: Snapshot, group: MoveGroup) -> Snapshot:
    for move in group.moves:
        job = view.running[move.job_id].job
        view = view.without(move.job_id).after(move.placement, job)
    return view


@settings(max_examples=examples(150))
@given(busy_states(), st.sets(st.integers(0, 6)), st.sampled_from([0.0, 0.5, 2.0]))
def test_claims_what_the_reference_computes_and_leaves_no_single_move(
    state: ClusterState, stay: set[int], margin: float
) -> None:
    allowed: Callable[[Job], bool] = lambda job: int(job.id.removeprefix("job-")) not in stay  # noqa: E731
    rules = MoveRules(allowed, left_s, margin=margin)
    view = state.snapshot()
    groups = proposed_moves(view, rules)
    assert groups == proposed_moves(view, rules)
    jobs, at, moved = as_reference(view), view, set[str]()
    for group in groups:
        before = move_costs.cost(view.cluster, jobs)
        at = after(at, group)
        for move in group.moves:
            assert allowed(jobs[move.job_id].running.job)
            assert move.job_id not in moved
            moved.add(move.job_id)
            old = jobs[move.job_id]
            jobs[move.job_id] = move_costs.Job(at.running[move.job_id], old.left_s, restart_s(old.running.job))
        net = before - move_costs.cost(view.cluster, jobs)
        assert net == pytest.approx(group.net_gpu_s, rel=1e-6, abs=1e-3)
        assert group.gain.total_gpu_s > (1.0 + margin) * group.cost_gpu_s
        assert all(at.is_idle(machine) for machine in group.emptied)
    state.commit(Plan(view.version, actions(groups)))  # refuses two jobs on one GPU
    check(state)
    price = {job_id: restart_s(job.running.job) * job.running.job.gpus for job_id, job in jobs.items()}
    for job_id, _, saved in move_costs.moves_to_one_machine(
        at, jobs, lambda name: restart_s(jobs[name].running.job)
    ):
        if allowed(jobs[job_id].running.job) and job_id not in moved:
            assert saved <= margin * price[job_id] + 1e-3


@settings(max_examples=examples(100))
@given(busy_states(), st.sets(st.integers(0, 5)))
def test_no_job_moves_to_a_machine_that_takes_none(state: ClusterState, drained: set[int]) -> None:
    for machine in drained & set(range(len(state.cluster.machines))):
        state.drain(machine)
    view = state.snapshot()
    groups = proposed_moves(view, ANY)
    assert not any(drained & set(machines) for machines in where(groups).values())
    state.commit(Plan(view.version, actions(groups)))  # refuses two jobs on one GPU
    check(state)


@settings(max_examples=examples(60))
@given(busy_states(), st.lists(st.integers(1, 4), max_size=3), st.data())
def test_keeps_constraints_and_room_for_jobs_that_start(
    state: ClusterState, sizes: list[int], data: st.DataObject
) -> None:
    machines = len(state.snapshot().cluster.machines)
    excluded = {
        job_id: Constraints(
            data.draw(st.integers(0, 2**machines - 2)), data.draw(st.sampled_from([None, "required"]))
        )
        for job_id in [*state.running, *(f"new-{number}" for number in range(len(sizes)))]
    }
    queue = [Job(f"new-{number}", gpus, LOUD, duration_s=4_000.0) for number, gpus in enumerate(sizes)]
    view = waiting(state.snapshot(), *queue)
    groups = proposed_moves(view, replace(ANY, constraints_of=excluded.get))
    rack_of = view.cluster.rack_of
    for group in groups:
        assert group.net_gpu_s > 0
        for move in group.moves:
            used = set(move.placement.machines)
            assert not any(excluded[move.job_id].excluded >> machine & 1 for machine in used)
            if excluded[move.job_id].same_rack:
                assert len({rack_of[machine] for machine in used}) == 1
    state.commit(Plan(view.version, actions(groups)))
    check(state)
    now = state.snapshot()
    for job in queue:  # each that is to start has a machine for itself
        if job.id in [group.starts for group in groups]:
            allowed = [m for m in range(machines) if not excluded[job.id].excluded >> m & 1]
            machine = next(m for m in allowed if now.free_on(m) >= job.gpus)
            now = now.after(Placement((machine,) * job.gpus), job)


@settings(max_examples=examples(100))
@given(busy_states(), st.data(), st.sampled_from([0.0, 1_000.0, 1e9]))
def test_nothing_saves_more_than_it_would_alone_on_its_links(
    state: ClusterState, data: st.DataObject, tail_s: float
) -> None:
    view = state.snapshot()
    runs = {name: ExpectedRun(each, left_s(each.job, 0.0)) for name, each in view.running.items()}
    outlook = Outlook(view.cluster, runs, lambda _, seconds: seconds + 3.0 * max(0.0, seconds - tail_s))
    for _ in range(3):
        moved = data.draw(st.sets(st.sampled_from(sorted(runs)), max_size=3)) if runs else set[str]()
        tried, there = {}, view
        for name in sorted(moved):
            there = there.without(name)
        for name in sorted(moved):
            job = runs[name].running.job
            free = [machine for machine in range(len(state.free)) for _ in range(there.free_on(machine))]
            ranks = data.draw(st.permutations(free))[: job.gpus]
            placement = Placement(tuple(ranks))
            tried[name] = ExpectedRun(there.as_running(job, placement), runs[name].left_s, restart_s(job))
            there = there.after(placement, job)
        change = outlook.change(tried)
        most, saved = outlook.most_saved(tried), outlook.saved(change)
        assert saved <= most + 1e-9 * abs(most) + 1e-6
        outlook.apply(change)
        view = there
