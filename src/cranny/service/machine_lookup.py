"""Finds machines by their names, and those that jobs hold."""

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.errors import unknown
from cranny.service.limits import NotFoundError
from cranny.service.managed_cluster import FOREIGN

MOST_NAMES = 100  # of machines, to suggest one of them


def find_machine(cluster: Cluster, name: str) -> int:
    """Return the index of a machine by its name or index."""
    index = {machine.name: number for number, machine in enumerate(cluster.machines)}
    if name in index:
        return index[name]
    if name.isdecimal() and len(name) < 10 and int(name) < len(index):
        return int(name)
    few = len(index) <= MOST_NAMES
    raise NotFoundError(str(unknown("machine", name, index)) if few else f"no machine {name!r}")


def needed_gpus(state: ClusterState) -> dict[str, int]:
    """Return the machines that jobs hold, and how many GPUs each must have so that they can."""
    needed: dict[str, int] = {}
    for job_id, running in state.running.items():
        for machine, gpus in running.held.items() if not job_id.startswith(FOREIGN) else ():
            name = state.cluster.machines[machine].name
            needed[name] = max(needed.get(name, 0), gpus.bit_length())
    return needed
