"""A plan: what a policy wants done now. Committed plans are also the commands that a shell carries out."""

from typing import NamedTuple

from cranny.model.job import Job
from cranny.model.placement import Placement


class Start(NamedTuple):
    """Start a job on these machines; it may have had some GPU-seconds before."""

    job: Job
    placement: Placement
    attained_gpu_s: float = 0.0

    @property
    def job_id(self) -> str:
        """The job's name, as other actions have it."""
        return self.job.id


class Stop(NamedTuple):
    """Stop a running job; it waits again. Its work is saved first, unless a failure made it `sudden`."""

    job_id: str
    reason: str
    sudden: bool = False


class Move(NamedTuple):
    """Carry a running job over to other machines."""

    job_id: str
    placement: Placement


class Shift(NamedTuple):
    """Delay the next iteration of a running job."""

    job_id: str
    shift_s: float


class Aggregate(NamedTuple):
    """Let other switches aggregate for a running job; nothing else of its placement changes."""

    job_id: str
    placement: Placement


Action = Start | Stop | Move | Shift | Aggregate


class Plan(NamedTuple):
    """Actions that take effect together or not at all, made for one version of the state."""

    version: int
    actions: tuple[Action, ...] = ()
