"""The two protocols of a policy, and what some can do besides. There are no other hooks."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan
from cranny.model.validate import counted


@runtime_checkable
class Placer(Protocol):
    """Places one job at a time; a queue order decides which."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Return where the job should run, or None if it must wait."""

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say in a few words why a job that `place` refused must wait."""


@runtime_checkable
class FirstChoices(Placer, Protocol):
    """A placer whose choice of one machine follows from the free GPUs alone, so that it can be compiled.

    It looks at nothing but free GPUs and links, names no GPUs, holds no spares, and on an empty cluster starts
    every job that fits one machine.
    """

    fragments_before_idle: bool  # whether a job goes to an idle machine only if non-idle ones cannot hold it

    def first_choices(self, gpus: int, size: int) -> Sequence[int]:
        """Say which numbers of free GPUs a job looks for, in order, on machines of `size` GPUs each.

        The job, of at most `size` GPUs, goes to the lowest machine with the first of them; `size` itself means an
        idle machine. If there is none, or it is smaller than the job, the job needs several machines: `place`
        decides, or the drafter of a placer that has one.
        """


class Drafter(NamedTuple):
    """Places jobs on several machines in compiled code, as `place` would; see `core.seating.room`."""

    draft: Callable[..., int]  # compiled, of a `Room` and an `Ask`
    setting: float = 0.0  # a number of the placer's that it needs
    # What it must know, of a job and the machines that it takes, `taken[f]` with f GPUs free; asked for once.
    learn: Callable[[Job, Sequence[int]], Sequence[int]] | None = None


@runtime_checkable
class Drafting(FirstChoices, Protocol):
    """A placer of which also the choice of several machines is compiled."""

    def drafter(self) -> Drafter:
        """Return what drafts its placements; a subclass with another `place` is not drafted by its parent's."""


@runtime_checkable
class Policy(Protocol):
    """Chooses among jobs, and may stop, move or shift them."""

    def key(self, waiting: Waiting) -> Any:
        """Return what the queue is sorted by, least first."""

    def plan(self, view: Snapshot) -> Plan:
        """Return what should be done now; an empty plan if nothing."""

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say in a few words why a job that was not started must wait."""


@runtime_checkable
class Host(Placer, Policy, Protocol):
    """A policy that can name several plans which are equally good to it, so that another may choose among them."""

    def candidates(self, view: Snapshot, count: int) -> Sequence[Plan]:
        """Return up to `count` plans with the same jobs on different machines; the first is what `plan` returns.

        Plans without actions say that there is nothing to do.
        """


def lacks_gpus(job: Job, view: Snapshot) -> str | None:
    """Say that there are too few free GPUs, if that is so."""
    free = view.available(job).gpus
    kind = f"{job.gpu_type} " if job.gpu_type else ""
    return f"needs {counted(job.gpus, f'{kind}GPU')}, {free} free" if free < job.gpus else None
