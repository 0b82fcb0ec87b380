"""Where a cluster is read from: what a manager such as Slurm says of machines, jobs and reservations at one time.

A backend has two roles. What starts and stops jobs is a `Backend`; where the cluster is read from is a
`ClusterSource`. One object may be both. A reading is the truth about what is there and runs; the event log of the
service is the truth about what was asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cranny.model.cluster import Cluster


class ForeignJob(NamedTuple):
    """A job that cranny did not place: it only takes GPUs and other resources of machines.

    Both are counts by machine; which GPUs they are is the manager's own matter.
    """

    id: str  # as its manager calls it
    user: str
    gpus: Mapping[str, int]  # machine -> GPUs that it holds there
    resources: Mapping[str, Mapping[str, int]]  # machine -> cpus, memory_mb, ... that it holds there
    ends_s: float | None = None  # when it ends at the latest, if its manager knows a limit


class Reservation(NamedTuple):
    """Machines that are kept for some users or accounts for a time, or for maintenance if it names none."""

    name: str
    machines: frozenset[str]
    start_s: float
    end_s: float
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()

    @property
    def maintenance(self) -> bool:
        """Whether no jobs may run there at that time."""
        return not self.users and not self.accounts


class ExternalJob(NamedTuple):
    """A job that a user gave to the manager, and that is to be placed now."""

    id: str  # as its manager calls it
    user: str
    spec: Mapping[str, Any]  # the fields of a job file, as far as the manager tells them
    priority: float  # the manager's own, by which the queue is ordered
    submitted_s: float


@dataclass(frozen=True)
class ClusterReading:
    """Everything that a manager says at one time.

    A job that the service launched is in none of the lists: the backend reports its end. `waiting` has only jobs
    that the manager would start now if they were placed; one that was released to run is no longer in it.
    """

    cluster: Cluster  # machines with their resources and features, links, partitions
    read_s: float  # since when the oldest part of it may be out of date, by the clock of the system
    unavailable: Mapping[str, str] = field(default_factory=dict)  # machine -> why it takes no new jobs
    failed: Mapping[str, str] = field(default_factory=dict)  # machine -> why nothing runs there any more
    foreign: Sequence[ForeignJob] = ()
    waiting: Sequence[ExternalJob] = ()
    reservations: Sequence[Reservation] = ()


@runtime_checkable
class ClusterSource(Protocol):
    """Where a cluster is read from; used by one thread, another one than that which starts and stops jobs."""

    def read(self) -> ClusterReading:
        """Return what is there now; raise `BackendError` or `OSError` while that cannot be said."""
        ...
