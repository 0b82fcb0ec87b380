"""Jobs that the manager of a cluster did not get from here: in the state they hold GPUs and other resources.

How many GPUs they have of a machine is known, and not which: they take the lowest that are free. If a machine has
fewer free than they hold, as while the manager knows of an end before this service does, it counts as full.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cranny.backends.cluster_reading import ForeignJob
from cranny.core.state import ClusterState
from cranny.model.job import Job
from cranny.service.managed_cluster import FOREIGN

UNLIMITED_S = 86_400.0  # that a job of others is expected to run if it has no limit


def hold(state: ClusterState, jobs: Iterable[ForeignJob], now_s: float) -> None:
    """Let jobs of others hold GPUs and other resources."""
    index = _index(state)
    for each in jobs:
        left_s = UNLIMITED_S if each.ends_s is None else max(0.0, each.ends_s - now_s)
        for name, gpus in each.gpus.items():
            if name in index and gpus > 0:
                count = min(gpus, state.free_slots(index[name]).bit_count())
                if count:
                    job = Job(state_id(each.id, name), count, tenant=each.user, duration_s=left_s)
                    state.hold(job, index[name], now_s)
        _take(state, each, index, 1)


def held(state: ClusterState) -> list[list[Any]]:
    """Return exactly which GPUs jobs of others hold, as values of JSON."""
    return [
        [job_id, machine, gpus, running.started_s, running.job.duration_s, running.job.tenant]
        for job_id, running in state.running.items()
        if job_id.startswith(FOREIGN)
        for machine, gpus in running.held.items()
    ]


def hold_as_before(state: ClusterState, known: Iterable[Sequence[Any]], jobs: Iterable[ForeignJob]) -> None:
    """Let jobs of others hold exactly the GPUs that `held` has returned, and what else they hold."""
    for job_id, machine, gpus, started_s, duration_s, user in known:
        job = Job(job_id, gpus.bit_count(), tenant=user, duration_s=duration_s)
        state.hold(job, machine, started_s, gpus)
    index = _index(state)
    for each in jobs:
        _take(state, each, index, 1)


def let_go(state: ClusterState, jobs: Iterable[ForeignJob]) -> None:
    """Give back what jobs of others held."""
    index = _index(state)
    for each in jobs:
        for name in each.gpus:
            if state_id(each.id, name) in state:
                state.release(state_id(each.id, name))
        _take(state, each, index, -1)


def short(state: ClusterState, jobs: Iterable[ForeignJob]) -> list[ForeignJob]:
    """Return jobs of others that hold fewer GPUs than their manager says although some are free there."""
    index = _index(state)
    return [each for each in jobs if any(_lacks(state, each, name, index) for name in each.gpus)]


def lacking(state: ClusterState, job: ForeignJob) -> list[str]:
    """Return the machines of which a job of others holds fewer GPUs than its manager says."""
    return [name for name in job.gpus if _missing(state, job, name) > 0]


def state_id(external: str, machine: str) -> str:
    """Return by which id a job of others holds GPUs of a machine."""
    return f"{FOREIGN}{external}@{machine}"


def shown_id(job_id: str) -> str:
    """Return the id of a job as people see it: of a job of others what its manager calls it, on all machines."""
    return job_id.rpartition("@")[0] if job_id.startswith(FOREIGN) else job_id


def _lacks(state: ClusterState, job: ForeignJob, name: str, index: Mapping[str, int]) -> bool:
    """Say whether a job holds fewer GPUs of a machine than it has, and more are free."""
    return name in index and _missing(state, job, name) > 0 and bool(state.free_slots(index[name]))


def _missing(state: ClusterState, job: ForeignJob, name: str) -> int:
    """Return how many GPUs of a machine a job has and does not hold in the state."""
    own = state_id(job.id, name)
    return job.gpus[name] - (state.find(own).job.gpus if own in state else 0)


def _index(state: ClusterState) -> dict[str, int]:
    return {machine.name: number for number, machine in enumerate(state.cluster.machines)}


def _take(state: ClusterState, job: ForeignJob, index: Mapping[str, int], sign: int) -> None:
    for name, resources in job.resources.items():
        if name in index:
            state.use(index[name], resources, sign)
