"""The record of a job and its attempts, as the event log has them."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from cranny.core.constraints import Constraints
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.service.job_spec import JobSpec
from cranny.service.locations import Location

Status = Literal["waiting", "starting", "running", "stopping", "done", "failed", "cancelled"]
STATUSES: tuple[Status, ...] = get_args(Status)
OVER: frozenset[Status] = frozenset({"done", "failed", "cancelled"})
HELD: frozenset[Status] = frozenset({"starting", "running", "stopping"})  # while its GPUs are held


class KeptPace(NamedTuple):
    """The period that iterations of an attempt keep, and by how much they are shifted."""

    period_s: float
    shift_s: float


class ResumedAt(NamedTuple):
    """From where an attempt went on, and what the interruption cost."""

    step: int
    took_s: float  # from the start of its process to its first step
    lost_steps: int | None  # that attempts before had done, and that were done again; None if that is not known


class LastStep(NamedTuple):
    """How far an attempt came, as it reported last."""

    step: int
    iteration_s: float  # of its last iterations
    ran_s: float  # from its launch


class Leaving(NamedTuple):
    """An attempt that is asked to save before it is stopped."""

    reason: str  # moved, resized or stopped
    by_s: float  # when it is stopped at the latest


@dataclass(slots=True)
class Attempt:
    """One placement and run of a job."""

    number: int
    placed_s: float
    placement: Placement
    why: str
    facts: dict[str, Any]
    gpus: tuple[int, ...]  # the GPU of each rank on its machine
    started_s: float | None = None
    ended_s: float | None = None
    outcome: str = ""
    exit_code: int | None = None
    shifted: bool = False  # by the policy
    pace: KeptPace | None = None
    iteration_s: float | None = None  # as measured, without waits
    leaves: Leaving | None = None
    resumed: ResumedAt | None = None
    last: LastStep | None = None  # None while it runs, and if it reported no step
    control_seq: int = 0  # the event that changed its control last
    location: Location | None = None  # of the service that launched it; None in logs older than locations
    cluster: Cluster | None = None  # whose machines its placement numbers
    given: tuple[int, ...] = ()  # the GPU of each rank, if the manager of the cluster has chosen it

    def described_gpus(self) -> str:
        """Say which GPUs the manager has given it: `0, 1 of node2; 4 of node3`; empty if that is not known."""
        if not self.given or self.cluster is None:
            return ""
        on: dict[str, list[str]] = {}
        for machine, gpu in zip(self.placement.machines, self.given, strict=True):
            on.setdefault(self.cluster.machines[machine].name, []).append(str(gpu))
        return "; ".join(f"{', '.join(gpus)} of {name}" for name, gpus in on.items())


@dataclass(slots=True)
class JobRecord:
    """The state of one job."""

    id: str
    user: str
    spec: JobSpec
    job: Job
    constraints: Constraints | None
    submitted_s: float
    status: Status = "waiting"
    reason: str = ""  # why it failed, was cancelled, or waits again
    attempts: list[Attempt] = field(default_factory=list)
    failures: int = 0  # that count against max_retries
    ended_s: float | None = None
    wanted: bool = True  # False once it was cancelled
    leaving: list[Attempt] = field(default_factory=list)  # stopped or moved, with processes that may still run
    observed: Placement | None = None  # where another scheduler runs it
    observed_s: float | None = None  # since when
    observed_on: Cluster | None = None  # whose machines that placement numbers
    client_key: str | None = None  # with which it was submitted
    external: str = ""  # what the manager of the cluster calls it
    external_spec: dict[str, Any] | None = None  # as the manager had it, if it came from there
    external_priority: float | None = None  # the manager's own, if it came from there

    @property
    def attempt(self) -> Attempt | None:
        """The latest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def key(self) -> tuple[str, str]:
        """What profiles are learned by: its user and its name, or its id if it has none."""
        return self.user, self.spec.name or self.id

    @property
    def over(self) -> bool:
        """Whether the job is in a final status."""
        return self.status in OVER

    @property
    def waits_since_s(self) -> float:
        """Since when a waiting job waits: its submission, or the end of its last attempt."""
        attempt = self.attempt
        ended_s = None if attempt is None else attempt.ended_s
        return self.submitted_s if ended_s is None else ended_s

    def as_stated(self) -> Job:
        """Return the job as its user has described it, with the priority that its manager gave it."""
        job = self.spec.job(self.id, self.user, self.submitted_s)
        return job if self.external_priority is None else replace(job, priority=self.external_priority)
