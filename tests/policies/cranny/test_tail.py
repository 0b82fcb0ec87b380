"""The tail of completion times: where it begins, what a second counts there, and which waiting jobs go first."""

import math
from copy import deepcopy

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.cranny.test_promises import Recorded
from tests.policies.cranny.test_what_must_hold import CLUSTER, Restless, Watched, jobs
from tests.service.scheduler_driver import SchedulerDriver

from cranny.core.engine import Engine
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import Cancelled, Submitted
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Start
from cranny.policies.cranny import Cranny
from cranny.policies.cranny.tail import EVERY, HALVED, PARTS, WEIGHT, CompletionTimes, Tail, TimesSeen, late_first
from cranny.run import simulate
from cranny.service.engines import JointByPriority
from cranny.traces.generate import generate_trace

seconds = st.floats(1.0, 1e7)


def with_tail(tail_s: float, gpus: int = 100) -> Tail:
    """Return the tail in a cluster of so many GPUs that begins at a certain time."""
    return Tail(CompletionTimes(tail_s), gpus)


@given(st.lists(seconds, min_size=1, max_size=300), st.floats(0.5, 0.99))
def test_quantiles_are_as_exact_as_the_parts_of_the_histogram(seen: list[float], share: float) -> None:
    times = TimesSeen(2)
    times.see(np.array([(1.0, each) for each in seen]))
    exact = float(np.quantile(seen, share, method="inverted_cdf"))
    after = float(np.quantile(seen, share, method="higher"))  # where the share falls between two
    assert exact * (1 - 1 / PARTS) <= times.quantiles((0.5, share))[1] <= after * (1 + 1 / PARTS)


@given(st.lists(st.integers(1, HALVED), min_size=1, max_size=9))
def test_it_does_not_matter_how_many_are_counted_at_once(counts: list[int]) -> None:
    seen = np.array([(number % 977 + 1.0, number) for number in range(sum(counts))])
    one, other = TimesSeen(2), TimesSeen(2)
    one.see(seen)
    for count in counts:
        other.see(seen[:count])
        seen = seen[count:]
    assert one.quantiles((0.9, 0.5)) == other.quantiles((0.9, 0.5))


def test_older_times_count_less() -> None:
    times = TimesSeen(1)
    times.see(np.full((3 * HALVED, 1), 10.0))
    times.see(np.full((3 * HALVED, 1), 1000.0))
    assert times.quantiles((0.2,)) == pytest.approx([1000.0], rel=1 / PARTS)


def test_the_tail_begins_at_a_part_of_the_longest_runs_once_enough_jobs_were_seen() -> None:
    times = CompletionTimes()
    for number in range(EVERY - 1):
        times.started(0.0, 100.0 if number else 10_000.0)
    assert times.tail_s == math.inf
    times.started(0.0, 100.0)
    assert times.tail_s == pytest.approx(7000.0, rel=1 / PARTS)


def test_the_tail_begins_later_where_one_job_in_twenty_takes_longer_anyway() -> None:
    times = CompletionTimes()
    for number in range(100 * EVERY):
        times.started(50_000.0 if number % 10 == 0 else 0.0, 100.0)
    assert times.tail_s == pytest.approx(50_100.0, rel=1 / PARTS)


def test_a_second_counts_more_from_where_the_tail_begins() -> None:
    tail = with_tail(1000.0)
    assert tail.counted_s(4, 500.0, 300.0) == 300.0
    assert tail.counted_s(4, 900.0, 300.0) == 100.0 + 200.0 * WEIGHT
    assert tail.counted_s(4, 2000.0, 300.0) == 300.0 * WEIGHT
    assert tail.counted_s(26, 2000.0, 300.0) == 300.0  # more than a quarter of the cluster


@given(st.lists(st.tuples(st.integers(1, 50), seconds, st.floats(0.0, 1e6)), min_size=1), seconds)
def test_many_jobs_count_as_each_does(lost: list[tuple[int, float, float]], tail_s: float) -> None:
    tail = with_tail(tail_s)
    together = tail.all_counted_s(*np.array(lost).T)
    assert together.tolist() == pytest.approx([tail.counted_s(*each) for each in lost])


queued = st.lists(st.tuples(st.integers(1, 50), seconds, seconds, seconds, st.integers(0, 2)), max_size=20)
Came = list[tuple[int, float, float, float, int]]


def enqueued(came: Came, tail: Tail) -> tuple[list[Waiting], dict[str, float]]:
    """Let jobs come to the queue, each with GPUs, submission, length, what its key is later, and priority."""
    found, keys = [], {}
    for number, (gpus, submit_s, left_s, later_s, priority) in enumerate(came):
        found.append(Waiting(Job(f"job-{number}", gpus, submit_s=submit_s, priority=float(priority))))
        keys[f"job-{number}"] = submit_s + later_s
        tail.enqueue(found[-1].job, left_s, submit_s + later_s)
    return found, keys


@given(queued, seconds, st.floats(0.0, 1e8))
def test_jobs_are_overdue_that_would_end_in_the_tail_before_their_turn(
    came: Came, tail_s: float, now_s: float
) -> None:
    tail = with_tail(tail_s)
    found, keys = enqueued(came, tail)
    by_s = {
        each.job.id: each.job.submit_s + max(0.0, tail_s - 2.0 * left_s)
        for each, (gpus, _, left_s, _, _) in zip(found, came, strict=True)
        if gpus <= 25
    }
    expected = [each for each in by_s if by_s[each] <= now_s and by_s[each] < keys[each]]
    overdue = tail.overdue(now_s, lambda _: 2.0)
    assert [job_id for _, job_id in overdue] == sorted(expected, key=by_s.__getitem__)
    for _, job_id in overdue:
        tail.dequeue(job_id)
    assert not tail.overdue(now_s, lambda _: 2.0)
    tail.keep({"job-0"})
    assert len(tail) <= 1
    assert {job_id for _, job_id in tail.overdue(math.inf, lambda _: 2.0)} <= {"job-0"}


@given(queued, seconds)
def test_no_job_is_passed_by_a_late_one_after_its_key_nor_by_one_of_lower_priority(
    came: Came, tail_s: float
) -> None:
    tail = with_tail(tail_s)
    found, keys = enqueued(came, tail)
    queue = sorted(found, key=lambda each: (-each.job.priority, keys[each.job.id]))
    late = [
        (by_s, found[int(job_id.removeprefix("job-"))]) for by_s, job_id in tail.overdue(math.inf, lambda _: 1.0)
    ]
    order = list(dict.fromkeys(late_first(queue, late, lambda each: keys[each.job.id])))
    assert sorted(order, key=queue.index) == queue  # each of them once
    by_s = {each.job.id: start_by_s for start_by_s, each in late}
    for place, each in enumerate(order):
        for passed in order[place + 1 :]:
            if queue.index(passed) < queue.index(each):
                assert by_s[each.job.id] < keys[passed.job.id]
                assert each.job.priority >= passed.job.priority


ONE_MACHINE = Cluster.fat_tree(1, 1, 8)


@pytest.mark.parametrize("tail", [True, False])
def test_a_job_that_would_end_in_the_tail_goes_before_shorter_ones(*, tail: bool) -> None:
    policy = Cranny(preempt=False, tail=tail)
    policy.completion_times = CompletionTimes(7000.0)
    engine = Engine(ClusterState(ONE_MACHINE), policy)
    engine.handle(Submitted(Job("all", 8, duration_s=1000.0)), 0.0)
    short = [Job(f"short-{number}", 2, submit_s=10.0, duration_s=900.0) for number in range(4)]
    engine.handle_all([Submitted(job) for job in short], 10.0)  # the first of these is promised a start
    engine.handle(Submitted(Job("long", 2, submit_s=20.0, duration_s=6500.0)), 20.0)
    started = [each.job_id for each in engine.finish("all", 1000.0) if isinstance(each, Start)]
    last = "long" if tail else "short-3"
    assert sorted(started) == sorted(["short-0", "short-1", "short-2", last])


@pytest.mark.parametrize("tail", [True, False])
def test_a_job_in_the_tail_is_stopped_only_if_others_gain_several_times_what_it_loses(*, tail: bool) -> None:
    policy = Cranny(tail=tail)
    policy.completion_times = CompletionTimes(7000.0)
    engine = Engine(ClusterState(ONE_MACHINE), policy)
    jobs_ = [Job(f"long-{number}", 2, duration_s=9000.0, restart_s=60.0) for number in range(4)]
    engine.handle_all([Submitted(job) for job in jobs_], 0.0)
    # It would start at 9,000 s otherwise, and gains 4,000 s, where another loses 2,060 s: they count as 8,240 s.
    done = engine.handle(Submitted(Job("short", 2, submit_s=5000.0, duration_s=2000.0)), 5000.0)
    assert ("short" in [each.job_id for each in done if isinstance(each, Start)]) is not tail


@settings(max_examples=examples(60))
@given(jobs(), st.sampled_from([1.0, 100.0, 1000.0, 10_000.0]))
def test_promises_are_kept_and_all_jobs_end_wherever_the_tail_begins(came: list[Job], tail_s: float) -> None:
    policy = Recorded(preempt=False)
    policy.completion_times = CompletionTimes(tail_s)
    replay = Watched(CLUSTER, policy)
    replay.run(came)
    assert not replay.engine.queue
    assert all(policy.started_s[each] <= start_s + 1e-6 for each, start_s in policy.promised_s.items())


def test_what_it_learns_does_not_depend_on_how_often_it_is_asked() -> None:
    trace = generate_trace("philly", 300, seed=2, load=0.9, gpus=CLUSTER.gpus)
    first, other = (simulate(CLUSTER, trace, policy) for policy in (Cranny(), Restless()))
    assert first.jobs.equals(other.jobs)


def test_it_decides_the_same_if_it_is_asked_while_no_job_waits_also_where_the_tail_is_learned() -> None:
    """The 32nd start, of the longest job, is learned before the next job is found to be late."""
    came = [Job(f"first-{number}", 8, submit_s=20.0 * number, duration_s=10.0) for number in range(EVERY - 1)]
    came += [
        Job("longest", 8, submit_s=620.0, duration_s=1000.0),
        Job("long", 2, submit_s=621.0, duration_s=900.0),
    ]
    came += [Job(f"short-{number}", 2, submit_s=621.0, duration_s=400.0) for number in range(8)]
    first, other = (simulate(ONE_MACHINE, came, policy).jobs for policy in (Cranny(), Restless()))
    assert first.equals(other)
    started = first.row(by_predicate=pl.col("job_id") == "long", named=True)["start_s"]
    assert started == pytest.approx(1620.0)


def test_a_service_starts_no_late_job_before_one_of_higher_priority() -> None:
    driver = SchedulerDriver(ONE_MACHINE, {"name": "cranny", "options": {"preempt": False}})
    policy = driver.scheduler.engine.policy
    assert isinstance(policy, JointByPriority)
    assert isinstance(policy.remembering, Cranny)
    policy.remembering.completion_times = CompletionTimes(7000.0)
    driver.submit(8, duration_s=1000.0)
    low = [driver.submit(2, duration_s=6500.0, priority=-5) for _ in range(4)]
    high = [driver.submit(2, duration_s=900.0, priority=5) for _ in range(4)]
    driver.run_until(1100.0)
    # The first of the low ones was promised a start when no other waited.
    assert [each for each in (*low, *high) if each in driver.first_start_s] == [low[0], *high[:3]]


def test_jobs_larger_than_the_cluster_are_no_error() -> None:
    came = [Job("first", 4, duration_s=10.0), Job("large", 32, submit_s=1.0, duration_s=100.0, least_gpus=2)]
    policy = Cranny()
    result = simulate(Cluster.fat_tree(2, 2, 4), came, policy)
    assert result.summary["jobs_done"] == 2
    engine = Engine(ClusterState(Cluster.fat_tree(1, 2, 4)), policy)
    engine.handle(Submitted(Job("first", 4, duration_s=10.0)), 0.0)
    assert policy._at is not None
    assert policy._at.placing.slowdown_alone(Job("large", 32, "vgg16")) == 1.0


def test_jobs_of_others_teach_nothing_and_neither_does_a_what_if() -> None:
    policy, state = Cranny(), ClusterState(ONE_MACHINE)
    engine = Engine(state, policy)
    engine.handle(Submitted(Job("own", 1, duration_s=100.0)), 0.0)
    state.hold(Job("other", 1, duration_s=86_400.0), 0, 1.0)
    engine.handle(Submitted(Job("own-2", 1, submit_s=2.0, duration_s=100.0)), 2.0)
    trial = deepcopy(policy)
    trial.plan(state.snapshot(3.0, [Waiting(Job("tried", 1, submit_s=3.0, duration_s=50.0))]))
    policy.follow(state.snapshot(4.0))
    assert policy.completion_times._new == [100.0, 100.0, 100.0, 100.0]


def test_a_job_that_comes_to_the_queue_twice_is_late_once() -> None:
    tail, job = with_tail(1000.0), Job("twice", 1)
    tail.enqueue(job, 900.0, 5000.0)
    tail.enqueue(job, 800.0, 5000.0)  # before anything was asked
    assert tail.overdue(math.inf, lambda _: 1.0) == [(200.0, "twice")]
    tail.dequeue("twice")
    assert not tail.overdue(math.inf, lambda _: 1.0)


def test_cancelled_jobs_are_forgotten() -> None:
    policy = Cranny()
    engine = Engine(ClusterState(ONE_MACHINE), policy)
    engine.handle(Submitted(Job("elastic", 8, duration_s=1e6, least_gpus=8, most_gpus=8)), 0.0)
    for number in range(1000):
        engine.handle(Submitted(Job(f"job-{number}", 8, submit_s=1.0, duration_s=1e6)), 1.0)
        engine.handle(Cancelled(f"job-{number}"), 1.0)
    assert policy._at is not None
    assert len(policy._at.tail) < 300


def test_what_jobs_in_the_tail_lose_by_communication_counts_more() -> None:
    cluster = Cluster.fat_tree(2, 4, 4, oversubscription=8)
    prices = []
    for tail_s in (math.inf, 10.0):
        policy = Cranny(preempt=False)
        policy.completion_times = CompletionTimes(tail_s)
        state = ClusterState(cluster)
        state.place(Job("runs", 4, "vgg16", duration_s=1000.0), Placement((0, 0, 4, 4)))
        for machine in (1, 2, 3, 5, 6):
            state.place(Job(f"on-{machine}", 4, duration_s=1000.0), Placement((machine,) * 4))
        state.place(Job("on-7", 2, duration_s=1000.0), Placement((7, 7)))
        # It fits only across both racks, as the job that runs.
        placed = policy.place(Job("new", 6, "vgg16", submit_s=5.0, duration_s=1000.0), state.snapshot(5.0))
        assert placed is not None
        price = placed.facts["price"]
        assert isinstance(price, dict)
        prices.append(price["terms_gpu_s"])
    usual, tail = prices
    assert usual["own"] > 0.0
    assert usual["others"] > 0.0
    assert tail["own"] == pytest.approx(WEIGHT * usual["own"])
    assert tail["others"] == pytest.approx(WEIGHT * usual["others"])


@given(st.lists(st.tuples(seconds, seconds), min_size=2 * EVERY, max_size=4 * EVERY), st.integers(1, EVERY))
def test_it_knows_the_same_however_often_it_is_asked(came: list[tuple[float, float]], every: int) -> None:
    one, other = CompletionTimes(), CompletionTimes()
    for number, (waited_s, run_s) in enumerate(came, start=1):
        one.started(waited_s, run_s)
        other.started(waited_s, run_s)
        assert one.tail_s >= 0.0  # it is asked
        if number % every == 0:
            assert one.tail_s == other.tail_s
