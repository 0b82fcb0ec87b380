from collections.abc import Callable

import pytest
from tests.reference.invariants import check
from tests.reference.views import seen

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import PlacementError
from cranny.model.job import Job
from cranny.model.placement import Placement

Make = Callable[[Cluster], ClusterState]


def job(name: str, gpus: int) -> Job:
    return Job(id=name, gpus=gpus)


def test_links_carry_what_jobs_on_several_machines_exchange(state: ClusterState) -> None:
    state.place(job("a", 2), Placement((0, 2)))
    state.place(job("b", 2), Placement((0, 3)))
    check(state)
    view = state.snapshot()
    one = view.running["a"].communication.link_gbps[0]
    assert view.link_use_gbps(0) == pytest.approx(2 * one)
    assert view.link_free_gbps(0) == pytest.approx(100 - 2 * one)
    assert view.narrowest_link(0, 2) == 0
    assert view.bandwidth_gbps(0, 2) == view.link_free_gbps(0)
    assert view.narrowest_link(2, 3) in {2, 3}
    state.release("a")
    state.release("b")
    assert state.snapshot().link_use_gbps(0) == 0.0


def test_a_busy_link_has_nothing_left_rather_than_less_than_nothing(make_state: Make) -> None:
    state = make_state(Cluster.single_rack(2, 8, link_gbps=0.001))
    for number in range(4):
        state.place(Job(id=str(number), gpus=2, model="vgg16"), Placement((0, 1)))
    assert state.snapshot().link_free_gbps(0) == 0.0


def test_a_snapshot_stays_as_it_was(state: ClusterState) -> None:
    state.place(job("a", 3), Placement((0, 1, 1)))
    kept = []
    for change in (
        lambda: state.place(job("b", 4), Placement((2, 2, 3, 3))),
        lambda: state.move("a", Placement((0, 0, 0))),
        lambda: state.drain(3),
        lambda: state.release("b"),
        lambda: state.repair(3),
        lambda: state.fail(0),
    ):
        view = state.snapshot()
        kept.append((view, seen(view)))
        change()
        assert all(seen(old) == then for old, then in kept)


def test_a_snapshot_cannot_be_written_to(state: ClusterState) -> None:
    view = state.snapshot()
    with pytest.raises(ValueError, match="read-only"):
        view.free[0] = 9
    with pytest.raises(TypeError):
        view.running["x"] = view.running  # type: ignore[index]


def test_what_if_a_job_were_placed_or_stopped(state: ClusterState) -> None:
    state.place(job("a", 3), Placement((0, 1, 1)))
    view = state.snapshot(now_s=3.0)
    before = seen(view)
    more = view.after(Placement((2, 2, 3)), job("b", 3))
    assert more.free.tolist() == [3, 2, 2, 3]
    assert set(more.running) == {"a", "b"}
    assert more.now_s == 3.0
    assert view.after(Placement((3,))).free.tolist() == [3, 2, 4, 3]
    less = more.without("a")
    assert less.free.tolist() == [4, 4, 2, 3]
    assert less.link_use_gbps(0) == 0.0
    assert seen(view) == before
    assert state.running_jobs == 1
    with pytest.raises(PlacementError):
        view.after(Placement((0,) * 4), job("c", 4))
    with pytest.raises(PlacementError):
        view.without("nobody")


def test_what_if_knows_which_machines_are_down(state: ClusterState) -> None:
    state.place(job("full", 4), Placement((0,) * 4))
    state.place(job("half", 2), Placement((1,) * 2))
    for machine in (0, 1):
        state.drain(machine)
    state.fail(2)
    view = state.snapshot()
    assert view.without("full").free.tolist() == [0, 0, 0, 4]
    assert view.without("half").free.tolist() == [0, 0, 0, 4]
    assert [view.without("full").is_up(machine) for machine in range(4)] == [False, False, False, True]
    with pytest.raises(PlacementError, match="machine rack0-machine0 is down"):
        view.without("full").after(Placement((0,)))
    assert view.without("half").is_idle(1)


def test_the_running_jobs_of_a_snapshot_stay_as_they_were(state: ClusterState) -> None:
    for name in "abc":
        state.place(job(name, 1), Placement((0,)))
    running = state.snapshot().running
    for name in running:
        state.release(name)
    assert sorted(running) == ["a", "b", "c"]
    assert state.running_jobs == 0


def test_a_job_that_asks_for_a_type_and_names_speeds_gets_what_both_allow(make_state: Make) -> None:
    machines = (Machine("old", 8, "t4"), Machine("new", 4, "h200"), Machine("newer", 4, "h200"), Machine("any", 2))
    state = make_state(Cluster.of(Switch("top", machines, (100.0,) * 4)))
    state.drain(2)
    view = state.snapshot()
    for gpu_type, speeds, usable in (
        (None, None, [8, 4, 0, 2]),
        ("h200", None, [0, 4, 0, 0]),
        (None, {"t4": 0.5, "h200": 1.0}, [8, 4, 0, 0]),
        ("t4", {"t4": 0.5, "h200": 1.0}, [8, 0, 0, 0]),
        ("t4", {"h200": 1.0}, [0, 0, 0, 0]),
        (None, {"none": 1.0}, [0, 0, 0, 0]),
    ):
        wanted = Job(id="a", gpus=1, gpu_type=gpu_type, speeds=speeds)
        assert view.usable(wanted, view.free).tolist() == usable
        assert view.available(wanted).gpus == sum(usable)
        drained_too = [machine for machine in range(4) if view.eligible(wanted) >> machine & 1]
        up = [machine for machine in drained_too if view.is_up(machine)]
        assert up == [machine for machine, gpus in enumerate(usable) if gpus]
        assert (2 in drained_too) == (1 in drained_too)  # the same type, only down


def test_a_job_can_be_seen_as_it_would_run_without_running(make_state: Make) -> None:
    machines = (Machine("old", 4, "t4"), Machine("new", 4, "h200"))
    state = make_state(Cluster.of(Switch("top", machines, (100.0, 100.0))))
    view = state.snapshot(7.0)
    running = view.as_running(Job(id="a", gpus=2, speeds={"t4": 0.5, "h200": 1.0}), Placement((0, 0)))
    assert (running.held, running.stretch, running.started_s) == ({0: 0b11}, 2.0, 7.0)
    assert not view.running
    assert view.free.tolist() == [4, 4]
    with pytest.raises(PlacementError, match="cannot run on h200"):
        view.as_running(Job(id="a", gpus=1, speeds={"t4": 1.0}), Placement((1,)))


def test_a_snapshot_knows_which_machines_take_jobs(make_state: Make) -> None:
    state = make_state(Cluster.single_rack(9, 1))
    state.place(job("a", 1), Placement((8,)))
    assert state.snapshot().up.tolist() == [True] * 9
    state.drain(8)
    state.fail(2)
    view = state.snapshot()
    assert view.up.tolist() == [view.is_up(machine) for machine in range(9)]
    assert view.only(0b1011).up.tolist() == [True, True, False, True] + [False] * 5
