from cranny.core.check import check
from cranny.core.locality import level, nearby
from cranny.core.reseat import emptied, plans, reseat
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Start, Stop

PAIR = Cluster.fat_tree(racks=2, machines_per_rack=1, gpus_per_machine=2)


def test_jobs_that_change_places_are_stopped_for_it() -> None:
    state = ClusterState(PAIR)
    for job_id, machine in (("a", 0), ("b", 1)):
        state.place(Job(id=job_id, gpus=2), Placement((machine, machine)))
    view = state.snapshot(10.0)
    base = emptied(view, ["a", "b"])
    (plan,) = plans({"a": (1, 1), "b": (0, 0)}, view, base, {}, {}, 1, level)
    assert [type(action) for action in plan.actions] == [Stop, Move, Start]
    start = plan.actions[2]
    assert isinstance(start, Start)
    assert start.attained_gpu_s == 20.0
    state.commit(plan, 10.0)
    check(state)
    assert state.find("a").placement.machines == (1, 1)


def test_who_keeps_its_size_stays_and_who_shrinks_stays_on_its_machines() -> None:
    state = ClusterState(Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=2))
    state.place(Job(id="stays", gpus=2), Placement((1, 2)))
    state.place(Job(id="shrinks", gpus=3, least_gpus=1), Placement((0, 0, 1)))
    view = state.snapshot()
    base = emptied(view, view.running)
    waiting = {"new": Waiting(Job(id="new", gpus=4))}
    seats = reseat({"new": 4, "stays": 2, "shrinks": 2}, view.running, waiting, base, nearby)
    assert seats == {"stays": (1, 2), "shrinks": (0, 0), "new": (1, 2, 3, 3)}


def test_a_job_uses_only_gpus_of_its_types() -> None:
    machines = (Machine("old", 2, "t4"), Machine("new", 2, "h200"))
    state = ClusterState(Cluster.of(Switch("top", machines, (9.0, 9.0))))
    view = state.snapshot()
    assert view.usable(Job(id="a", gpus=1), view.free).tolist() == [2, 2]
    assert view.usable(Job(id="a", gpus=1, gpu_type="h200"), view.free).tolist() == [0, 2]
    assert view.usable(Job(id="a", gpus=1, speeds={"t4": 1.0}), view.free).tolist() == [2, 0]
    assert reseat({"a": 3}, {}, {"a": Waiting(Job(id="a", gpus=3, gpu_type="t4"))}, view, nearby) == {}
