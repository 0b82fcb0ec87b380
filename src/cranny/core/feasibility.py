"""Feasibility: which jobs could never run. A replay skips them, since they would block the queue for good."""

from cranny.core.protocol import Placer
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.validate import counted


def never_fits(reason: str) -> str:
    """Say why a job is skipped that does not start although nothing runs."""
    return f"does not fit the empty cluster: {reason}"


def too_large(job_gpus: int, capacity: int, kind: str = "") -> str:
    """Say why a job is skipped that asks for more GPUs of a type than there are."""
    return f"needs {counted(job_gpus, f'{kind} GPU'.strip())}, the cluster has {capacity}"


def kind_of(job: Job) -> tuple[object, ...]:
    """Return what a placer sees of a job."""
    types = None if job.speeds is None else frozenset(job.speeds)
    profile = job.profile.name, job.profile.grad_bytes
    return (job.gpus, profile, job.collective, job.tp, job.pp, job.gpu_type, types, job.tenant)


class Feasibility:
    """Checks which jobs a placer would place on the empty cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._gpus: dict[str | None, int] = {None: cluster.gpus}  # of each type, and of any (None)
        for machine in cluster.machines:
            self._gpus[machine.gpu_type] = self._gpus.get(machine.gpu_type, 0) + machine.gpus
        self._empty = ClusterState(cluster).snapshot()
        self._fits: dict[tuple[object, ...], bool] = {}

    def why_too_large(self, job: Job) -> str | None:
        """Say that there are never as many GPUs that can run a job as it needs; None if there are."""
        if job.speeds is None:
            capacity = self._gpus.get(job.gpu_type, 0)
        else:
            capacity = sum(self._gpus.get(each, 0) for each in job.speeds if job.gpu_type in (None, each))
        least = job.least_gpus or job.gpus
        if least <= capacity:
            return None
        return too_large(least, capacity, job.gpu_type or " or ".join(sorted(job.speeds or ())))

    def why_not(self, job: Job, placer: Placer) -> str | None:
        """Say why a job could never run; None if it could."""
        kind = kind_of(job)
        if kind not in self._fits:
            self._fits[kind] = placer.place(job, self._empty) is not None
        return None if self._fits[kind] else never_fits(placer.why_wait(job, self._empty))
