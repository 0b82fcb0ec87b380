import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check

from cranny.core.engine import Engine, Queue
from cranny.core.queue import ORDERS, QueuePolicy
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError, InputError, PlacementError
from cranny.model.event import (
    Cancelled,
    Event,
    Finished,
    MachineDrained,
    MachineFailed,
    MachineRepaired,
    Submitted,
)
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Plan, Start, Stop
from cranny.policies.best_fit import BestFit


@pytest.fixture
def engine(state: ClusterState) -> Engine:
    """First come, first served on two racks with two machines of four GPUs each."""
    return Engine(state, QueuePolicy(BestFit()))


def job(name: str, gpus: int, submit_s: float = 0.0) -> Job:
    return Job(id=name, gpus=gpus, submit_s=submit_s)


def test_a_job_that_fits_starts_at_once(engine: Engine) -> None:
    (start,) = engine.handle(Submitted(job("a", 4)), 5.0)
    assert isinstance(start, Start)
    assert start.job.id == "a"
    assert engine.state.find("a").started_s == 5.0
    assert not engine.queue


def test_jobs_start_as_others_finish(engine: Engine) -> None:
    engine.handle(Submitted(job("a", 16)), 0.0)
    for name in ("b", "c"):
        assert engine.handle(Submitted(job(name, 8)), 1.0) == []
    started = engine.handle(Finished("a"), 2.0)
    assert [action.job.id for action in started if isinstance(action, Start)] == ["b", "c"]
    assert engine.handle(Finished("b"), 3.0) in ([], ())


def test_a_waiting_job_can_be_cancelled(engine: Engine) -> None:
    engine.handle(Submitted(job("a", 12)), 0.0)
    engine.handle(Submitted(job("b", 16)), 1.0)
    engine.handle(Submitted(job("c", 4)), 2.0)
    (start,) = engine.handle(Cancelled("b"), 3.0)  # c no longer stands behind b
    assert isinstance(start, Start)
    assert start.job.id == "c"


def test_a_running_job_can_be_cancelled(engine: Engine) -> None:
    engine.handle(Submitted(job("a", 16)), 0.0)
    engine.handle(Submitted(job("b", 16)), 1.0)
    stop, start = engine.handle(Cancelled("a"), 2.0)
    assert stop == Stop("a", "cancelled")
    assert isinstance(start, Start)
    assert "a" not in engine.state
    assert not engine.queue.has("a")


def test_a_failure_sends_jobs_back_to_the_queue_with_their_service(engine: Engine) -> None:
    engine.handle(Submitted(job("a", 4, 0.0)), 0.0)
    engine.handle(Submitted(job("b", 12, 1.0)), 1.0)
    engine.handle(Submitted(job("c", 4, 2.0)), 2.0)
    on_a = engine.state.find("a").placement.machines[0]
    actions = engine.handle(MachineFailed(on_a), 10.0)
    assert list(actions) == [Stop("a", f"machine {on_a} failed", sudden=True)]
    assert [entry.job.id for entry in engine.queue] == ["a", "c"]  # a was submitted first
    assert engine.queue.find("a").attained_gpu_s == 40.0
    (start,) = engine.handle(MachineRepaired(on_a), 20.0)
    assert isinstance(start, Start)
    assert (start.job.id, start.attained_gpu_s) == ("a", 40.0)


def test_a_failure_lets_the_lost_job_start_elsewhere(engine: Engine) -> None:
    engine.handle(Submitted(job("a", 4)), 0.0)
    on_a = engine.state.find("a").placement.machines[0]
    stop, start = engine.handle(MachineFailed(on_a), 10.0)
    assert isinstance(stop, Stop)
    assert isinstance(start, Start)
    assert on_a not in start.placement.machines


def test_a_drained_machine_gets_no_new_jobs(engine: Engine) -> None:
    engine.handle(Submitted(job("a", 1)), 0.0)
    on_a = engine.state.find("a").placement.machines[0]
    assert engine.handle(MachineDrained(on_a), 1.0) == []
    (start,) = engine.handle(Submitted(job("b", 1)), 2.0)
    assert isinstance(start, Start)
    assert on_a not in start.placement.machines
    assert "a" in engine.state


@pytest.mark.parametrize("gpus", [1, 16])
def test_refuses_a_job_id_that_is_taken(engine: Engine, gpus: int) -> None:
    engine.handle(Submitted(job("busy", 15)), 0.0)
    engine.handle(Submitted(job("a", gpus)), 0.0)
    with pytest.raises(InputError, match="job id 'a' is already taken"):
        engine.handle(Submitted(job("a", 1)), 1.0)


def test_refuses_events_of_jobs_it_does_not_know(engine: Engine) -> None:
    with pytest.raises(PlacementError, match="job 'a' is not running"):
        engine.handle(Finished("a"), 0.0)
    with pytest.raises(PlacementError, match="job 'a' is not running"):
        engine.handle(Cancelled("a"), 0.0)
    with pytest.raises(PlacementError, match="there is no machine 7"):
        engine.handle(MachineFailed(7), 0.0)
    with pytest.raises(InputError, match="job 'a' is not waiting"):
        engine.why_wait("a", 0.0)


def test_says_why_a_job_waits(engine: Engine) -> None:
    engine.handle(Submitted(job("a", 12)), 0.0)
    engine.handle(Submitted(job("b", 5)), 0.0)
    assert engine.why_wait("b", 0.0) == "needs 5 GPUs, 4 free"


class Swap:
    """A policy that stops, moves and starts in one plan, once."""

    def key(self, waiting: Waiting) -> float:
        return waiting.job.submit_s

    def plan(self, view: Snapshot) -> Plan:
        if not view.waiting:
            return Plan(view.version)
        first = view.waiting[0].job
        if not view.running:
            return Plan(view.version, (Start(first, Placement((0,) * first.gpus)),))
        if first.id == "c" and "b" in view.running:
            moved, started = Move("b", Placement((2,))), Start(first, Placement((1,)))
            return Plan(view.version, (Stop("a", "gives way"), moved, started))
        if first.id == "b":
            return Plan(view.version, (Start(first, Placement((1,))),))
        return Plan(view.version)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        return f"{job.id} waits, {len(view.running)} run"


def test_a_policy_may_stop_move_and_start_in_one_plan(state: ClusterState) -> None:
    engine = Engine(state, Swap())
    engine.handle(Submitted(job("a", 2)), 0.0)
    engine.handle(Submitted(job("b", 1)), 1.0)
    stop, move, start = engine.handle(Submitted(job("c", 1)), 5.0)
    assert isinstance(stop, Stop)
    assert isinstance(move, Move)
    assert isinstance(start, Start)
    assert state.free.tolist() == [4, 3, 3, 4]
    assert [entry.job.id for entry in engine.queue] == ["a"]
    assert engine.queue[0].attained_gpu_s == 10.0
    assert engine.why_wait("a", 5.0) == "a waits, 2 run"


class Wavering:
    """A policy that starts `a`, and then, asked again at the same time, stops it for `b`."""

    def key(self, waiting: Waiting) -> str:
        return waiting.job.id

    def plan(self, view: Snapshot) -> Plan:
        if not view.running:
            return Plan(view.version, (Start(view.waiting[0].job, Placement((0,))),))
        if "a" in view.running and len(view.waiting) > 0:
            return Plan(
                view.version, (Stop("a", "on second thoughts"), Start(view.waiting[0].job, Placement((0,))))
            )
        return Plan(view.version)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        return f"{job.id} waits, {len(view.running)} run"


def test_a_job_that_is_started_and_stopped_at_once_never_ran(state: ClusterState) -> None:
    engine = Engine(state, Wavering())
    started = engine.handle_all([Submitted(job("a", 1)), Submitted(job("b", 1))], 1.0)
    assert [(type(action), action.job.id) for action in started if isinstance(action, Start)] == [(Start, "b")]
    assert len(started) == 1
    assert [entry.job.id for entry in engine.queue] == ["a"]
    assert "b" in state


def test_events_of_one_instant_are_all_in_before_the_policy_is_asked(engine: Engine) -> None:
    engine.handle(Submitted(job("a", 8)), 0.0)
    engine.handle(Submitted(job("b", 8)), 0.0)
    engine.handle(Submitted(job("c", 12, 1.0)), 1.0)
    on_b = engine.state.find("b").placement.machines[0]
    stop, start = engine.handle_all([Finished("a"), MachineFailed(on_b), Submitted(job("d", 1, 2.0))], 2.0)
    assert stop == Stop("b", f"machine {on_b} failed", sudden=True)
    assert isinstance(start, Start)
    assert start.job.id == "b"  # before c, for it was submitted first


def test_a_queue_is_a_sequence_in_the_policys_order() -> None:
    queue = Queue(QueuePolicy(BestFit(), "sjf"))
    for name, duration_s in (("a", 5.0), ("b", 1.0)):
        queue.add(Waiting(Job(id=name, gpus=1, duration_s=duration_s)))
    queue.fill(Waiting(Job(id=name, gpus=1, duration_s=s)) for name, s in (("c", 5.0), ("d", 3.0)))
    assert len(queue) == 4
    assert [entry.job.id for entry in queue] == ["b", "d", "a", "c"]
    assert [entry.job.id for entry in queue[1:3]] == ["d", "a"]
    assert queue[-1].job.id == "c"
    assert queue.has("d")
    assert not queue.has("x")
    assert queue.take("a").job.id == "a"
    assert queue.take("b").job.id == "b"
    assert [entry.job.id for entry in queue] == ["d", "c"]
    with pytest.raises(KeyError):
        queue.take("a")


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 20)),
        st.tuples(st.sampled_from(["finish", "cancel"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["fail", "drain", "repair"]), st.integers(0, 3)),
    ),
    max_size=40,
)


def event_of(kind: str, number: int, serial: int, now_s: float, engine: Engine) -> Event | None:
    if kind == "submit":
        return Submitted(Job(id=f"j{serial}", gpus=number, submit_s=now_s, duration_s=100.0 * (number % 3 + 1)))
    if kind == "finish":
        running = sorted(engine.state.running)
        return Finished(running[number % len(running)]) if running else None
    if kind == "cancel":
        known = sorted(engine.state.running) + [entry.job.id for entry in engine.queue]
        return Cancelled(known[number % len(known)]) if known else None
    made: dict[str, type[MachineFailed | MachineDrained | MachineRepaired]] = {
        "fail": MachineFailed,
        "drain": MachineDrained,
        "repair": MachineRepaired,
    }
    return made[kind](number)


@settings(max_examples=examples(150))
@given(EVENTS, st.sampled_from(sorted(ORDERS)))
def test_no_stream_of_events_loses_a_job_or_breaks_the_books(events: list[tuple[str, int]], order: str) -> None:
    engine = Engine(ClusterState(Cluster.fat_tree(2, 2, 4)), QueuePolicy(BestFit(), order))
    wanted: set[str] = set()
    for serial, (kind, number) in enumerate(events):
        now_s = 500.0 * serial
        event = event_of(kind, number, serial, now_s, engine)
        if event is None:
            continue
        if isinstance(event, Submitted):
            wanted.add(event.job.id)
        elif isinstance(event, Finished | Cancelled):
            wanted.discard(event.job_id)
        running = set(engine.state.running)
        for action in engine.handle(event, now_s):  # the actions tell exactly what has changed
            if isinstance(action, Start):
                assert action.job.id not in running
                running.add(action.job.id)
            elif isinstance(action, Stop):
                running.remove(action.job_id)
        if isinstance(event, Finished):
            running.discard(event.job_id)
        assert running == set(engine.state.running)
        waiting = [entry.job.id for entry in engine.queue]
        assert not set(waiting) & running
        assert set(waiting) | running == wanted
        for name in waiting:
            assert engine.why_wait(name, now_s)
        check(engine.state)


def test_errors_of_the_engine_are_crannys() -> None:
    assert issubclass(InputError, CrannyError)
    assert issubclass(PlacementError, CrannyError)


def test_with_a_period_the_policy_is_asked_only_at_its_multiples() -> None:
    engine = Engine(ClusterState(Cluster.single_rack(1, 2)), QueuePolicy(BestFit()), period_s=60.0)
    assert engine.next_tick_s(0.0) == math.inf  # no job waits
    assert engine.submit(Job("a", 1), 10.0) == ()
    assert engine.submit(Job("b", 1), 59.0) == ()
    assert engine.next_tick_s(59.0) == 60.0
    assert [action.job.id for action in engine.tick(60.0) if isinstance(action, Start)] == ["a", "b"]
    assert engine.submit(Job("c", 1), 60.0) == ()
    assert engine.next_tick_s(60.0) == 120.0
    assert engine.finish("a", 70.0) == ()
    assert len(engine.tick(120.0)) == 1


@pytest.mark.parametrize("period_s", [0.001, 0.01, 0.1, 0.7, 1 / 3, 13.7, 360.0])
def test_the_next_tick_is_later_and_a_multiple_of_the_period(period_s: float) -> None:
    engine = Engine(ClusterState(Cluster.single_rack(1, 4)), QueuePolicy(BestFit(), "fifo"), period_s)
    engine.queue.add(Waiting(job("a", 1)))
    for turn in range(1, 3000):  # a rounded multiple over the period may be just below a whole number
        next_s = engine.next_tick_s(turn * period_s)
        assert next_s == (turn + 1) * period_s


def test_a_period_too_short_for_a_clock_is_refused() -> None:
    with pytest.raises(InputError, match=r"period_s must be 0, or at least 0.001, not 1e-320"):
        Engine(ClusterState(Cluster.single_rack(1, 4)), QueuePolicy(BestFit(), "fifo"), 1e-320)
