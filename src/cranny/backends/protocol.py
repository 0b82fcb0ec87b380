"""The protocol of backends, the values that they exchange with the service, and the GPU slots of launches."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol, runtime_checkable

from cranny.backends.resource_limits import NO_LIMITS, ResourceLimits
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.model.placement import Aggregation

Reason = Literal["finished", "failed", "cancelled", "timed out", "lost"]
# In place of a reason: the attempt was withdrawn because the service ended, or its manager does not start it.
NOT_STARTED: Final = "not started"

GRACE_S = 10.0  # between SIGTERM and SIGKILL


class BackendError(CrannyError):
    """A backend cannot start an attempt; nothing was started."""


class Rank(NamedTuple):
    """The machine and GPU slot of one rank."""

    rank: int
    machine: int
    gpu: int  # the GPU slot on its machine


@dataclass(frozen=True)
class Launch:
    """One attempt to run a job: everything that a backend needs to know."""

    job_id: str
    attempt: int
    argv: tuple[str, ...]  # of every rank; never interpreted by a shell
    ranks: tuple[Rank, ...]
    env: Mapping[str, str] = field(repr=False)  # may hold secrets, which must not be logged
    cwd: Path | None
    log_dir: Path  # of this attempt
    time_limit_s: float | None
    torchrun: bool = False  # start through torchrun, with one agent a machine
    server: int | None = None  # the machine of the parameter server, if any
    aggregate: Aggregation = True  # the switches that aggregate on the way to it
    launched_s: float | None = None  # when an earlier service launched it; None if it is new
    user: str = ""  # whose job it is
    limits: ResourceLimits = NO_LIMITS  # that the job sets itself
    external: str = (
        ""  # what the manager of the cluster calls the job, if it came from there or was launched before
    )
    # The name of the machine of each rank: numbers are those of the service's cluster, which may have changed.
    machines: tuple[str, ...] = ()
    note: str = ""  # why the ranks are there, for people who look at the job in the manager

    @property
    def slots(self) -> frozenset[tuple[object, int]]:
        """The GPU slots that it takes: the machine, by its name if that is known, and the GPU on it."""
        where: Sequence[object] = self.machines or [rank.machine for rank in self.ranks]
        return frozenset((machine, rank.gpu) for machine, rank in zip(where, self.ranks, strict=True))


class JobChannel(NamedTuple):
    """Where the service and a running attempt exchange the files of `cranny.channel`."""

    folder: Path
    token: str  # that its reports must name


class Ended(NamedTuple):
    """How an attempt ended.

    The exit code is that of the first rank that failed, or 0; minus the signal if a signal killed it; None if it
    is unknown, or if no process was started.
    """

    job_id: str
    attempt: int
    exit_code: int | None
    reason: Reason | Literal["not started"]
    detail: str = ""


class Backend(Protocol):
    """Runs jobs.

    Every attempt that was launched is reported as ended once, by `poll` or `adopt`, and none of its processes is
    left then. A backend is used by one thread.

    A call may fail although it has done what it was asked to, or part of it. A `launch` that raised `OSError` is
    called again with the same attempt, which must not run twice then.

    `stop`, `poll` and `adopt` raise `OSError` while the system cannot say what runs, as when no more files may be
    opened. Nothing is lost then: call them again later, with the same arguments.
    """

    def nodes(self) -> Cluster:
        """Return the machines and their GPU slots."""
        ...

    def launch(self, what: Launch) -> None:
        """Start an attempt and return at once; raise `BackendError` if it cannot start."""
        ...

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        """Send SIGTERM to all processes of a job, and SIGKILL after the grace period; return at once.

        The default of `grace_s` is the backend's own, as for jobs that reach their time limit. The attempt is
        reported as cancelled, unless it had ended before. A job that does not run is ignored.
        """
        ...

    def signal(self, job_id: str, number: int) -> None:
        """Send a signal to those processes of a job that have a handler for it; return at once.

        A job that does not run is ignored. If no handler is installed yet, nothing is sent.
        """
        ...

    def channel(self, job_id: str) -> JobChannel | None:
        """Return the channel to a running job; None if it does not run, or was launched without one."""
        ...

    def poll(self) -> Sequence[Ended]:
        """Return the attempts that ended since the last poll, without waiting."""
        ...

    def adopt(self, launches: Sequence[Launch]) -> Sequence[Ended]:
        """Take over attempts of an earlier service; return those that ended or are lost, the others keep running.

        An attempt that was never launched counts as lost, and can no longer start.
        """
        ...

    def close(self) -> None:
        """Release all resources; jobs keep running, and `adopt` of another backend finds them."""
        ...


@runtime_checkable
class LeavesProcesses(Protocol):
    """A backend that knows which processes are left of attempts that ought to have ended."""

    def left(self) -> Mapping[str, Sequence[str]]:
        """Return the processes that keep the GPUs of a job held, as of the last poll, by job."""
        ...


@runtime_checkable
class NamesJobs(Protocol):
    """A backend whose manager has ids of its own for jobs."""

    def external_id(self, job_id: str) -> str:
        """Return what the manager calls a job that was launched; empty if that is not known."""
        ...


class GivenGpus(NamedTuple):
    """The GPUs of an attempt that its manager has chosen."""

    job_id: str
    attempt: int
    gpus: Mapping[str, tuple[int, ...]]  # machine -> which of its GPUs


@runtime_checkable
class ChoosesGpus(Protocol):
    """A backend whose manager chooses the GPUs of a job on its machines."""

    def given(self) -> Sequence[GivenGpus]:
        """Return what was chosen for attempts since the last call, without waiting."""
        ...


@runtime_checkable
class ShowsReasons(Protocol):
    """A source that can show users of the manager why their jobs wait, and where they were placed and why."""

    def show(self, reasons: Mapping[str, str]) -> None:
        """Show reasons in one line each, by the manager's ids of jobs; called by the thread that reads."""
        ...


class Slots:
    """The GPU slots of a cluster, each held by at most one job."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._holder: dict[tuple[object, int], str] = {}  # by machine, its name if that is known, and GPU

    def take(self, what: Launch) -> None:
        """Reserve all slots of an attempt, or raise `BackendError`."""
        check(what, self._cluster)
        for rank, key in zip(what.ranks, self._keys(what), strict=True):
            holder = self._holder.get(key)
            if holder is not None:
                where = f"GPU {rank.gpu} of machine {key[0]}: job {holder!r} holds it"
                raise BackendError(f"job {what.job_id!r}: rank {rank.rank} cannot have {where}")
        self.hold(what)

    def hold(self, what: Launch) -> None:
        """Record the slots of a running attempt, even if the cluster has changed since it was launched."""
        self._holder.update((key, what.job_id) for key in self._keys(what))

    def release(self, what: Launch) -> None:
        """Release the slots of an attempt."""
        for key in self._keys(what):
            if self._holder.get(key) == what.job_id:
                del self._holder[key]

    def _keys(self, what: Launch) -> list[tuple[object, int]]:
        """Return the slots of the ranks."""
        machines = self._cluster.machines
        names: Sequence[object] = what.machines or [
            machines[rank.machine].name if rank.machine < len(machines) else rank.machine for rank in what.ranks
        ]
        return [(name, rank.gpu) for name, rank in zip(names, what.ranks, strict=True)]


def as_numbered(what: Launch, cluster: Cluster) -> Launch:
    """Return a launch with the numbers that its machines have in a cluster, if it names them and all are there."""
    index = {machine.name: number for number, machine in enumerate(cluster.machines)}
    if not what.machines or any(name not in index for name in what.machines):
        return what
    ranks = zip(what.ranks, what.machines, strict=True)
    return replace(what, ranks=tuple(rank._replace(machine=index[name]) for rank, name in ranks))


def numbered(machines: Sequence[int], *, torchrun: bool) -> tuple[int, ...]:
    """Return the machine of every rank, as ranks are numbered inside the job, from those of its placement.

    torchrun numbers ranks machine by machine, whatever their order in the placement.
    """
    if not torchrun:
        return tuple(machines)
    counts = Counter(machines)  # in the order of their first ranks
    return tuple(counts.elements())


def check(what: Launch, cluster: Cluster) -> None:
    """Raise `BackendError` if a launch is invalid."""
    job = f"job {what.job_id!r}"
    if not what.argv or not what.argv[0]:
        raise BackendError(f"{job}: the command is empty")
    if [rank.rank for rank in what.ranks] != list(range(len(what.ranks))) or not what.ranks:
        raise BackendError(f"{job}: ranks must be 0, 1, 2, ... in this order")
    if len({(rank.machine, rank.gpu) for rank in what.ranks}) != len(what.ranks):
        raise BackendError(f"{job}: two ranks are on the same GPU")
    for rank, machine, gpu in what.ranks:
        if not 0 <= machine < len(cluster.machines) or not 0 <= gpu < cluster.machines[machine].gpus:
            raise BackendError(f"{job}: rank {rank} is on GPU {gpu} of machine {machine}, which does not exist")
    for name, value in what.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise BackendError(f"{job}: {name!r} cannot be an environment variable, or cannot have its value")
    if any("\0" in text for text in what.argv):
        raise BackendError(f"{job}: the command holds a zero byte")
    limit = what.time_limit_s
    if limit is not None and not (0 < limit < math.inf):
        raise BackendError(f"{job}: the time limit must be a positive number of seconds, not {limit}")
