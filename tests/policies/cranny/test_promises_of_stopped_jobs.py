"""Promises hold where jobs were stopped: these restart, and may go on where they are slower."""

import itertools
import math

import numpy as np
import pytest
from tests.policies.cranny.test_stops import ONE_MACHINE, Recorded, full
from tests.policies.cranny.test_what_must_hold import CLUSTER

from cranny.core.constraints import Constraints
from cranny.core.engine import Engine
from cranny.core.protocol import JobRules
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.core.traffic import communication, isolated
from cranny.model.cluster import Cluster
from cranny.model.event import MachineDrained, Submitted
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Start
from cranny.policies.cranny import Cranny, logged_promises
from cranny.policies.cranny.promised_starts import PromisedStart, PromisedStarts
from cranny.sim.replay import Replay

BARELY_S = 1e-9


def drawn(rng: np.random.Generator, count: int, sizes: list[int]) -> list[Job]:
    """Return jobs of some sizes whose restarts differ."""
    submit_s = np.cumsum(rng.choice([0.0, 5.0, 120.0, 600.0], count)).tolist()
    return [
        Job(
            f"job-{number}",
            int(rng.choice(sizes)),
            "resnet50",
            submit_s=at_s,
            duration_s=float(rng.choice([1.0, 60.0, 600.0, 3000.0, 7200.0])),
            restart_s=float(rng.choice([0.0, 60.0, 600.0])),
        )
        for number, at_s in enumerate(submit_s)
    ]


@pytest.mark.parametrize("seed", [3, 5, 6, 19, 26, 46, 60, 74, 109, 132, 137, 138])
def test_no_job_of_many_starts_later_than_promised_or_loses_more_than_it_may(seed: int) -> None:
    """Each of these seeds once had a late start in some form of the policy."""
    policy = Recorded()
    Replay(CLUSTER, policy).run(drawn(np.random.default_rng(seed), 120, [1, 1, 2, 3, 4, 5, 8, 12, 20, 24]))
    assert policy.stops > 10
    assert not policy.late
    assert not policy.too_much


@pytest.mark.parametrize("seed", [2, 16, 18, 43, 56, 61, 71, 102, 108, 128, 131, 136, 149])
def test_so_it_is_with_constraints(seed: int) -> None:
    rng = np.random.default_rng(seed)
    came = drawn(rng, 40, [1, 1, 2, 3, 4, 5, 8, 12, 20])
    constraints = {}
    for job in came:
        share = rng.random()
        if share < 0.2:
            excluded = int(rng.integers(0, 2 ** len(CLUSTER.machines) - 1))
            constraints[job.id] = Constraints(excluded=excluded)
        elif share < 0.35:
            constraints[job.id] = Constraints(same_rack="required")
        elif share < 0.45 and job.gpus > 1:
            constraints[job.id] = Constraints(spread=2)
    policy = Recorded().with_rules(JobRules(constraints_of=constraints.get))
    assert isinstance(policy, Recorded)
    Replay(CLUSTER, policy).run(came)
    assert policy.stops
    assert not policy.late


@pytest.mark.parametrize(("restart_s", "starts"), [(0.0, True), (60.0, False)])
def test_a_job_that_goes_on_starts_only_if_it_has_ended_by_a_promised_start_with_its_restart(
    restart_s: float, *, starts: bool
) -> None:
    state = ClusterState(Cluster.fat_tree(1, 1, 4))
    state.place(Job("runs", 3, duration_s=100.0), Placement((0, 0, 0)))
    head = Waiting(Job("head", 4, duration_s=10.0))
    again = Waiting(Job("again", 1, duration_s=140.0, restart_s=restart_s), 50.0)  # 90 s are left
    policy = Cranny(preempt=False, lookahead=False)
    for each in (head, again):
        policy.key(each)
    actions = policy.plan(state.snapshot(0.0, [head, again])).actions
    assert policy.promised_starts() == {"head": 100.0}
    assert [each.job.id for each in actions if isinstance(each, Start)] == (["again"] if starts else [])


def test_so_is_what_others_are_expected_to_wait_for_it() -> None:
    """Behind a job of 90 s that restarts in 60 s the next one starts 150 s after the GPUs are free."""
    state = ClusterState(Cluster.fat_tree(1, 1, 4))
    state.place(Job("runs", 4, duration_s=100.0), Placement((0, 0, 0, 0)))
    ahead = Waiting(Job("ahead", 4, duration_s=140.0, restart_s=60.0), 200.0)
    policy, waits = Cranny(), Waiting(Job("waits", 1, duration_s=10.0))
    view = state.snapshot(0.0, [ahead, waits])
    expected = policy._follow(view).expected
    assert expected.runs_s(ahead) == 150.0
    assert expected.waiter(waits, view, [ahead]).start_s == 250.0
    assert expected.waiter(ahead, view, []).runs_s == 150.0


def test_a_start_is_due_when_the_last_job_before_it_ends_a_moment_too_early() -> None:
    promises = PromisedStarts(lambda: np.full((1, 8), -math.inf))
    promises.make(PromisedStart("first", 4, 100.0))
    assert not promises.is_due("first", 99.0)
    assert promises.is_due("first", 100.0 - BARELY_S)
    assert promises.allow("other", 1, 99.0, 300.0)
    assert not promises.allow("other", 1, 100.0 - BARELY_S, 300.0)


def test_a_job_is_promised_no_later_start_until_its_own_has_passed() -> None:
    engine, policy = full()
    at, waits = policy._at, Waiting(Job("waits", 8, duration_s=10.0))
    assert at is not None
    at.promises.make(PromisedStart("waits", 8, 500.0))
    for now_s, promised_s in ((100.0, 500.0), (500.0, 1000.0)):  # all jobs end at 1,000 s
        at.promise_start(waits, engine.state.snapshot(now_s))
        assert at.promises.by_job["waits"].start_s == promised_s
    engine.finish("long-0", 600.0)
    at.promises.make(PromisedStart("waits", 2, 900.0))
    policy.follow(engine.state.snapshot(600.0))
    at.promise_start(Waiting(Job("waits", 2, duration_s=10.0)), engine.state.snapshot(600.0))
    assert at.promises.by_job["waits"].start_s == 600.0


def test_a_due_start_needs_not_leave_machines_to_jobs_that_chose_to_wait_for_them() -> None:
    promises = PromisedStarts(lambda: np.full((2, 4), -math.inf))
    promises.make(PromisedStart("bound", 1, 80.0, (1,), (1,), constrained=True))
    promises.make(PromisedStart("chose", 4, 90.0, (0,), chosen=True))
    promises.make(PromisedStart("due", 4, 50.0))
    assert promises.kept_from("due", 40.0, 200.0) == {1: 3, 0: 0}
    assert promises.kept_from("due", 50.0, 200.0) == {1: 3}
    assert promises.kept_from("other", 50.0, 200.0) == {1: 3, 0: 0}


def test_gpus_of_a_stopped_job_make_up_only_for_those_that_the_same_promise_could_have() -> None:
    promises = PromisedStarts(lambda: np.full((2, 4), -math.inf))
    promises.make(PromisedStart("typed", 2, 100.0, eligible=0b01))  # two more are left on the first machine

    def allowed(starts: tuple[int, ...], stopped: tuple[int, ...], end_s: float = 300.0) -> bool:
        return promises.allow_in_place("new", [Placement(starts)], [Placement(stopped)], 0.0, end_s)

    assert allowed((0, 0), (1, 1, 1))
    assert not allowed((0, 0, 0), (1, 1, 1))
    assert allowed((0, 0, 0), (0, 1, 1))
    assert allowed((1, 1, 1), (1, 1, 1))
    assert allowed((0, 0, 0), (1, 1, 1), end_s=100.0)


def test_a_job_may_lose_less_if_it_might_go_on_where_it_is_slower() -> None:
    """It runs on one machine, and may find room only on several."""
    cluster = Cluster.fat_tree(2, 2, 4)
    policy = Cranny()
    state = ClusterState(cluster)
    job = Job("stopped", 4, "vgg16", duration_s=1000.0)
    state.place(job, Placement((0, 0, 0, 0)))
    view = state.snapshot(0.0)
    at = policy._follow(view)
    at.promises.make(PromisedStart("other", 16, 3000.0))
    rules = at.stops._rules((), view)
    held = [
        tuple(each for each in enumerate(counts) if each[1])
        for counts in itertools.product(range(5), repeat=4)
        if sum(counts) == job.gpus
    ]
    on_each = [at.placing.on(job, each, view).machines for each in held]
    apart = max(isolated(job, communication(cluster, job, ranks)) for ranks in on_each)
    assert at.placing.slowdown_apart(job) == pytest.approx(apart)
    assert rules.most_s(at._running["stopped"]) == pytest.approx(3000.0 - 1000.0 * apart)


def test_of_a_machine_promised_to_a_job_that_needs_one_gpu_of_it_others_may_have_the_rest() -> None:
    state = ClusterState(Cluster.fat_tree(1, 2, 4))
    state.place(Job("runs", 1, duration_s=100.0), Placement((0,)))
    state.place(Job("beside", 4, duration_s=9000.0), Placement((1, 1, 1, 1)))
    policy = Cranny(preempt=False, lookahead=False).with_rules(
        JobRules(constraints_of={"bound": Constraints(excluded=0b10)}.get)
    )
    bound, fits = Waiting(Job("bound", 4, duration_s=10.0)), Waiting(Job("fits", 1, duration_s=5000.0))
    policy.key(bound)
    policy.plan(state.snapshot(0.0, [bound]))
    promises = policy._follow(state.snapshot(0.0, [bound])).promises
    assert promises.kept_from("fits", 0.0, 5000.0) == {0: 0}
    promises.make(promises.by_job["bound"]._replace(gpus=3, gpus_on=(3,)))
    assert promises.kept_from("fits", 0.0, 5000.0) == {0: 1}
    (start,) = policy.plan(state.snapshot(0.0, [fits])).actions
    assert isinstance(start, Start)
    assert start.placement.machines == (0,)


def test_a_job_with_so_many_gpus_of_each_machine_takes_none_of_what_is_kept_of_one() -> None:
    """Of the first machine two GPUs are left, and it needs three of each: only the others will do."""
    state = ClusterState(Cluster.fat_tree(2, 2, 8))
    for machine, gpus, length_s in ((0, 5, 100.0), (1, 5, 9000.0), (3, 8, 9000.0)):
        state.place(Job(f"runs-{machine}", gpus, duration_s=length_s), Placement((machine,) * gpus))
    constraints = {"bound": Constraints(excluded=0b1110), "even": Constraints(per_machine=3)}
    policy = Cranny(preempt=False, wait=False).with_rules(JobRules(constraints_of=constraints.get))
    queue = [Waiting(Job("bound", 6, duration_s=10.0)), Waiting(Job("even", 6, duration_s=5000.0))]
    for each in queue:
        policy.key(each)
    (start,) = policy.plan(state.snapshot(0.0, queue)).actions
    assert isinstance(start, Start)
    assert set(start.placement.machines) == {1, 2}
    promises = policy._follow(state.snapshot(0.0, queue)).promises
    assert promises.kept_from("even", 0.0, 5000.0) == {0: 2}


def test_a_constrained_job_is_promised_others_when_one_of_its_machines_takes_no_jobs() -> None:
    rules = JobRules(constraints_of={"head": Constraints(same_rack="required")}.get)
    policy = Cranny(preempt=False, lookahead=False).with_rules(rules)
    engine = Engine(ClusterState(Cluster.fat_tree(1, 4, 4)), policy)
    runs = [Job("soon", 4, duration_s=10_000.0), Job("late", 4, duration_s=100_000.0)]
    engine.handle_all([Submitted(job) for job in runs], 0.0)
    engine.handle(Submitted(Job("head", 12, submit_s=1.0, duration_s=5000.0)), 1.0)
    assert policy.promised_starts() == {"head": 10_000.0}
    held = {machine for running in engine.state.running.values() for machine in running.held}
    engine.handle(MachineDrained(min({0, 1, 2, 3} - held)), 2.0)
    assert policy.promised_starts() == {"head": 100_000.0}


def test_the_log_says_how_many_gpus_of_each_machine_are_promised() -> None:
    cluster = Cluster.fat_tree(1, 2, 4)
    at = Cranny()._follow(ClusterState(cluster).snapshot(0.0))
    bound = PromisedStart("bound", 3, 50.0, (0, 1), (1, 2), constrained=True)
    at.promises.make(bound)
    logged = logged_promises.written(at)
    assert logged_promises.read(logged, cluster).promises == (bound,)
    del logged["bound"]["gpus_on"]  # as older versions wrote it
    assert logged_promises.read(logged, cluster).promises == (bound._replace(gpus_on=()),)


def test_a_constrained_job_is_promised_no_start_that_delays_others_as_it_communicates() -> None:
    """It starts at 100 s and would have ended by 1,000 s, but it may get two machines."""

    def promised(length_s: float) -> set[str]:
        state = ClusterState(Cluster.fat_tree(2, 2, 4))
        for number in range(4):
            job = Job(f"runs-{number}", 3, duration_s=1000.0 if number > 1 else 100.0)
            state.place(job, Placement((number,) * 3))
        rules = JobRules(constraints_of={"bound": Constraints(excluded=0b1100)}.get)
        policy = Cranny(preempt=False, lookahead=False, wait=False).with_rules(rules)
        queue = [Waiting(Job("head", 16, duration_s=10.0)), Waiting(Job("bound", 4, "vgg16", duration_s=length_s))]
        for each in queue:
            policy.key(each)
        policy.plan(state.snapshot(0.0, queue))
        return set(policy.promised_starts())

    assert promised(200.0) == {"head", "bound"}
    assert promised(880.0) == {"head"}


def test_a_job_on_one_gpu_is_as_fast_wherever_it_goes_on() -> None:
    policy = Cranny()
    at = policy._follow(ClusterState(ONE_MACHINE).snapshot(0.0))
    assert at.placing.slowdown_apart(Job("one", 1, "vgg16", duration_s=1.0)) == 1.0
