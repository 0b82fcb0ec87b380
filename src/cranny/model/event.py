"""What can happen to a cluster: the events that drive the engine."""

from dataclasses import dataclass

from cranny.model.job import Job


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job asks to run."""

    job: Job


@dataclass(frozen=True, slots=True)
class Finished:
    """A running job is done."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A waiting or running job is no longer wanted."""

    job_id: str


@dataclass(frozen=True, slots=True)
class MachineFailed:
    """A machine is gone; its jobs stop."""

    machine: int


@dataclass(frozen=True, slots=True)
class MachineDrained:
    """A machine takes no new jobs; its running ones go on."""

    machine: int


@dataclass(frozen=True, slots=True)
class MachineRepaired:
    """A failed or drained machine takes jobs again."""

    machine: int


@dataclass(frozen=True, slots=True)
class MachineJoined:
    """A machine comes to the cluster, which lists it from the beginning, or returns after it left."""

    machine: int


@dataclass(frozen=True, slots=True)
class MachineLeft:
    """A machine leaves the cluster; its jobs stop."""

    machine: int


Event = (
    Submitted
    | Finished
    | Cancelled
    | MachineFailed
    | MachineDrained
    | MachineRepaired
    | MachineJoined
    | MachineLeft
)
