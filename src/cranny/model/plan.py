"""A plan: what a policy wants done now. Committed plans are also the commands that a shell carries out."""

from dataclasses import dataclass

from cranny.model.job import Job
from cranny.model.placement import Placement


@dataclass(frozen=True, slots=True)
class Start:
    """Start a job on these machines; it may have had some GPU-seconds before."""

    job: Job
    placement: Placement
    attained_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a running job; it waits again with the work it has done kept."""

    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Move:
    """Carry a running job over to other machines."""

    job_id: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Shift:
    """Delay the next iteration of a running job."""

    job_id: str
    shift_s: float


Action = Start | Stop | Move | Shift


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions that take effect together or not at all, made for one version of the state."""

    version: int
    actions: tuple[Action, ...] = ()
