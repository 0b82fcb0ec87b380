from collections.abc import Callable

import numpy as np
import pytest
from tests.reference.invariants import check
from tests.reference.views import seen

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import PlacementError, StalePlanError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Move, Plan, Shift, Start, Stop

Make = Callable[[Cluster], ClusterState]


def job(name: str, gpus: int, gpu_type: str | None = None) -> Job:
    return Job(id=name, gpus=gpus, gpu_type=gpu_type)


@pytest.fixture
def mixed(make_state: Make) -> ClusterState:
    """Machines of 8 h200, 4 h200 and 2 t4 in a rack."""
    machines = (Machine("big", 8, "h200"), Machine("mid", 4, "h200"), Machine("small", 2, "t4"))
    return make_state(Cluster.of(Switch("rack", machines, (100.0, 100.0, 25.0))))


def test_placing_takes_gpus_and_releasing_gives_them_back(state: ClusterState) -> None:
    state.place(job("a", 3), Placement((1, 2, 1)))
    assert state.free.tolist() == [4, 2, 3, 4]
    assert "a" in state
    assert (state.used_machines, state.held_gpus, state.running_jobs) == (2, 3, 1)
    assert state.fragmentation == pytest.approx((2 / 4 + 3 / 4) / 2)
    check(state)
    released = state.release("a")
    assert released.job.id == "a"
    assert state.free.tolist() == [4, 4, 4, 4]
    assert (state.used_machines, state.fragmentation, state.totals()[2]) == (0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("machines", "why"),
    [
        ((0, 0, 0, 0, 0), "job 'bad' needs 5 GPUs of rack0-machine0, 4 are free"),
        ((1, 1, 1, 1, 2), "job 'bad' needs 4 GPUs of rack0-machine1, 2 are free"),
        ((9, 9, 9, 9, 9), "there is no machine 9; the last is 3"),
        ((0, 1, 2, 3, -1), "there is no machine -1"),
        ((0, 1, 2, 3), "job 'bad' has 5 ranks, its placement 4"),
    ],
)
def test_refuses_a_placement_that_does_not_fit(state: ClusterState, machines: tuple[int, ...], why: str) -> None:
    state.place(job("a", 2), Placement((1, 1)))
    before = seen(state.snapshot())
    with pytest.raises(PlacementError, match=why):
        state.place(job("bad", 5), Placement(machines))
    assert seen(state.snapshot()) == before


BAD: list[tuple[Action, str]] = [
    (Start(job("bad", 5), Placement((0,) * 5)), "needs 5 GPUs"),
    (Start(job("one", 1), Placement((3,))), "job 'one' is already running"),
    (Start(job("new", 1), Placement((3,))), "job 'new' is already running"),
    (Stop("nobody", "because"), "job 'nobody' is not running"),
    (Stop("two", "again"), "job 'two' is stopped earlier in the same plan"),
    (Move("nobody", Placement((0,))), "job 'nobody' is not running"),
    (Move("two", Placement((0, 0))), "job 'two' is stopped earlier in the same plan"),
    (Move("one", Placement((2, 2, 2, 2, 2))), "job 'one' has 3 ranks, its placement 5"),
    (Shift("nobody", 0.1), "job 'nobody' is not running"),
]


@pytest.mark.parametrize(("bad", "why"), BAD)
def test_a_plan_with_one_bad_action_changes_nothing(state: ClusterState, bad: Action, why: str) -> None:
    state.place(job("one", 3), Placement((0, 0, 1)))
    state.place(job("two", 2), Placement((1, 2)))
    before = seen(state.snapshot())
    good: tuple[Action, ...] = (
        Stop("two", "makes room"),
        Start(job("new", 4), Placement((3, 3, 2, 2))),
        Move("one", Placement((1, 1, 1))),
        Shift("one", 0.5),
    )
    with pytest.raises(PlacementError, match=why):
        state.commit(Plan(state.version, (*good, bad)))
    assert seen(state.snapshot()) == before
    check(state)
    state.commit(Plan(state.version, good))
    assert state.free.tolist() == [4, 1, 2, 2]
    assert state.find("one").shift_s == 0.5


def test_actions_build_on_those_before_them(state: ClusterState) -> None:
    state.place(job("old", 4), Placement((0,) * 4))
    state.commit(
        Plan(
            state.version,
            (
                Stop("old", "gives way"),
                Start(job("new", 4), Placement((0,) * 4)),
                Move("new", Placement((1,) * 4)),
                Start(job("old", 4), Placement((0,) * 4), attained_gpu_s=7.0),
                Shift("old", 0.25),
            ),
        ),
        now_s=5.0,
    )
    assert set(state.running) == {"old", "new"}
    old = state.find("old")
    assert (old.attained_gpu_s, old.shift_s, old.started_s) == (7.0, 0.25, 5.0)


def test_a_job_started_and_stopped_in_one_plan_leaves_no_trace(state: ClusterState) -> None:
    free = state.free.tolist()
    start = Start(job("a", 2), Placement((0, 1)))
    state.commit(Plan(state.version, (start, Stop("a", "changed my mind"))))
    assert state.free.tolist() == free
    assert state.running_jobs == 0


def test_refuses_a_stale_plan(state: ClusterState) -> None:
    plan = Plan(state.version, (Start(job("a", 1), Placement((0,))),))
    state.place(job("b", 1), Placement((3,)))
    with pytest.raises(StalePlanError, match="plan is for version 0, the state is at 1"):
        state.commit(plan)
    assert "a" not in state


def test_every_change_makes_older_plans_stale(state: ClusterState) -> None:
    versions = [state.version]
    state.place(job("a", 1), Placement((0,)))
    versions.append(state.version)
    state.move("a", Placement((1,)))
    versions.append(state.version)
    state.drain(2)
    versions.append(state.version)
    state.repair(2)
    versions.append(state.version)
    state.fail(1)
    versions.append(state.version)
    assert versions == sorted(set(versions))


def test_what_the_state_returns_is_a_copy(state: ClusterState) -> None:
    state.free[0] = 0
    state.running["x"] = state.running  # type: ignore[assignment]
    assert state.free[0] == 4
    assert "x" not in state


def test_a_failed_machine_loses_its_jobs(state: ClusterState) -> None:
    state.place(job("a", 3), Placement((0, 0, 1)))
    state.place(job("b", 1), Placement((1,)))
    lost = state.fail(0)
    assert [running.job.id for running in lost] == ["a"]
    assert state.free.tolist() == [0, 3, 4, 4]
    assert not state.is_up(0)
    assert state.has_failed(0)
    assert not state.snapshot().machines.idle[4] & 1
    with pytest.raises(PlacementError, match="machine rack0-machine0 is down"):
        state.place(job("c", 1), Placement((0,)))
    check(state)
    state.repair(0)
    assert state.is_up(0)
    assert not state.has_failed(0)
    state.place(job("c", 4), Placement((0,) * 4))


def test_a_drained_machine_keeps_its_jobs_and_takes_no_more(state: ClusterState) -> None:
    state.place(job("a", 2), Placement((0, 0)))
    state.drain(0)
    assert state.free.tolist() == [0, 4, 4, 4]
    assert not state.has_failed(0)
    assert state.used_machines == 1
    with pytest.raises(PlacementError, match="is down"):
        state.place(job("b", 1), Placement((0,)))
    check(state)
    state.release("a")
    assert state.free.tolist() == [0, 4, 4, 4]
    assert state.used_machines == 0
    check(state)
    state.repair(0)
    assert state.free.tolist() == [4, 4, 4, 4]


def test_machines_may_fail_or_be_repaired_twice(state: ClusterState) -> None:
    for change in (state.fail, state.fail, state.drain, state.repair, state.repair, state.drain, state.fail):
        change(2)
        check(state)
    assert state.has_failed(2)


@pytest.mark.parametrize("machine", [-1, 4, 99])
@pytest.mark.parametrize("change", ["fail", "drain", "repair"])
def test_refuses_to_change_a_machine_that_is_not_there(state: ClusterState, change: str, machine: int) -> None:
    before = seen(state.snapshot())
    with pytest.raises(PlacementError, match=f"there is no machine {machine}"):
        getattr(state, change)(machine)
    assert seen(state.snapshot()) == before


def test_machine_numbers_of_numpy_work_beyond_64_machines(make_state: Make) -> None:
    state = make_state(Cluster.single_rack(100, 2))
    state.fail(int(np.int64(90)))
    state.drain(np.int64(91))  # type: ignore[arg-type]
    state.place(job("a", 2), Placement((np.int64(92), np.int64(93))))  # type: ignore[arg-type]
    check(state)
    assert state.free.tolist()[89:] == [2, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2]


def test_gpus_can_be_named(state: ClusterState) -> None:
    state.place(job("a", 3), Placement((0, 0, 1), gpus=(3, 1, 0)))
    assert state.snapshot().slots_on(0) == 0b0101
    assert state.snapshot().slots_on(1) == 0b1110
    state.place(job("b", 1), Placement((0,)))
    assert state.snapshot().slots_on(0) == 0b0100  # the lowest free one
    for gpus in ((1,), (0,), (4,), (10**9,)):
        with pytest.raises(PlacementError, match=f"needs GPU {gpus[0]} of rack0-machine0, which is not free"):
            state.place(job("c", 1), Placement((0,), gpus=gpus))
    with pytest.raises(PlacementError, match="needs GPU 2 of rack0-machine0"):
        state.place(job("c", 2), Placement((0, 0), gpus=(2, 2)))


def test_spare_gpus_are_held_but_do_not_count_as_used(state: ClusterState) -> None:
    state.place(job("a", 5), Placement((0, 0, 0, 0, 1), spare=(1, 1, 1)))
    assert state.free.tolist() == [0, 0, 4, 4]
    assert state.held_gpus == 8
    assert state.fragmentation == pytest.approx((0 + 3 / 4) / 2)
    check(state)
    state.place(job("b", 1), Placement((2,), spare=(3,)))
    assert state.used_machines == 4
    check(state)
    state.release("a")
    check(state)


def test_a_job_runs_only_on_its_type_of_gpu(mixed: ClusterState) -> None:
    with pytest.raises(PlacementError, match="job 'a' needs t4 GPUs; mid has none"):
        mixed.place(job("a", 2, "t4"), Placement((2, 1)))
    mixed.place(job("a", 2, "t4"), Placement((2, 2)))
    mixed.place(job("b", 9), Placement((0,) * 8 + (1,)))
    offer = mixed.snapshot().available(job("c", 1, "h200"))
    assert (offer.gpus, offer.gpus_in_use, offer.in_use_count[3]) == (3, 3, 1)
    assert mixed.snapshot().available(job("c", 1, "a100")).gpus == 0
    assert (
        mixed.snapshot().available(job("c", 1)) is mixed.snapshot().machines
        or mixed.snapshot().available(job("c", 1)) == mixed.snapshot().machines
    )


def test_machines_of_different_sizes_are_kept_apart(mixed: ClusterState) -> None:
    machines = mixed.snapshot().machines
    assert [machines.idle_count[size] for size in (2, 4, 8)] == [1, 1, 1]
    mixed.place(job("a", 4), Placement((0, 0, 0, 0)))
    machines = mixed.snapshot().machines
    assert machines.in_use[4] == 0b001
    assert machines.idle[4] == 0b010
    assert machines.gpus == 4 + 4 + 2
    mixed.place(job("b", 1), Placement((2,)))
    assert mixed.fragmentation == pytest.approx((4 / 8 + 1 / 2) / 2)


def test_a_job_moves_onto_gpus_that_it_holds_itself(state: ClusterState) -> None:
    state.place(job("a", 6), Placement((0, 0, 0, 0, 1, 1)), now_s=2.0)
    state.move("a", Placement((1, 1, 1, 1, 0, 0)), now_s=9.0)
    assert state.free.tolist() == [2, 0, 4, 4]
    assert (state.find("a").started_s, state.find("a").attained_gpu_s) == (9.0, 6 * 7.0)
    with pytest.raises(PlacementError):
        state.move("a", Placement((0,) * 6))
    assert state.free.tolist() == [2, 0, 4, 4]


def test_a_shift_touches_nothing_but_the_job(state: ClusterState) -> None:
    state.place(job("a", 2), Placement((0, 1)))
    free, used = state.free.tolist(), state.snapshot().link_use_gbps(0)
    state.commit(Plan(state.version, (Shift("a", 0.125),)))
    assert state.find("a").shift_s == 0.125
    assert (state.free.tolist(), state.snapshot().link_use_gbps(0)) == (free, used)


def test_a_job_cannot_be_placed_or_released_twice(state: ClusterState) -> None:
    state.place(job("a", 1), Placement((0,)))
    with pytest.raises(PlacementError, match="already running"):
        state.place(job("a", 1), Placement((1,)))
    state.release("a")
    with pytest.raises(PlacementError, match="job 'a' is not running"):
        state.release("a")


def test_many_changes_leave_no_rounding_behind(state: ClusterState) -> None:
    for number in range(50):
        for name, machines in (("a", (0, 1, 2)), ("b", (1, 3)), ("c", (0, 3))):
            state.place(Job(id=name, gpus=len(machines), model="gpt2"), Placement(machines))
        for name in ("abc", "bca", "cab")[number % 3]:
            state.release(name)
    view = state.snapshot()
    assert [view.link_use_gbps(link) for link in range(7)] == [0.0] * 7
    assert state.totals()[2] == 0.0


def test_bytes_of_jobs_across_machines_are_forgotten_with_the_last_of_them(state: ClusterState) -> None:
    state.place(job("local", 1), Placement((3,)))
    for name, model in (("a", "resnet50"), ("b", "gpt2"), ("c", "vgg16")):
        state.place(Job(id=name, gpus=2, model=model, tp=2), Placement((0, 1)))
    for name in ("a", "b", "c"):
        state.release(name)
    assert state.running_jobs == 1
    assert state.totals()[2] == 0.0
