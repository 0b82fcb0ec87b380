from collections.abc import Callable

import pytest
from tests.reference.invariants import InvariantError, check

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.placement import Placement


def busy() -> ClusterState:
    """Two racks of two machines, with a job across racks, a small one, and a machine drained."""
    state = ClusterState(Cluster.fat_tree(2, 2, 4))
    state.place(Job(id="wide", gpus=3), Placement((0, 0, 2)))
    state.place(Job(id="small", gpus=1), Placement((1,), spare=(1,)))
    state.drain(3)
    return state


def rewrite(state: ClusterState, job_id: str, **fields: object) -> None:
    running = state._accounting.running
    running[job_id] = running[job_id]._replace(**fields)  # type: ignore[arg-type]


def free_count(state: ClusterState) -> None:
    state._accounting.free[0] += 1


def free_gpu(state: ClusterState) -> None:
    state._accounting.slots[0] |= 1


def drained_gives(state: ClusterState) -> None:
    state._accounting.free[3] = 4


def half_down(state: ClusterState) -> None:
    state._accounting.down ^= 1


def failed_runs(state: ClusterState) -> None:
    state._failed.add(0)


def twice(state: ClusterState) -> None:
    rewrite(state, "small", held={0: 0b11}, placement=Placement((0,), spare=(0,)))


def no_such_gpu(state: ClusterState) -> None:
    rewrite(state, "small", held={1: 0b110000})


def other_gpus(state: ClusterState) -> None:
    rewrite(state, "small", held={1: 0b1})


def rank_missing(state: ClusterState) -> None:
    rewrite(state, "small", job=Job(id="small", gpus=2))


def wrong_type(state: ClusterState) -> None:
    rewrite(state, "small", job=Job(id="small", gpus=1, gpu_type="t4"))


def no_speed(state: ClusterState) -> None:
    rewrite(state, "small", job=Job(id="small", gpus=1, speeds={"t4": 1.0}))


def wrong_name(state: ClusterState) -> None:
    state._accounting.running["other"] = state._accounting.running.pop("small")


def forgotten(state: ClusterState) -> None:
    del state._accounting.running["small"]


def link(state: ClusterState) -> None:
    state._accounting.link_use_gbps[0] += 1.0


def crossing(state: ClusterState) -> None:
    state._accounting.cross_bytes *= 2


def used(state: ClusterState) -> None:
    state._accounting.used_machines += 1


def held(state: ClusterState) -> None:
    state._accounting.held_gpus -= 1


def fragmentation(state: ClusterState) -> None:
    state._accounting.idle_units += 1


def recorded_twice(state: ClusterState) -> None:
    state._accounting.idle[4] |= 1


def not_recorded(state: ClusterState) -> None:
    state._accounting.in_use[2] ^= 1


FAULTS: list[tuple[Callable[[ClusterState], None], str]] = [
    (free_count, "machine 0 counts 3 GPUs free"),
    (free_gpu, "machine 0: slots"),
    (drained_gives, "machine 3 counts 4 GPUs free"),
    (half_down, "machine 0 counts 2 GPUs free"),
    (failed_runs, "machine 0 failed, but runs jobs"),
    (twice, "a GPU of machine 0 is held twice"),
    (no_such_gpu, "machine 1 has no such GPU"),
    (other_gpus, "job 'small' holds other GPUs than it was placed on"),
    (rank_missing, "job 'small' does not have each rank placed once"),
    (wrong_type, "job 'small': wrong GPU type"),
    (no_speed, "job 'small': wrong GPU type"),
    (wrong_name, "job 'small' is recorded under 'other'"),
    (forgotten, "machine 1 counts 2 GPUs free"),
    (link, "link 0 carries"),
    (crossing, "cross-machine bytes do not add up"),
    (used, "3 machines are used, not 4"),
    (held, "5 GPUs are held, not 4"),
    (fragmentation, "fragmentation does not add up"),
    (recorded_twice, "machine 0 is recorded as"),
    (not_recorded, "machine 0 is recorded as"),
]


def test_a_sound_state_passes() -> None:
    check(busy())
    check(ClusterState(Cluster.single_rack(1, 1)))


def test_a_job_may_have_every_type_that_it_has_a_speed_on() -> None:
    machines = (Machine("old", 4, "t4"), Machine("new", 4, "h200"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0, 100.0))))
    state.place(Job(id="both", gpus=3, speeds={"t4": 0.5, "h200": 1.0}), Placement((0, 1, 1)))
    state.place(Job(id="typed", gpus=1, gpu_type="t4", speeds={"t4": 0.5, "h200": 1.0}), Placement((0,)))
    check(state)
    rewrite(state, "both", job=Job(id="both", gpus=3, speeds={"h200": 1.0}))  # but one rank is on the old machine
    with pytest.raises(InvariantError, match="job 'both': wrong GPU type"):
        check(state)


@pytest.mark.parametrize(("fault", "said"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_a_planted_fault_is_found(fault: Callable[[ClusterState], None], said: str) -> None:
    state = busy()
    fault(state)
    with pytest.raises(InvariantError, match=said):
        check(state)
