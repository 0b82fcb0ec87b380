"""What was promised holds with GPUs of several types, constraints, machines that fail, and jobs that move."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.cranny.test_move_search import LOUD
from tests.policies.cranny.test_stops import FAR_S, Recorded
from tests.policies.cranny.test_waiting_for_machines import WIDE, machines_in_use, started

from cranny.core.constraints import Constraints
from cranny.core.engine import Engine
from cranny.core.protocol import JobRules
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.event import Event, MachineDrained, MachineRepaired, Submitted
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Start, Stop
from cranny.policies.cranny import Cranny
from cranny.policies.cranny.tail import CompletionTimes
from cranny.sim.record import DONE
from cranny.sim.replay import Replay


def machines(*kinds: str, gpus: int = 4) -> Cluster:
    """Return machines of some types of GPU below one switch."""
    made = tuple(Machine(f"{kind}-{number}", gpus, kind) for number, kind in enumerate(kinds))
    return Cluster.of(Switch("core", made, (100.0,) * len(made)))


def names(done: list[Action]) -> list[tuple[str, str]]:
    """Return what was done to which job."""
    return [
        (type(each).__name__, each.job.id if isinstance(each, Start) else each.job_id)
        for each in done
        if isinstance(each, Start | Stop)
    ]


def knowing() -> Cranny:
    """Return the policy that knows that no job ends in the tail."""
    policy = Cranny()
    policy.completion_times = CompletionTimes(FAR_S)
    return policy


@pytest.mark.parametrize("drained", [False, True])
def test_a_stopped_job_goes_on_where_its_type_is_free_first(*, drained: bool) -> None:
    engine = Engine(ClusterState(machines("A", "A", "B")), knowing())
    long = Job("long", 4, gpu_type="A", duration_s=10_000.0)
    other = Job("other", 4, gpu_type="A", duration_s=9_000.0, restart_s=1e6)
    engine.handle_all([Submitted(long), Submitted(other)], 0.0)
    held = next(iter(engine.state.running["long"].held))
    short = Job("short", 2, gpu_type="A", submit_s=100.0, duration_s=300.0)
    assert names(list(engine.handle(Submitted(short), 100.0))) == [("Stop", "long"), ("Start", "short")]
    if drained:
        engine.handle(MachineDrained(held), 120.0)
    assert names(list(engine.finish("other", 150.0))) == [("Start", "long")]


def test_a_stop_leaves_machines_alone_that_a_job_was_promised_which_can_start_on_no_others() -> None:
    bound = {"bound": Constraints(excluded=0b10)}
    rules = JobRules(constraints_of=bound.get, may_stop=lambda job_id: job_id == "victim")
    policy = knowing().with_rules(rules)
    state = ClusterState(Cluster.fat_tree(1, 2, 8))
    engine = Engine(state, policy)
    for job, machine in (
        (Job("victim", 2, duration_s=5000.0), 0),
        (Job("first", 4, duration_s=110.0), 0),
        (Job("second", 6, duration_s=9000.0), 1),
        (Job("third", 2, duration_s=109.0), 1),
    ):
        state.place(job, Placement((machine,) * job.gpus))
    engine.handle(Submitted(Job("bound", 6, submit_s=50.0, duration_s=4000.0)), 50.0)
    assert policy.promised_starts() == {"bound": 110.0}
    # Two GPUs of the promised machine are free until then, and two would be the victim's.
    assert not engine.handle(Submitted(Job("wants", 4, submit_s=100.0, duration_s=200.0)), 100.0)
    engine.finish("third", 109.0)
    assert ("Start", "bound") in names(list(engine.finish("first", 110.0)))


@pytest.mark.parametrize(("duration_s", "machines"), [(200.0, {0, 1}), (600.0, {0, 2})])
def test_so_does_a_job_that_would_be_there_for_longer_since_it_communicates(
    duration_s: float, machines: set[int]
) -> None:
    state = ClusterState(Cluster.fat_tree(1, 3, 4))
    for job, machine in (
        (Job("left", 2, duration_s=50_000.0), 0),
        (Job("ends", 1, duration_s=1_000.0), 1),
        (Job("right", 2, duration_s=50_000.0), 2),
    ):
        state.place(job, Placement((machine,) * job.gpus))
    bound = {"bound": Constraints(excluded=0b101)}
    policy = Cranny(preempt=False, wait=False, lookahead=False).with_rules(JobRules(bound.get))
    queue = [Waiting(Job("bound", 4, duration_s=10.0)), Waiting(Job("new", 4, LOUD, duration_s=duration_s))]
    for each in queue:
        policy.key(each)
    (start,) = policy.plan(state.snapshot(0.0, queue)).actions
    assert isinstance(start, Start)
    assert (start.job.id, set(start.placement.machines)) == ("new", machines)


def promised_first(cluster: Cluster, *events: tuple[float, Event], **own: str) -> float:
    """Return when the first job of the queue starts that was promised to as another one ends, at 101 s."""
    jobs = [
        Job("ends", 4, submit_s=1.0, duration_s=100.0, restart_s=1e6, **own),  # type: ignore[arg-type]
        Job("runs", 2, submit_s=1.0, duration_s=1000.0, restart_s=1e6, **own),  # type: ignore[arg-type]
        Job("head", 6, "resnet50", submit_s=2.0, duration_s=50.0, restart_s=1e6, **own),  # type: ignore[arg-type]
        Job("passes", 2, submit_s=3.0, duration_s=1000.0, restart_s=1e6, **own),  # type: ignore[arg-type]
    ]
    frame = Replay(cluster, Cranny(), machine_events=events).run(jobs).jobs
    return float(frame.filter(frame["job_id"] == "head")["start_s"][0])


def test_idle_gpus_of_other_types_and_of_drained_machines_keep_no_promise() -> None:
    assert promised_first(machines("A", "A", "B"), gpu_type="A") == 101.0
    drained = (0.5, MachineDrained(2)), (1e5, MachineRepaired(2))
    assert promised_first(machines("A", "A", "A"), *drained) == 101.0


def test_a_job_waits_for_no_machines_that_take_no_jobs() -> None:
    state, policy = machines_in_use(10_000.0), Cranny()
    assert not started(policy, state.snapshot(0.0, [Waiting(WIDE)]))
    for machine in range(2):  # those that it waits for
        state.drain(machine)
    assert started(policy, state.snapshot(5.0, [Waiting(WIDE)])) == ["wide"]


def test_what_a_job_lost_by_stops_is_known_after_a_move() -> None:
    policy = knowing()
    engine = Engine(ClusterState(Cluster.fat_tree(1, 1, 4)), policy)
    engine.handle(Submitted(Job("long", 4, duration_s=4000.0, restart_s=10.0)), 0.0)
    short = Job("short", 2, submit_s=100.0, duration_s=50.0)
    assert ("Stop", "long") in names(list(engine.handle(Submitted(short), 100.0)))
    assert ("Start", "long") in names(list(engine.finish("short", 150.0)))

    def lost_s(now_s: float) -> dict[str, float]:
        policy.follow(engine.state.snapshot(now_s))
        assert policy._at is not None
        return dict(policy._at.stops._lost_s)

    assert lost_s(200.0) == {"long": 60.0}
    engine.state.move("long", Placement((0, 0, 0, 0)), 210.0)
    assert lost_s(220.0) == {"long": 60.0}


def test_on_mixed_gpus_a_job_that_finds_no_room_beside_fixed_ones_keeps_no_others_from_starting() -> None:
    policy = Cranny().with_rules(JobRules(may_stop=lambda job_id: job_id != "fixed"))
    engine = Engine(ClusterState(machines("A", "B")), policy)
    engine.handle(Submitted(Job("fixed", 2, least_gpus=2, most_gpus=2, duration_s=1e6)), 0.0)
    engine.handle(Submitted(Job("all", 8, submit_s=1.0, least_gpus=8, most_gpus=8, duration_s=100.0)), 1.0)
    assert "all" not in engine.state.running
    small = Job("small", 2, submit_s=2.0, least_gpus=1, most_gpus=2, duration_s=1000.0)
    assert names(list(engine.handle(Submitted(small), 2.0))) == [("Start", "small")]


def test_no_job_makes_way_for_one_with_resources() -> None:
    many = [Machine(f"machine-{number}", 4, resources={"cpus": 64}) for number in range(4)]
    cluster = Cluster.of(Switch("core", tuple(many), (100.0,) * 4))

    def stopped(**resources: dict[str, int]) -> list[str]:
        engine = Engine(ClusterState(cluster), knowing())
        engine.handle(Submitted(Job("large", 16, duration_s=100_000.0, restart_s=60.0)), 0.0)
        small = [
            Submitted(Job(f"small-{number}", 1, submit_s=1000.0, duration_s=600.0, **resources))  # type: ignore[arg-type]
            for number in range(40)
        ]
        return [job_id for what, job_id in names(list(engine.handle_all(small, 1000.0))) if what == "Stop"]

    assert stopped() == ["large"]
    assert not stopped(resources={"cpus": 1})


def test_a_changed_job_begins_its_wait_anew() -> None:
    policy, view = Cranny(), machines_in_use(10_000.0).snapshot(0.0, [Waiting(WIDE)])
    assert not started(policy, view)
    assert policy._known is not None
    assert policy._known.due_s.keys() == {"wide"}
    assert not policy._known.without("wide").due_s


def test_many_waiting_jobs_are_not_looked_through_before_the_tail_is_known() -> None:
    class Counting(Cranny):
        asked = 0

        def left_s(self, waiting: Waiting) -> float:
            self.asked += 1
            return super().left_s(waiting)

    policy = Counting()
    engine = Engine(ClusterState(Cluster.fat_tree(1, 1, 8)), policy)
    engine.handle_all([Submitted(Job(f"long-{number}", 4, duration_s=1e6)) for number in range(2)], 0.0)
    waiting = [Submitted(Job(f"job-{number}", 2, submit_s=1.0, duration_s=1e5)) for number in range(3000)]
    engine.handle_all(waiting, 1.0)
    policy.asked = 0
    engine.handle(Submitted(Job("last", 2, submit_s=2.0, duration_s=1e5)), 2.0)
    assert 0 < policy.asked < 2000


def starts_later_than_promised(
    seed: int, on_types: Callable[[np.random.Generator], Mapping[str, Any]]
) -> Mapping[str, tuple[float, float]]:
    """Replay 40 jobs on GPUs of two types; return when those that came late were promised a start, and started."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.choice([0.0, 5.0, 120.0, 600.0], 40)).tolist()
    jobs = [
        Job(
            f"job-{number}",
            int(rng.choice([1, 1, 2, 3, 4, 5, 8, 12])),
            "resnet50",
            **on_types(rng),
            submit_s=at_s,
            duration_s=float(rng.choice([1.0, 60.0, 600.0, 3000.0, 7200.0])),
            restart_s=float(rng.choice([0.0, 60.0, 600.0])),
        )
        for number, at_s in enumerate(submit_s)
    ]
    policy = Recorded()
    result = Replay(machines("A", "A", "B", "A", "B", "B"), policy).run(jobs)
    assert set(result.jobs["status"].to_list()) == {DONE}
    return policy.late


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1))
def test_with_several_types_of_gpus_no_job_starts_later_than_promised(seed: int) -> None:
    assert not starts_later_than_promised(seed, lambda rng: {"gpu_type": "AB"[rng.integers(2)]})
