from collections.abc import Mapping, Sequence

from tests.reference.invariants import check

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Start, Stop
from cranny.policies._shared.candidates import JobMachines
from cranny.policies._shared.locality import nearby
from cranny.policies._shared.resize import ChooseMachines, place_resized, plans, without_jobs

PAIR = Cluster.fat_tree(racks=2, machines_per_rack=1, gpus_per_machine=2)


def resized(
    sizes: Mapping[str, int],
    running: Mapping[str, Running],
    waiting: Mapping[str, Waiting],
    base: Snapshot,
    choose: ChooseMachines,
) -> JobMachines:
    """Place jobs of which some wait."""
    with_queue = Snapshot(base._accounting, base.version, base.now_s, tuple(waiting.values()))
    return place_resized(sizes, running, with_queue, choose)


def test_jobs_that_change_places_are_stopped_for_it() -> None:
    state = ClusterState(PAIR)
    for job_id, machine in (("a", 0), ("b", 1)):
        state.place(Job(id=job_id, gpus=2), Placement((machine, machine)))
    view = state.snapshot(10.0)
    base = without_jobs(view, ["a", "b"])
    (plan,) = plans([{"a": (1, 1), "b": (0, 0)}], view, base, {}, {})
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
    base = without_jobs(view, view.running)
    waiting = {"new": Waiting(Job(id="new", gpus=4))}
    seats = resized({"new": 4, "stays": 2, "shrinks": 2}, view.running, waiting, base, nearby)
    assert seats == {"stays": (1, 2), "shrinks": (0, 0), "new": (1, 2, 3, 3)}


def test_a_job_uses_only_gpus_of_its_types() -> None:
    machines = (Machine("old", 2, "t4"), Machine("new", 2, "h200"))
    state = ClusterState(Cluster.of(Switch("top", machines, (9.0, 9.0))))
    view = state.snapshot()
    assert view.usable(Job(id="a", gpus=1), view.free).tolist() == [2, 2]
    assert view.usable(Job(id="a", gpus=1, gpu_type="h200"), view.free).tolist() == [0, 2]
    assert view.usable(Job(id="a", gpus=1, speeds={"t4": 1.0}), view.free).tolist() == [2, 0]
    assert resized({"a": 3}, {}, {"a": Waiting(Job(id="a", gpus=3, gpu_type="t4"))}, view, nearby) == {}


def test_who_can_use_one_type_only_is_seated_before_who_can_use_any() -> None:
    machines = (Machine("old", 2, "t4"), Machine("new", 4, "h200"))
    view = ClusterState(Cluster.of(Switch("top", machines, (9.0, 9.0)))).snapshot()
    waiting = {
        each.id: Waiting(each) for each in (Job(id="any", gpus=4), Job(id="picky", gpus=2, gpu_type="h200"))
    }
    # The larger one would fill the machine which alone suits the other.
    assert resized({"any": 4, "picky": 2}, {}, waiting, view, nearby) == {
        "picky": (1, 1),
        "any": (0, 0, 1, 1),
    }


def test_a_job_that_shrinks_leaves_the_gpus_that_another_needs() -> None:
    machines = (Machine("old", 2, "t4"), Machine("new", 2, "h200"))
    state = ClusterState(Cluster.of(Switch("top", machines, (9.0, 9.0))))
    state.place(Job(id="shrinks", gpus=4, least_gpus=1), Placement((0, 0, 1, 1)))
    view = state.snapshot()
    base = without_jobs(view, view.running)
    waiting = {"picky": Waiting(Job(id="picky", gpus=2, gpu_type="t4"))}
    seats = resized({"shrinks": 2, "picky": 2}, view.running, waiting, base, nearby)
    assert seats == {"shrinks": (1, 1), "picky": (0, 0)}


def test_a_job_that_got_nothing_stays_where_it_is_if_its_gpus_stay_free() -> None:
    state = ClusterState(PAIR)
    for job_id, machine in (("stays", 0), ("leaves", 1)):
        state.place(Job(id=job_id, gpus=2), Placement((machine, machine)))
    view = state.snapshot()
    base = without_jobs(view, view.running)
    new = Waiting(Job(id="new", gpus=2))

    def second(gpus: int, free: Sequence[int], cluster: Cluster) -> tuple[int, ...] | None:  # noqa: ARG001
        return (1,) * gpus if free[1] >= gpus else None

    assert resized({"new": 2}, view.running, {"new": new}, base, second) == {"new": (1, 1), "stays": (0, 0)}


def test_all_are_seated_if_there_is_a_way_also_where_the_types_of_jobs_overlap() -> None:
    machines = (Machine("a", 3, "A"), Machine("b", 2, "B"), Machine("c", 4, "C"))
    view = ClusterState(Cluster.of(Switch("top", machines, (9.0,) * 3))).snapshot()
    wanted = {"ab": (2, "AB"), "bc": (2, "BC"), "c": (4, "C")}
    waiting = {
        job_id: Waiting(Job(id=job_id, gpus=gpus, speeds=dict.fromkeys(types, 1.0)))
        for job_id, (gpus, types) in wanted.items()
    }
    # Its tightest machine is the second, which alone is left to the next.
    sizes = {job_id: gpus for job_id, (gpus, _) in wanted.items()}
    assert resized(sizes, {}, waiting, view, nearby) == {"c": (2,) * 4, "ab": (0, 0), "bc": (1, 1)}


def test_spare_gpus_are_not_taken_for_those_of_ranks() -> None:
    state = ClusterState(Cluster.single_rack(2, 4))
    state.place(Job(id="a", gpus=3), Placement((0, 0, 1), spare=(1,)))
    view = state.snapshot()
    seats = resized({}, view.running, {}, without_jobs(view, ["a"]), nearby)
    assert seats == {"a": (0, 0, 1)}  # no other job took its GPUs
    waiting = {"b": Waiting(Job(id="b", gpus=3))}
    base = without_jobs(view, ["a"])
    taken = resized({"b": 3}, view.running, waiting, base, lambda *_: (0, 0, 0))
    assert taken == {"b": (0, 0, 0)}  # two of its ranks are gone, whatever is spare elsewhere
