"""Feasibility: which jobs could never run. A replay skips them, since they would block the queue for good."""

from collections.abc import Iterable

from cranny.core.protocol import Placer
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine
from cranny.model.job import Job
from cranny.model.validate import counted


def never_fits(reason: str) -> str:
    """Say why a job is skipped that does not start although nothing runs."""
    return f"does not fit the empty cluster: {reason}"


def too_large(job_gpus: int, capacity: int, kind: str = "", owner: str = "the cluster") -> str:
    """Say why a job is skipped that asks for more GPUs of a type than there are."""
    return f"needs {counted(job_gpus, f'{kind} GPU'.strip())}, {owner} has {capacity}"


def kind_of(job: Job) -> tuple[object, ...]:
    """Return what a placer sees of a job."""
    types = None if job.speeds is None else frozenset(job.speeds)
    profile = job.profile.name, job.profile.grad_bytes
    return (job.gpus, profile, job.collective, job.tp, job.pp, job.gpu_type, types, job.tenant, job.partition)


def _by_type(machines: Iterable[Machine]) -> dict[str | None, int]:
    """Count the GPUs of each type, and of any (None)."""
    gpus: dict[str | None, int] = {None: 0}
    for machine in machines:
        gpus[None] += machine.gpus
        gpus[machine.gpu_type] = gpus.get(machine.gpu_type, 0) + machine.gpus
    return gpus


class Feasibility:
    """Checks which jobs a placer would place on the empty cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._gpus = _by_type(cluster.machines)
        self._gpus_in: dict[str, dict[str | None, int]] = {}  # the same of the partitions that jobs name
        self._empty = ClusterState(cluster).snapshot()
        self._fits: dict[tuple[object, ...], bool] = {}

    def why_too_large(self, job: Job) -> str | None:
        """Say that there are never as many GPUs that can run a job as it needs; None if there are."""
        gpus = self._gpus if job.partition is None else self._of_partition(job.partition)
        if job.speeds is None:
            capacity = gpus.get(job.gpu_type, 0)
        else:
            capacity = sum(gpus.get(each, 0) for each in job.speeds if job.gpu_type in (None, each))
        least = job.least_gpus or job.gpus
        if least <= capacity:
            return None
        kind = job.gpu_type or " or ".join(sorted(job.speeds or ()))
        owner = f"partition {job.partition!r}" if gpus is not self._gpus else "the cluster"
        return too_large(least, capacity, kind, owner)

    def _of_partition(self, name: str) -> dict[str | None, int]:
        """Return the GPUs of a partition by type; those of the cluster if it does not list the partition."""
        if name not in self._cluster.partitions:
            return self._gpus
        if name not in self._gpus_in:
            machines = self._cluster.machines
            self._gpus_in[name] = _by_type(machines[each] for each in self._cluster.partitions[name])
        return self._gpus_in[name]

    def why_not(self, job: Job, placer: Placer) -> str | None:
        """Say why a job could never run; None if it could."""
        kind = kind_of(job)
        if kind not in self._fits:
            self._fits[kind] = placer.place(job, self._empty) is not None
        return None if self._fits[kind] else never_fits(placer.why_wait(job, self._empty))
