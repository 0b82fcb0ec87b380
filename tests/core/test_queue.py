import heapq
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.accounting import attained_gpu_s
from cranny.core.backfill import remaining_s, reservation
from cranny.core.engine import Engine
from cranny.core.queue import ORDERS, QueuePolicy, las_level
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.event import Cancelled, Finished, Submitted
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Start, Stop
from cranny.model.profile import ModelProfile
from cranny.policies.best_fit import BestFit

UNIT = ModelProfile(name="unit", grad_bytes=1e9, iteration_ms=100)


def engine(order: str, machines: int = 1, gpus: int = 4) -> Engine:
    return Engine(ClusterState(Cluster.single_rack(machines, gpus)), QueuePolicy(BestFit(), order))


def submit(to: Engine, name: str, gpus: int, now_s: float = 0.0, duration_s: float | None = None) -> list[str]:
    """Submit a job; return what happens as +started and -stopped."""
    job = Job(id=name, gpus=gpus, submit_s=now_s, duration_s=duration_s)
    return told(to.handle(Submitted(job), now_s))


def finish(to: Engine, name: str, now_s: float = 0.0) -> list[str]:
    return told(to.handle(Finished(name), now_s))


def told(actions: Sequence[Action]) -> list[str]:
    return [f"+{action.job.id}" if isinstance(action, Start) else f"-{action.job_id}" for action in actions]


def waiting(to: Engine) -> list[str]:
    return [entry.job.id for entry in to.queue]


def test_fifo_lets_the_first_hold_up_the_others() -> None:
    fifo = engine("fifo")
    assert submit(fifo, "a", 3) == ["+a"]
    assert submit(fifo, "b", 4, 1) == []
    assert submit(fifo, "c", 1, 2) == []  # would fit, but stands behind b
    assert fifo.why_wait("c", 2) == "behind job 'b', which is first in the queue"
    assert fifo.why_wait("b", 2) == "needs 4 GPUs, 1 free"
    assert finish(fifo, "a", 3) == ["+b"]
    assert finish(fifo, "b", 4) == ["+c"]


def test_fifo_goes_by_submission_and_then_by_arrival() -> None:
    fifo = engine("fifo")
    submit(fifo, "a", 4)
    submit(fifo, "late", 1, 9)
    submit(fifo, "first", 1, 5)
    submit(fifo, "second", 1, 5)
    assert waiting(fifo) == ["first", "second", "late"]


def test_sjf_starts_the_shortest_first_and_the_unknown_last() -> None:
    sjf = engine("sjf")
    submit(sjf, "a", 4, duration_s=100)
    submit(sjf, "unknown", 2, 1)
    submit(sjf, "long", 2, 2, duration_s=50)
    submit(sjf, "short", 2, 3, duration_s=5)
    assert waiting(sjf) == ["short", "long", "unknown"]
    assert finish(sjf, "a", 9) == ["+short", "+long"]


def test_a_job_found_not_to_fit_is_tried_again_when_anything_changes() -> None:
    fifo = engine("fifo")
    submit(fifo, "a", 3)
    submit(fifo, "b", 2, 1)
    assert fifo.handle(Cancelled("b"), 2) == []
    # A new job of the same name is another job, though the cluster is as it was.
    assert submit(fifo, "b", 1, 3) == ["+b"]


def test_srtf_stops_the_longest_for_a_shorter_job() -> None:
    srtf = engine("srtf")
    submit(srtf, "long", 2, 0, duration_s=100)
    submit(srtf, "longer", 2, 0, duration_s=200)
    assert submit(srtf, "short", 1, 10, duration_s=50) == ["-longer", "+short"]
    assert submit(srtf, "unknown", 1, 20) == ["+unknown"]  # passes `longer`, which does not fit
    assert waiting(srtf) == ["longer"]
    assert finish(srtf, "short", 60) == ["-unknown", "+longer"]


def test_srtf_goes_by_the_time_that_remains() -> None:
    srtf = engine("srtf")
    submit(srtf, "a", 4, 0, duration_s=100)
    assert submit(srtf, "b", 4, 60, duration_s=50) == []  # 40 s remain
    assert submit(srtf, "c", 4, 60, duration_s=39) == ["-a", "+c"]
    assert waiting(srtf) == ["a", "b"]


def test_srtf_stops_only_what_does_not_fit_beside_the_shorter_job() -> None:
    srtf = engine("srtf")
    submit(srtf, "large", 3, 0, duration_s=100)
    submit(srtf, "small", 1, 0, duration_s=200)
    assert submit(srtf, "short", 2, 10, duration_s=50) == ["-large", "+short"]  # `small` goes on beside it
    assert sorted(srtf.state.running) == ["short", "small"]


class OneMachine(BestFit):
    """Best fit that spreads no job."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        placement = super().place(job, view)
        return placement if placement is not None and len(placement.counts) == 1 else None


def test_srtf_stops_no_job_for_one_that_finds_no_place_all_the_same() -> None:
    srtf = Engine(ClusterState(Cluster.single_rack(2, 4)), QueuePolicy(OneMachine(), "srtf"))
    submit(srtf, "a", 2, 0, duration_s=90)
    submit(srtf, "b", 4, 0, duration_s=80)
    submit(srtf, "c", 2, 0, duration_s=20)
    submit(srtf, "wide", 4, 1, duration_s=30)  # on the machine of `b`
    assert sorted(srtf.state.running) == ["a", "c", "wide"]
    assert (
        submit(srtf, "wider", 6, 2, duration_s=1) == []
    )  # by count it would be first, but no machine has as many
    assert sorted(srtf.state.running) == ["a", "c", "wide"]


def test_las_may_stop_jobs_when_another_ends() -> None:
    las = engine("las")
    submit(las, "old", 2, 0)
    submit(las, "new", 2, 1_000)
    assert submit(las, "large", 3, 1_700) == []  # `old` has had 3,400 GPU-seconds
    assert finish(las, "new", 1_900) == ["-old", "+large"]


def test_las_stops_a_job_that_has_had_more() -> None:
    las = engine("las")
    assert submit(las, "old", 4, 0) == ["+old"]
    assert submit(las, "early", 2, 100) == []  # 400 GPU-seconds: still the same level
    assert las.why_wait("early", 100) == "needs 2 GPUs, 0 free"
    assert submit(las, "later", 2, 1000) == ["-old", "+early", "+later"]
    assert waiting(las) == ["old"]
    assert las.queue[0].attained_gpu_s == 4000


def test_las_remembers_the_service_a_job_has_had() -> None:
    las = engine("las")
    submit(las, "old", 4, 0)
    submit(las, "new", 4, 1000)
    assert finish(las, "new", 1500) == ["+old"]
    running = las.state.find("old")
    assert running.attained_gpu_s == 4000
    assert attained_gpu_s(running, 1600) == 4400
    assert submit(las, "next", 4, 1600) == ["-old", "+next"]
    assert las.queue[0].attained_gpu_s == 4400


def test_las_tries_again_when_a_running_job_has_had_enough() -> None:
    las = engine("las", gpus=8)
    submit(las, "old", 8, 0)
    assert submit(las, "new", 8, 100) == []
    assert submit(las, "other", 1, 449) == []  # 3592 GPU-seconds
    assert submit(las, "another", 1, 450) == ["-old", "+new"]


def test_las_stops_no_job_in_vain() -> None:
    las = engine("las")
    submit(las, "old", 2, 0)
    submit(las, "fresh", 2, 9_999)
    assert submit(las, "big", 4, 10_000) == []  # stopping old alone would not make room
    assert sorted(las.state.running) == ["fresh", "old"]


def test_las_stops_those_first_that_have_had_most() -> None:
    las = engine("las")
    submit(las, "most", 3, 0)
    submit(las, "much", 1, 0)
    assert submit(las, "new", 1, 40_000) == ["-most", "+new"]


def test_levels_part_short_jobs_from_long_ones() -> None:
    assert [las_level(attained) for attained in (0, 3599, 3600, 35_999, 36_000, 1e9)] == [0, 0, 1, 1, 2, 2]


def test_las_never_stops_a_job_of_the_lowest_priority_for_another() -> None:
    las = engine("las")
    submit(las, "a", 4, 0)
    submit(las, "b", 4, 50_000)
    submit(las, "c", 4, 100_000)
    # a and b have both had all that counts, so neither gives way to the other.
    assert finish(las, "c", 100_001) == ["+a"]
    assert las.handle(Submitted(Job(id="d", gpus=1, submit_s=9e5)), 9e5)[0] == Stop("a", "preempted by job 'd'")
    assert waiting(las) == ["a", "b"]  # within a level, by submission


def test_backfill_lets_a_short_job_pass_that_ends_in_time() -> None:
    backfill = engine("backfill")
    submit(backfill, "a", 3, 0, duration_s=100)
    assert submit(backfill, "first", 4, 1, duration_s=10) == []
    assert submit(backfill, "long", 1, 2, duration_s=99) == []
    assert submit(backfill, "unknown", 1, 3) == []
    assert submit(backfill, "short", 1, 4, duration_s=96) == ["+short"]
    assert waiting(backfill) == ["first", "long", "unknown"]


def test_backfill_lets_a_long_job_pass_that_leaves_enough_gpus() -> None:
    backfill = engine("backfill", gpus=8)
    submit(backfill, "a", 6, 0, duration_s=100)
    submit(backfill, "first", 7, 1, duration_s=10)
    assert submit(backfill, "two", 2, 2, duration_s=1000) == []
    assert submit(backfill, "one", 1, 3, duration_s=1000) == ["+one"]
    assert submit(backfill, "more", 1, 4, duration_s=1000) == []  # the one to spare is gone


def test_backfill_waits_when_it_is_unknown_when_gpus_come_free() -> None:
    backfill = engine("backfill")
    submit(backfill, "a", 3, 0)
    submit(backfill, "first", 4, 1, duration_s=10)
    assert submit(backfill, "short", 1, 2, duration_s=1) == []


def test_backfill_counts_the_time_a_job_spends_communicating() -> None:
    state = ClusterState(Cluster.single_rack(3, 2, link_gbps=10))
    state.place(Job(id="a", gpus=2, duration_s=100.0), Placement((0, 0)))
    state.place(Job(id="hole", gpus=1, duration_s=100.0), Placement((1,)))
    state.place(Job(id="hole2", gpus=1, duration_s=100.0), Placement((2,)))
    first = Waiting(Job(id="first", gpus=6, submit_s=0.0))
    # Alone on a machine it would end in time, but only two machines have room: 100 ms become 900.
    pair = Waiting(Job(id="pair", gpus=2, model=UNIT, duration_s=50.0))
    lone = Waiting(Job(id="lone", gpus=1, model=UNIT, duration_s=50.0))
    queued = QueuePolicy(BestFit(), "backfill")
    assert queued.plan(state.snapshot(0.0, (first, pair))).actions == ()
    assert told(queued.plan(state.snapshot(0.0, (first, pair, lone))).actions) == ["+lone"]
    assert remaining_s(pair.job, 0.0, 9.0) == pytest.approx(450)
    assert remaining_s(pair.job, 20.0, 1.0) == pytest.approx(40)


class Greedy:
    """A placer that holds a spare GPU beside each job."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        return Placement((0,) * job.gpus, spare=(0,)) if view.free_on(0) > job.gpus else None

    def why_wait(self, job: Job, view: Snapshot) -> str:
        return f"{job.id} wants a spare GPU, {view.free_on(0)} free"


def test_backfill_counts_spare_gpus() -> None:
    greedy = Engine(ClusterState(Cluster.single_rack(1, 8)), QueuePolicy(Greedy(), "backfill"))
    submit(greedy, "a", 4, 0, duration_s=100)
    view = greedy.state.snapshot()
    assert reservation(Job(id="x", gpus=7), view) is not None
    submit(greedy, "first", 7, 1, duration_s=10)
    assert submit(greedy, "one", 1, 2, duration_s=1000) == []  # it would hold two, and one is to spare


def test_a_reservation_counts_only_gpus_that_the_job_may_have() -> None:
    machines = (Machine("a", 4, "t4"), Machine("b", 4, "h200"), Machine("c", 4, "h200"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    state.place(Job(id="old", gpus=4, duration_s=10.0), Placement((0,) * 4))
    state.place(Job(id="new", gpus=4, duration_s=50.0), Placement((1,) * 4))
    state.place(Job(id="newer", gpus=4, duration_s=90.0), Placement((2,) * 4))
    want = Job(id="x", gpus=3, gpu_type="h200")
    found = reservation(want, state.snapshot())
    assert found is not None
    assert (found.start_s, found.extra_gpus) == (50.0, 1)
    state.drain(1)
    found = reservation(want, state.snapshot())
    assert found is not None
    assert found.start_s == 90.0
    state.drain(2)
    assert reservation(want, state.snapshot()) is None


def two_types() -> ClusterState:
    """A machine of old GPUs and one of new ones, four each."""
    machines = (Machine("old", 4, "t4"), Machine("new", 4, "h200"))
    return ClusterState(Cluster.of(Switch("rack", machines, (100.0, 100.0))))


def backfilled(state: ClusterState, *jobs: Job) -> list[str]:
    """Return what backfill starts when these jobs wait."""
    return told(
        QueuePolicy(BestFit(), "backfill").plan(state.snapshot(0.0, [Waiting(job) for job in jobs])).actions
    )


def test_a_reservation_counts_only_gpus_that_the_job_has_a_speed_on() -> None:
    state = two_types()
    state.place(Job(id="old", gpus=4, duration_s=10.0), Placement((0,) * 4))
    state.place(Job(id="new", gpus=4, duration_s=50.0), Placement((1,) * 4))
    found = reservation(Job(id="x", gpus=3, speeds={"h200": 1.0}), state.snapshot())
    assert found is not None
    assert (found.start_s, found.extra_gpus) == (50.0, 1)
    assert reservation(Job(id="x", gpus=3, speeds={"v100": 1.0}), state.snapshot()) is None


def test_backfill_lets_a_job_pass_that_ends_before_gpus_come_free_that_can_run_the_first() -> None:
    state = two_types()
    state.place(Job(id="old", gpus=3, duration_s=10.0), Placement((0,) * 3))
    state.place(Job(id="new", gpus=3, duration_s=50.0), Placement((1,) * 3))
    first = Job(id="first", gpus=4, speeds={"h200": 1.0})
    later = Job(id="later", gpus=1, gpu_type="h200", duration_s=40.0)
    longer = Job(id="longer", gpus=1, gpu_type="h200", duration_s=60.0)
    assert backfilled(state, first, longer) == []
    assert backfilled(state, first, later) == ["+later"]


def test_backfill_lets_a_job_pass_on_gpus_that_cannot_run_the_first() -> None:
    state = two_types()
    state.place(Job(id="new", gpus=2, duration_s=50.0), Placement((1,) * 2))
    for types in ({"gpu_type": "h200"}, {"speeds": {"h200": 1.0}}):
        first = Job(id="first", gpus=4, **types)
        assert backfilled(state, first, Job(id="old", gpus=3, gpu_type="t4", duration_s=900.0)) == ["+old"]
        assert backfilled(state, first, Job(id="both", gpus=5, duration_s=900.0)) == []  # one on the first's
        assert backfilled(state, first, Job(id="both", gpus=5, duration_s=40.0)) == ["+both"]
        assert backfilled(state, first, Job(id="new", gpus=2, gpu_type="h200", duration_s=900.0)) == []
    three = Job(id="first", gpus=3, speeds={"h200": 1.0})  # leaves one
    assert backfilled(state, three, Job(id="both", gpus=5, duration_s=900.0)) == ["+both"]


def test_backfill_knows_how_fast_gpus_train_a_job() -> None:
    state = two_types()
    state.place(Job(id="a", gpus=3, duration_s=60.0), Placement((0,) * 3))
    state.place(Job(id="b", gpus=4, duration_s=60.0), Placement((1,) * 4))
    first = Job(id="first", gpus=8)
    assert backfilled(state, first, Job(id="x", gpus=1, speeds={"t4": 0.5}, duration_s=50.0)) == []  # takes 100 s
    assert backfilled(state, first, Job(id="x", gpus=1, speeds={"t4": 2.0}, duration_s=100.0)) == ["+x"]
    two_speeds = Job(id="x", gpus=1, speeds={"t4": 0.5, "h200": 2.0}, duration_s=50.0)
    assert backfilled(state, first, two_speeds) == []  # it would be in time on the other machine


def test_a_reservation_knows_how_fast_gpus_train_the_running_jobs() -> None:
    state = two_types()
    state.place(Job(id="a", gpus=4, duration_s=60.0, speeds={"t4": 0.5}), Placement((0,) * 4))
    found = reservation(Job(id="x", gpus=8), state.snapshot())
    assert found is not None
    assert found.start_s == pytest.approx(120.0)


def test_an_unknown_order_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown queue order 'filo'; did you mean 'fifo'\?"):
        QueuePolicy(BestFit(), "filo")
    assert set(ORDERS) == {"fifo", "sjf", "srtf", "las", "priority", "backfill", "conservative", "knapsack"}


def test_an_empty_queue_needs_no_plan() -> None:
    state = ClusterState(Cluster.single_rack(1, 1))
    for order in ORDERS:
        assert QueuePolicy(BestFit(), order).plan(state.snapshot()).actions == ()


Submission = tuple[int, float, float]  # GPUs, seconds after the last, duration


def keep_promises(backfill: Engine, jobs: Sequence[Job]) -> None:
    """Run jobs until all have ended; none may start later than was foreseen when it was first in the queue."""
    by_id = {job.id: job for job in jobs}
    events = [(job.submit_s, 0, job.id) for job in jobs]
    heapq.heapify(events)
    promised_s: dict[str, float] = {}
    while events:
        now_s, kind, name = heapq.heappop(events)
        event = Finished(name) if kind else Submitted(by_id[name])
        for action in backfill.handle(event, now_s):
            assert isinstance(action, Start)
            name = action.job.id
            assert now_s <= promised_s.get(name, now_s) + 1e-9
            running = backfill.state.running[name]
            slowdown = isolated(running.job, running.communication) * running.stretch
            heapq.heappush(events, (now_s + (action.job.duration_s or 0.0) * slowdown, 1, name))
        if backfill.queue:
            first = backfill.queue[0].job
            promise = reservation(first, backfill.state.snapshot(now_s))
            assert promise is not None
            promised_s[first.id] = min(promise.start_s, promised_s.get(first.id, promise.start_s))
    assert not backfill.queue


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 20), st.floats(0.5, 60)), min_size=1, max_size=25))
def test_backfill_never_delays_the_first(submissions: list[Submission]) -> None:
    arrivals = accumulate(gap_s for _, gap_s, _ in submissions)
    keep_promises(
        engine("backfill", gpus=8),
        [
            Job(id=str(number), gpus=gpus, submit_s=now_s, duration_s=duration_s)
            for number, ((gpus, _, duration_s), now_s) in enumerate(zip(submissions, arrivals, strict=True))
        ],
    )


SPEEDS: list[dict[str, float] | None] = [None, {"t4": 0.5}, {"h200": 2.0}, {"t4": 0.5, "h200": 1.0}]


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.floats(0, 20), st.floats(0.5, 60), st.sampled_from(SPEEDS)),
        min_size=1,
        max_size=25,
    )
)
def test_backfill_never_delays_the_first_whatever_types_jobs_can_run_on(
    submissions: list[tuple[int, float, float, dict[str, float] | None]],
) -> None:
    arrivals = accumulate(gap_s for _, gap_s, _, _ in submissions)
    keep_promises(
        Engine(two_types(), QueuePolicy(BestFit(), "backfill")),
        [
            Job(id=str(number), gpus=gpus, submit_s=now_s, duration_s=duration_s, speeds=speeds)
            for number, ((gpus, _, duration_s, speeds), now_s) in enumerate(
                zip(submissions, arrivals, strict=True)
            )
        ],
    )
