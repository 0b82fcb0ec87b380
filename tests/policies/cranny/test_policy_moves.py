"""Moves that the policy makes by itself: of which jobs, when, and what they leave to waiting jobs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.cranny.test_move_search import ANY, BOTH_LONG, row, state_of, where
from tests.policies.cranny.test_promises_hold import machines
from tests.policies.cranny.test_stops import Recorded
from tests.policies.cranny.test_what_must_hold import CLUSTER, MODELS, jobs

import cranny
from cranny.core.accounting import Running
from cranny.core.constraints import Constraints
from cranny.core.protocol import JobRules, Policy
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Plan
from cranny.policies.cranny import Cranny, periodic_moves
from cranny.policies.cranny.durations import worked_s
from cranny.policies.cranny.move_search import proposed_moves
from cranny.policies.cranny.moves import MoveGroup, MoveRules
from cranny.policies.cranny.periodic_moves import PeriodicMoves
from cranny.policies.cranny.promised_starts import PromisedStart, PromisedStarts
from cranny.policies.cranny.tail import WEIGHT, CompletionTimes
from cranny.sim.record import DONE
from cranny.sim.replay import Replay

TWO_MACHINES = Cluster.fat_tree(1, 2, 4)
TYPED = machines(*"AABABB")


def moves(came: list[Job], cluster: Cluster = TWO_MACHINES, **options: float) -> int:
    policy = Recorded(**options)
    result = Replay(cluster, policy).run(came)
    assert not policy.late
    assert set(result.jobs["status"].to_list()) == {DONE}
    return policy.moves


def left_alone(restart_s: float) -> list[Job]:
    """Return jobs of which two are left on a machine each, once those have ended that filled these."""
    short = [Job(f"short-{n}", 3, duration_s=5_000.0) for n in range(2)]
    long = [Job(f"long-{n}", 1, duration_s=100_000.0, restart_s=restart_s) for n in range(2)]
    return [short[0], long[0], short[1], long[1]]


@pytest.mark.parametrize(
    ("restart_s", "move_every_s", "made"),
    [
        (60.0, 3_600.0, 1),
        (60.0, 0.0, 0),
        (0.0, 3_600.0, 0),
    ],
)
def test_every_hour_jobs_move_that_state_their_restart(restart_s: float, move_every_s: float, made: int) -> None:
    assert moves(left_alone(restart_s), move_every_s=move_every_s) == made


def test_by_default_they_do() -> None:
    assert cranny.simulate(TWO_MACHINES, left_alone(60.0), "cranny").summary["moves"] == 1


def after_an_hour(policy: Policy, *waiting: Job) -> Plan:
    """Return what a policy does that finds two jobs on a machine each, and is asked again an hour later."""
    state = ClusterState(TWO_MACHINES)
    for number, duration_s in enumerate((100_000.0, 200_000.0)):
        job = Job(f"on-{number}", 1, duration_s=duration_s, restart_s=60.0)
        state.place(job, Placement((number,)))
    queue = [Waiting(job) for job in waiting]
    for each in queue:
        policy.key(each)
    assert not policy.plan(state.snapshot(0.0, queue)).actions
    return policy.plan(state.snapshot(3_600.0, queue))


def moved(plan: Plan) -> dict[str, tuple[int, ...]]:
    return {action.job_id: action.placement.machines for action in plan.actions if isinstance(action, Move)}


def test_a_policy_that_finds_jobs_running_moves_them_too() -> None:
    assert moved(after_an_hour(Cranny())) == {"on-0": (1,)}


@pytest.mark.parametrize(("may_stop", "made"), [({"on-1"}, {"on-1": (0,)}), (set(), {})])
def test_no_job_moves_that_does_not_allow_it(may_stop: set[str], made: dict[str, tuple[int, ...]]) -> None:
    rules = JobRules(may_stop=may_stop.__contains__)
    assert moved(after_an_hour(Cranny().with_rules(rules))) == made


def test_nor_any_to_machines_that_are_kept_for_a_waiting_job() -> None:
    only_second = {"waiting": Constraints(excluded=0b01)}
    waiting = Job("waiting", 4, duration_s=1_000.0)
    rules = JobRules(only_second.get)
    assert moved(after_an_hour(Cranny(preempt=False).with_rules(rules), waiting)) == {}
    assert moved(after_an_hour(Cranny(preempt=False).with_rules(rules))) == {"on-0": (1,)}


def test_seconds_in_the_tail_count_for_moves_as_for_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompletionTimes, "tail_s", 150_000.0)
    given: list[MoveRules] = []

    def proposed(_: Snapshot, rules: MoveRules) -> list[MoveGroup]:
        given.append(rules)
        return []

    monkeypatch.setattr(periodic_moves, "proposed_moves", proposed)
    after_an_hour(Cranny())
    (rules,) = given
    job = Job("of-two", 2, submit_s=600.0)
    assert rules.counted_s(job, 100_000.0) == 100_000.0
    assert rules.counted_s(job, 150_000.0) == 147_000.0 + 3_000.0 * WEIGHT  # 3,000 s after it was submitted


@pytest.mark.parametrize("given", [1e-9, 0.99])
def test_moves_are_not_looked_for_all_the_time(given: float) -> None:
    with pytest.raises(InputError, match=r"cranny: move_every_s must be 0 or at least 1 s, not"):
        Cranny(move_every_s=given)


@pytest.mark.parametrize(("began_s", "due_s"), [(0.0, 3_600.0), (5_000.0, 7_200.0), (7_200.0, 10_800.0)])
def test_they_are_due_at_the_full_hour(began_s: float, due_s: float) -> None:
    state, periodic = state_of(row(2, 4), BOTH_LONG), PeriodicMoves(3_600.0)
    rules = replace(ANY, left_s=lambda job, _: job.duration_s or 0.0)
    assert periodic.next_s(began_s) == due_s
    assert not periodic.at(state.snapshot(began_s), lambda: rules)
    assert periodic.next_s(began_s) == due_s
    assert periodic.at(state.snapshot(due_s), lambda: rules)
    assert periodic.next_s(due_s) == due_s + 3_600.0


@pytest.mark.parametrize(("now_s", "left_s"), [(450.0, 150.0), (500.0, 100.0), (700.0, 0.0)])
def test_a_job_runs_on_until_its_time_limit_at_most(now_s: float, left_s: float) -> None:
    state = ClusterState(TWO_MACHINES)
    state.place(Job("limited", 1, restart_s=60.0), Placement((0,)))
    policy = Cranny().with_rules(JobRules(limit_s_of=lambda _: 600.0))
    assert isinstance(policy, Cranny)
    policy.plan(state.snapshot(now_s))
    assert policy._follow(state.snapshot(now_s)).running_left_s(state.running["limited"], now_s) == left_s


def mixed(seed: int, cluster: Cluster) -> list[Job]:
    """Return jobs that fill a cluster for long, of its types of GPUs if it has several."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.choice([0.0, 5.0, 120.0, 600.0], 40)).tolist()
    return [
        Job(
            f"job-{number}",
            int(rng.choice([1, 1, 2, 3, 4, 5, 8, 12])),
            str(rng.choice(MODELS)),
            gpu_type=str(rng.choice(["A", "B"])) if cluster is TYPED else None,
            submit_s=at_s,
            duration_s=float(rng.choice([60.0, 600.0, 3000.0, 7200.0, 9000.0])),
            restart_s=float(rng.choice([0.0, 5.0, 60.0])),
        )
        for number, at_s in enumerate(submit_s)
    ]


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32 - 1), st.sampled_from([CLUSTER, TYPED]), st.sampled_from([300.0, 3_600.0]))
@example(568, CLUSTER, 300.0)  # others are promised more GPUs than there are
@example(600, CLUSTER, 0.0)
def test_no_job_starts_later_than_promised_though_others_move(seed: int, cluster: Cluster, every_s: float) -> None:
    moves(mixed(seed, cluster), cluster, move_every_s=every_s)


@settings(max_examples=examples(40))
@given(jobs(most=30), st.sampled_from([300.0, 3_600.0]))
def test_nor_do_jobs_lose_more_than_they_may(came: list[Job], every_s: float) -> None:
    policy = Recorded(every_s)
    Replay(CLUSTER, policy).run(came)
    assert not policy.late
    assert not policy.too_much


@pytest.mark.parametrize("cluster", [CLUSTER, TYPED], ids=["one type", "two types"])
def test_such_worlds_have_moves(cluster: Cluster) -> None:
    assert sum(moves(mixed(seed, cluster), cluster, move_every_s=300.0) for seed in range(4)) >= 4


HELD = Placement((0, 0))
TO_SECOND = Placement((1, 1))


@pytest.mark.parametrize(
    ("eligible", "old_end_s", "end_s", "allowed"),
    [
        (0b11, 50.0, 99.0, True),  # it still ends before
        (0b11, 50.0, 101.0, False),  # but for its move it would have ended before
        (0b11, 150.0, 210.0, True),  # it holds as many of those GPUs as without its move
        (0b01, 150.0, 210.0, True),  # and here even fewer
        (0b10, 150.0, 160.0, False),  # the job cannot use the GPUs that it leaves
        (0b10, 150.0, 100.0, True),
    ],
)
def test_a_move_leaves_waiting_jobs_what_they_were_promised(
    eligible: int, old_end_s: float, end_s: float, allowed: object
) -> None:
    promises = PromisedStarts(lambda: np.zeros((2, 4)))
    promises.make(PromisedStart("waiting", 4, 100.0, eligible=eligible))
    assert promises.allow_move(HELD, old_end_s, TO_SECOND, end_s) is allowed


def test_no_job_moves_to_machines_that_are_kept() -> None:
    view = state_of(row(2, 4), BOTH_LONG).snapshot()
    assert where(proposed_moves(view, ANY)) == {"a": (1,)}
    assert where(proposed_moves(view, replace(ANY, kept=[1]))) == {"b": (0,)}


@pytest.mark.parametrize(("until_s", "moved"), [(1_059.0, {}), (1_060.0, {"a": (1,)})])
def test_nor_where_it_may_not_be_for_so_long(until_s: float, moved: dict[str, tuple[int, ...]]) -> None:
    rules = replace(ANY, may_be_on=lambda *given: given[2] <= until_s)
    assert where(proposed_moves(state_of(row(2, 4), BOTH_LONG).snapshot(), rules)) == moved


def test_a_restart_is_no_work() -> None:
    state = ClusterState(TWO_MACHINES)
    job = Job("again", 2, duration_s=1_000.0, restart_s=60.0)
    state.place(job, Placement((0, 0)))
    first: Running = state.running["again"]
    assert worked_s(first, 100.0) == 100.0
    again = first._replace(started_s=100.0, attained_gpu_s=200.0)
    assert [worked_s(again, now_s) for now_s in (100.0, 150.0, 160.0, 170.0)] == [100.0, 100.0, 100.0, 110.0]
