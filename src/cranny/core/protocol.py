"""The two protocols of a policy. There are no other hooks."""

from typing import Any, Protocol, runtime_checkable

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan


@runtime_checkable
class Placer(Protocol):
    """Places one job at a time; a queue order decides which."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Return where the job should run, or None if it must wait."""

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say in a few words why a job that `place` refused must wait."""


class Policy(Protocol):
    """Chooses among jobs, and may stop, move or shift them."""

    def key(self, waiting: Waiting) -> Any:
        """Return what the queue is sorted by, least first."""

    def plan(self, view: Snapshot) -> Plan:
        """Return what should be done now; an empty plan if nothing."""

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say in a few words why a job that was not started must wait."""


def lacks_gpus(job: Job, view: Snapshot) -> str | None:
    """Say that there are too few free GPUs, if that is so."""
    free = view.offer(job).gpus
    kind = f"{job.gpu_type} " if job.gpu_type else ""
    return f"needs {job.gpus} {kind}GPUs, {free} free" if free < job.gpus else None
