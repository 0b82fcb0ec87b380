"""The protocol of backends, and the values that they exchange with the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError

Reason = Literal["finished", "failed", "cancelled", "timed out", "lost"]

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


class Ended(NamedTuple):
    """How an attempt ended.

    The exit code is that of the first rank that failed, or 0; minus the signal if a signal killed it; None if it
    is unknown, or if no process was started.
    """

    job_id: str
    attempt: int
    exit_code: int | None
    reason: Reason


class Backend(Protocol):
    """Runs jobs.

    Every attempt that was launched is reported as ended once, by `poll` or `adopt`, and none of its processes is
    left then. A backend is used by one thread.

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
