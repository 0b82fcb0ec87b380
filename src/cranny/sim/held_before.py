"""Jobs that run when a replay begins: they go on where they were, instead of being placed again at no cost."""

from collections.abc import Mapping, Sequence

from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement

HeldBefore = Mapping[str, Mapping[str, int]]  # by the id of a job: machines by name, and the GPUs held on each


def placed_before(cluster: Cluster, held_before: HeldBefore, jobs: Sequence[Job]) -> dict[str, Placement]:
    """Return where jobs go on that ran before, by their ids, in the order of `jobs`.

    A job that cannot have run like that on this cluster (a machine is not there, is of another type or partition,
    or has not enough GPUs left by jobs before it), or has nothing left to do, is not among them: the policy
    places it.
    """
    number = {machine.name: at for at, machine in enumerate(cluster.machines)}
    free = [machine.gpus for machine in cluster.machines]
    empty = ClusterState(cluster).snapshot()
    placed = {}
    for job in jobs:
        held = held_before.get(job.id)
        if not held or not job.duration_s or sum(held.values()) != job.gpus or not number.keys() >= held.keys():
            continue
        counts = {number[name]: gpus for name, gpus in held.items()}
        if any(free[machine] < gpus for machine, gpus in counts.items()) or not _allowed(job, counts, empty):
            continue
        for machine, gpus in counts.items():
            free[machine] -= gpus
        placed[job.id] = Placement(tuple(machine for machine, gpus in counts.items() for _ in range(gpus)))
    return placed


def _allowed(job: Job, machines: Mapping[int, int], view: Snapshot) -> bool:
    """Say whether a job may use some machines, by type of GPU and partition."""
    eligible = view.eligible(job)
    return all(eligible >> machine & 1 for machine in machines)
