"""Jobs that could never run: a replay leaves them out, for they would block the others for good."""

from cranny.core.protocol import Placer
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.number import counted


def never(reason: str) -> str:
    """Say why a job is left out that does not start although nothing runs."""
    return f"does not fit the empty cluster: {reason}"


def too_large(job_gpus: int, capacity: int, kind: str = "") -> str:
    """Say why a job is left out that asks for more GPUs of a kind than there are."""
    return f"needs {counted(job_gpus, f'{kind} GPU'.strip())}, the cluster has {capacity}"


class Possible:
    """Knows which jobs a placer would place on the empty cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._empty = ClusterState(cluster).snapshot()
        self._known: dict[tuple[object, ...], bool] = {}  # of jobs alike

    def why_not(self, job: Job, placer: Placer) -> str | None:
        """Say why a job could never run; None if it could."""
        types = None if job.speeds is None else frozenset(job.speeds)
        alike = (job.gpus, job.profile.name, job.collective, job.tp, job.pp, job.gpu_type, types, job.tenant)
        if alike not in self._known:
            self._known[alike] = placer.place(job, self._empty) is not None
        return None if self._known[alike] else never(placer.why_wait(job, self._empty))
