"""Jobs that are stopped for others: how much they lose, and when they go on."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.cranny.test_what_must_hold import CLUSTER, jobs

from cranny.core.backfill import DEPTH
from cranny.core.engine import Engine
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.event import Cancelled, Submitted
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Plan, Start, Stop
from cranny.policies.cranny import Cranny
from cranny.policies.cranny.policy_moves import EVERY_S
from cranny.policies.cranny.preemption import MOST_LOST, Waiter, start_in_turn_s
from cranny.policies.cranny.promised_starts import PromisedStart
from cranny.policies.cranny.tail import CompletionTimes
from cranny.run import simulate
from cranny.sim.replay import Replay

FAR_S = 1e9  # no job ends so late
ONE_MACHINE = Cluster.fat_tree(1, 1, 8)
ON_TWO = Placement((0, 0))
FULL = [Job(f"long-{number}", 2, duration_s=1000.0, restart_s=60.0) for number in range(4)]


class Recorded(Cranny):
    """The policy, with what was not kept: promises, and how much jobs may lose by stops."""

    def __init__(self, move_every_s: float = EVERY_S) -> None:
        super().__init__(move_every_s=move_every_s)
        self.late: dict[str, tuple[float, float]] = {}  # promised and started
        self.too_much: dict[str, tuple[float, float]] = {}  # what may be lost, and what was
        self.stops = 0
        self.moves = 0
        self._promised_s: dict[str, float] = {}  # the first promise to a job, and after each stop
        self._chose: set[str] = set()
        self._stopped_s: dict[str, float] = {}
        self._lost_s: dict[str, float] = {}
        self._most_s: dict[str, float] = {}

    def plan(self, view: Snapshot) -> Plan:
        """Plan, and write down what is promised, stopped and started."""
        at = self._follow(view)
        runs_s = {job_id: each.length_s * each.slowdown for job_id, each in at._running.items()}
        plan = super().plan(view)
        for action in plan.actions:
            if isinstance(action, Stop):
                self.stops += 1
                self._stopped_s[action.job_id] = view.now_s
                self._chose.discard(action.job_id)
                most_s = max(self._most_s.get(action.job_id, 0.0), MOST_LOST * runs_s[action.job_id])
                self._most_s[action.job_id] = most_s
            elif isinstance(action, Move):
                self.moves += 1
            elif isinstance(action, Start):
                self._starts(action.job, view.now_s)
        starting = {action.job.id for action in plan.actions if isinstance(action, Start)}
        for promise in at.promises.in_order():
            if promise.job_id in starting:
                continue
            if promise.chosen:  # it could have started, so what it was promised before was kept
                self._chose.add(promise.job_id)
                self._promised_s.pop(promise.job_id, None)
                self._most_s[promise.job_id] = math.inf
            elif promise.job_id not in self._chose:
                self._promised_s.setdefault(promise.job_id, promise.start_s)
        return plan

    def _starts(self, job: Job, now_s: float) -> None:
        promised_s = self._promised_s.pop(job.id, math.inf)
        if now_s > promised_s + 1e-6:
            self.late[job.id] = promised_s, now_s
        if job.id in self._stopped_s:
            lost_s = self._lost_s.get(job.id, 0.0) + now_s - self._stopped_s.pop(job.id) + job.restart_s
            self._lost_s[job.id] = lost_s
            if lost_s > self._most_s[job.id] + 1e-6:
                self.too_much[job.id] = self._most_s[job.id], lost_s


@settings(max_examples=examples(150))
@given(came=jobs(most=30), tail_s=st.sampled_from([1.0, 1000.0, 10_000.0, math.inf]))
def test_no_job_starts_or_goes_on_later_than_promised_or_loses_more_than_it_may(
    came: list[Job], tail_s: float
) -> None:
    policy = Recorded()
    policy.completion_times = CompletionTimes(tail_s)
    Replay(CLUSTER, policy).run(came)
    assert not policy.late
    assert not policy.too_much


@pytest.mark.parametrize("seed", range(8))
def test_all_of_that_holds_for_many_jobs(seed: int) -> None:
    """Most worlds of few jobs need no stop."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.choice([0.0, 5.0, 120.0, 600.0], 64))
    gpus = rng.choice([1, 1, 2, 3, 4, 5, 8, 12, 20, 24], 64).tolist()
    lengths_s = rng.choice([1.0, 60.0, 600.0, 777.0, 3000.0, 7200.0], 64).tolist()
    came = [
        Job(f"job-{number}", count, "vgg16", submit_s=at_s, duration_s=length_s, restart_s=60.0)
        for number, (count, at_s, length_s) in enumerate(zip(gpus, submit_s.tolist(), lengths_s, strict=True))
    ]
    policy = Recorded()
    Replay(CLUSTER, policy).run(came)
    assert policy.stops > 10
    assert not policy.late
    assert not policy.too_much


def full(tail_s: float = FAR_S) -> tuple[Engine, Cranny]:
    """Return a machine that is full since 0 s, where it is known where the tail begins unless `tail_s` is inf."""
    policy = Cranny()
    policy.completion_times = CompletionTimes(tail_s)
    engine = Engine(ClusterState(ONE_MACHINE), policy)
    engine.handle_all([Submitted(job) for job in FULL], 0.0)
    return engine, policy


def most_s(policy: Cranny) -> float:
    """Return how much the first job may lose."""
    at = policy._at
    assert at is not None
    rules = at.stops._rules((), Engine(ClusterState(ONE_MACHINE), policy).state.snapshot(100.0))
    return rules.most_s(at._running["long-0"])


@pytest.mark.parametrize(
    ("tail_s", "expected_s"),
    [(math.inf, 4000.0), (3500.0, 2500.0), (2500.0, 1500.0), (1500.0, 1000.0), (500.0, 1000.0)],
)
def test_a_job_may_lose_as_long_as_it_runs_and_more_before_it_ends_in_the_tail(
    tail_s: float, expected_s: float
) -> None:
    assert most_s(full(tail_s)[1]) == expected_s


def test_a_job_may_not_end_too_late_for_a_start_that_was_promised() -> None:
    _, policy = full()
    assert policy._at is not None
    policy._at.promises.make(PromisedStart("other", 8, 1300.0))
    assert most_s(policy) == 300.0


def test_what_a_job_has_lost_counts_until_it_ends() -> None:
    engine, policy = full()
    done = engine.handle(Submitted(Job("short", 2, submit_s=100.0, duration_s=50.0)), 100.0)
    assert [each.job_id for each in done if isinstance(each, Stop)] == ["long-0"]
    assert policy.promised_starts() == {"long-0": 100.0 + 4000.0 - 60.0}
    done = engine.finish("short", 150.0)
    assert [each.job_id for each in done if isinstance(each, Start)] == ["long-0"]
    policy.follow(engine.state.snapshot(160.0))
    assert most_s(policy) == 4000.0 - 50.0 - 60.0


def test_a_stop_pays_less_if_the_job_runs_longer_where_it_is_placed() -> None:
    engine, policy = full()
    at = policy._at
    assert at is not None
    victim, view = at._running["long-0"], engine.state.snapshot(100.0)
    waiter = Waiter(Job("short", 2, submit_s=100.0), 50.0, 1000.0, 50.0)  # it would end at 1,050 s otherwise
    # It gains 900 s less what it runs longer; the other loses so long, and 60 s, of which seven in ten count.
    assert at.stops.pay(waiter.running_for(530.0), [victim], ON_TWO, view)
    assert not at.stops.pay(waiter.running_for(540.0), [victim], ON_TWO, view)


def test_what_a_job_with_a_long_restart_loses_counts_twice() -> None:
    """A waiting job gains 900 s, and the other one loses 50 s and its restart."""

    def stops(restart_s: float) -> bool:
        came = [replace(job, restart_s=restart_s) for job in FULL]
        policy = Cranny()
        policy.completion_times = CompletionTimes(FAR_S)
        engine = Engine(ClusterState(ONE_MACHINE), policy)
        engine.handle_all([Submitted(job) for job in came], 0.0)
        done = engine.handle(Submitted(Job("short", 2, submit_s=100.0, duration_s=50.0)), 100.0)
        return any(isinstance(each, Stop) for each in done)

    assert stops(150.0)
    assert stops(0.5 * 900.0 / 0.7 - 51.0)
    assert not stops(0.5 * 900.0 / 0.7 - 49.0)


def test_until_the_tail_is_known_a_job_that_would_end_last_loses_more() -> None:
    engine, policy = full(math.inf)
    at = policy._at
    assert at is not None
    victim, view = at._running["long-0"], engine.state.snapshot(100.0)
    waiter = Waiter(Job("short", 2, submit_s=100.0), 50.0, 1000.0, 50.0)
    # Every second that `long-0` ends after the others, at 1,000 s, counts four times.
    assert at.stops.pay(waiter.running_for(200.0), [victim], ON_TWO, view)
    assert not at.stops.pay(waiter.running_for(230.0), [victim], ON_TWO, view)
    longer = Waiting(Job("longer", 8, submit_s=100.0, duration_s=5000.0))
    assert at.stops.pay(waiter.running_for(500.0), [victim], ON_TWO, engine.state.snapshot(100.0, [longer]))


def test_no_job_is_stopped_for_one_whose_turn_comes_soon_behind_more_than_the_cluster_holds() -> None:
    """Five jobs of ten seconds share two GPUs one after the other: the last would gain less than 100 s."""
    long = Job("long", 6, duration_s=1000.0, restart_s=100.0)
    short = [Job(f"short-{number}", 2, submit_s=50.0, duration_s=10.0, restart_s=100.0) for number in range(6)]
    result = simulate(ONE_MACHINE, [long, *short], "cranny")
    assert result.summary["restarts"] == 0
    assert sorted(result.jobs["wait_s"].to_list()) == pytest.approx([0.0, 0.0, 10.0, 20.0, 30.0, 40.0, 50.0])


def test_jobs_start_in_turn_when_those_before_them_give_gpus_back() -> None:
    free_s = np.array([[0.0, 30.0], [100.0, math.inf]])
    assert start_in_turn_s(1, [], free_s, 20.0) == 20.0
    assert start_in_turn_s(2, [(1, 5.0)], free_s, 20.0) == 30.0  # the first of them is free again at 25 s
    assert start_in_turn_s(2, [(2, 5.0)], free_s, 20.0) == 35.0
    assert start_in_turn_s(1, [(4, 5.0), (3, 7.0)], free_s, 20.0) == 107.0  # one of four never starts
    assert start_in_turn_s(4, [], free_s, 20.0) == math.inf


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from([0.0, 3.0, 5.0, 40.0, math.inf]), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(1, 6), st.floats(1.0, 50.0)), max_size=6),
    st.integers(1, 6),
)
def test_they_start_as_if_each_took_the_gpus_that_are_free_first(
    free_s: list[float], before: list[tuple[int, float]], gpus: int
) -> None:
    """Against the same, GPU by GPU, over all GPUs."""
    left = sorted(free_s)
    usable = sum(map(math.isfinite, left))
    for each, seconds in before:
        if each <= usable:
            left = sorted([*left[each:], *[max(4.0, left[each - 1]) + seconds] * each])
    wanted = max(4.0, left[gpus - 1]) if gpus <= usable else math.inf
    assert start_in_turn_s(gpus, before, np.array(free_s), 4.0) == wanted


def test_what_is_known_of_cancelled_jobs_is_forgotten() -> None:
    engine, policy = full()
    engine.handle(Submitted(Job("short", 2, submit_s=100.0, duration_s=50.0)), 100.0)
    at = policy._at
    assert at is not None
    (victim,) = at.stops.left_s
    engine.handle(Cancelled(victim), 110.0)
    at.stops.keep(set())
    assert not any((at.stops.left_s, at.stops._lost_s, at.stops._since_s))


def test_they_are_forgotten_when_there_are_many() -> None:
    engine, policy = full()
    at = policy._at
    assert at is not None
    at.stops.left_s.update((f"gone-{number}", 1.0) for number in range(2 * DEPTH))
    engine.handle(Submitted(Job("waits", 8, submit_s=100.0, duration_s=5000.0)), 100.0)
    assert not at.stops.left_s


def test_a_job_that_needs_one_type_of_gpus_goes_on_though_only_others_are_idle() -> None:
    mixed = Cluster.of(
        Switch("core", (Machine("a", 4, "A"), Machine("b", 16, "B")), (100.0, 100.0)),
    )
    came = [
        Job("first", 4, gpu_type="A", duration_s=1000.0),
        Job("short", 1, gpu_type="A", submit_s=100.0, duration_s=100.0),
        *(Job(f"small-{n}", 1, gpu_type="A", submit_s=101.0 + 300.0 * n, duration_s=5000.0) for n in range(60)),
    ]
    policy = Recorded()
    Replay(mixed, policy).run(came)
    assert policy.stops
    assert not policy.late


def test_a_start_in_place_of_another_takes_no_free_gpus_that_were_promised() -> None:
    engine, policy = full()
    engine.finish("long-3", 50.0)
    at = policy._at
    assert at is not None
    policy.follow(engine.state.snapshot(100.0))
    at.promises.make(PromisedStart("other", 2, 150.0))
    waiter = Waiter(Job("wide", 4, submit_s=100.0), 100.0, 1000.0, 100.0)
    victim, view = at._running["long-0"], engine.state.snapshot(100.0)
    on_four = Placement((0, 0, 0, 0))
    assert not at.stops.pay(waiter, [victim], on_four, view)
    assert at.stops.pay(waiter.running_for(40.0), [victim], on_four, view)


def test_nor_does_it_delay_the_first_job_of_the_queue() -> None:
    came = [
        Job("first", 8, "resnet50", duration_s=1000.0, restart_s=900.0),
        Job("long", 2, submit_s=1.0, duration_s=20_000.0),
        Job("head", 10, "resnet50", submit_s=2.0, duration_s=3000.0),
        Job("short", 4, submit_s=1000.0, duration_s=400.0),  # it would take two GPUs that are free for the head
    ]
    policy = Recorded()
    Replay(Cluster.fat_tree(1, 3, 4), policy).run(came)
    assert not policy.late
