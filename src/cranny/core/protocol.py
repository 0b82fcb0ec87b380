"""The protocols of policies and networks: all that the engine, the replay and `cranny.run` ask of them.

A policy is a `Placer` or a `Policy`; a network is a `Network`. Everything else here is optional, and found by
`isinstance` of a protocol: nothing is looked up by name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cranny.core.accounting import Running
from cranny.core.constraints import Constraints
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.traffic import Communication
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan
from cranny.model.validate import counted

FIFO = "fifo"  # the queue order of policies that name none
# How many times longer than on one machine a job runs with a certain communication.
Slowdown = Callable[[Job, Communication], float]
# Jobs by id, and how many times longer than on one machine each of them runs from now on.
Slowdowns = Iterable[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class SharedSlowdowns:
    """New slowdowns of jobs that share a network, by their numbers in the network."""

    numbers: Ints
    slowdown: Floats
    ids: Mapping[int, str]
    started: int | None = None  # the job among them that starts

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Go through jobs and their slowdowns."""
        return zip((self.ids[number] for number in self.numbers.tolist()), self.slowdown.tolist(), strict=True)


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
    """Places jobs on several machines in compiled code, as `place` would; see `core.fast.placement_arrays`."""

    draft: Callable[..., int]  # compiled, of `PlacementArrays` and a `PlacementRequest`
    setting: float = 0.0  # a number of the placer's that it needs
    # Computes an entry of the memo for a job in a cluster, of its key from the second number on: mostly of the
    # machines that the job takes, `taken[f]` with f GPUs free.
    memo_entry: Callable[[Job, Sequence[int], Cluster], Sequence[int]] | None = None
    # Whether a job of so many GPUs must wait or not by the free GPUs of machines alone, whatever it sends.
    refuses_by_size: bool = False


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
class PlacerPolicy(Policy, Protocol):
    """A policy that places waiting jobs one at a time, with a placer."""

    placer: Placer


@runtime_checkable
class Ordered(Protocol):
    """A placer or policy with a queue order of its own, usually that of its paper; `core.queue` has the orders."""

    order: str


@runtime_checkable
class Reorderable(Policy, Protocol):
    """A policy on top of another one, whose queue can have another order."""

    def in_order(self, order: str, slowdown: Slowdown) -> Policy:
        """Return the same policy with its queue in this order; backfill expects placements to slow jobs so."""


@runtime_checkable
class Periodic(Protocol):
    """A placer or policy that decides in rounds, and not at every event."""

    period_s: float  # between rounds, as in its paper
    least_period_s: float  # the shortest that a run may set


@runtime_checkable
class Timed(Protocol):
    """A policy that is to be asked at certain times, too, and not only at events."""

    def next_s(self, view: Snapshot) -> float:
        """Return when to ask it if nothing happens before, after the time of the view; infinity if never."""


@runtime_checkable
class Resting(Policy, Protocol):
    """A policy that is not asked while it is at rest and no job waits: it catches up when the next one comes."""

    @property
    def at_rest(self) -> bool:
        """Whether it has nothing to do before another job comes, whatever ends till then."""

    def place_first(self, job: Job, view: Snapshot) -> Placement | None:
        """Place a job that comes while none waits where a plan would start it now; None if that takes a plan."""

    def follow(self, view: Snapshot) -> None:
        """Take over what has started and ended without deciding."""


def no_constraints(_job_id: str) -> Constraints | None:
    """Let every job run anywhere."""
    return None


def any_job(_job_id: str) -> bool:
    """Let every job be stopped."""
    return True


def no_limit(_job_id: str) -> float | None:
    """Let every job run as long as it does."""
    return None


class JobRules(NamedTuple):
    """What jobs allow, by their ids: where and for how long they may run, and whether they may be stopped."""

    constraints_of: Callable[[str], Constraints | None] = no_constraints
    may_stop: Callable[[str], bool] = any_job  # and so be moved or resized as well
    limit_s_of: Callable[[str], float | None] = no_limit  # after so many seconds a run is ended


UNRESTRICTED = JobRules()


@runtime_checkable
class RuledPolicy(Placer, Policy, Protocol):
    """A policy that plans for all jobs jointly, and keeps what each of them allows.

    For a placer the queue order sees to constraints (`core.constrained_placer`). Other policies cannot have jobs
    with constraints.
    """

    def with_rules(self, rules: JobRules) -> Policy:
        """Return the same policy, which keeps these rules from its first decision on."""


@runtime_checkable
class Remembering(Policy, Protocol):
    """A policy that knows more than a view says, such as how long jobs ran and what was promised to others."""

    def follow(self, view: Snapshot) -> None:
        """Take over what has started and ended, and learn from it, without deciding: so it is read a log."""

    def promised_starts(self) -> Mapping[str, float]:
        """Return when waiting jobs start at the latest, by their ids, as far as that is known."""

    def promises(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what was promised to waiting jobs, by their ids, as plain values that a log keeps."""

    def recall(self, promises: Mapping[str, Mapping[str, Any]], cluster: Cluster) -> None:
        """Go on from what was promised to jobs of this cluster, before the next decision."""

    def going_on(self, changed: str | None = None) -> Policy:
        """Return a copy that goes on from what this one knows, but what it promised a job that is changed."""


@runtime_checkable
class Host(Placer, Policy, Protocol):
    """A policy that can name several plans which are equally good to it, so that another may choose among them."""

    def candidates(self, view: Snapshot, count: int) -> Sequence[Plan]:
        """Return up to `count` plans with the same jobs on different machines; the first is what `plan` returns.

        Plans without actions say that there is nothing to do.
        """


class Network(Protocol):
    """What the network does to running jobs."""

    def start(self, running: Running) -> Slowdowns:
        """Add a job; return its slowdown, and those of others that it changes."""

    def end(self, job_id: str) -> Slowdowns:
        """Remove a job; return the slowdowns of others that this changes."""

    def shift(self, running: Sequence[Running]) -> Slowdowns:
        """Delay the next iterations of jobs by their new shifts; return the slowdowns that this changes."""


@runtime_checkable
class RecordingNetwork(Network, Protocol):
    """A network that records what happens on its links, for the result of a replay."""

    def note(self, now_s: float) -> None:
        """Record the changes since the last note, as of now."""

    def recorded(self) -> Mapping[str, Any]:
        """Return what was recorded, by the field of the replay's record that it belongs to."""


@runtime_checkable
class PhasedNetwork(Network, Protocol):
    """A network whose links jobs share only while they communicate, so that shifts can keep them apart."""

    in_phases: bool


@runtime_checkable
class Shifting(Policy, Protocol):
    """A policy that shifts jobs if it knows that they share links only while they communicate."""

    def expect_phases(self, *, drifting: bool = False) -> None:
        """Let it know that before it decides, and whether jobs that are not shifted drift."""


def default_order(policy: object) -> str:
    """Return the queue order of a placer or policy if the caller names none."""
    return policy.order if isinstance(policy, Ordered) else FIFO


def default_period_s(policy: object) -> float:
    """Return how often a placer or policy decides if the caller does not say; 0 for at every event."""
    return policy.period_s if isinstance(policy, Periodic) else 0.0


def least_period_s(policy: object) -> float:
    """Return the shortest period, other than 0, that a placer or policy can be given."""
    return policy.least_period_s if isinstance(policy, Periodic) else 0.0


class WaitsForGpus:
    """A placer or policy that lets a job wait when GPUs are short, or for one other reason if it has one."""

    other_reason = "can start now"

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say that GPUs are short, or else the other reason."""
        return lacks_gpus(job, view) or self.other_reason


def lacks_gpus(job: Job, view: Snapshot) -> str | None:
    """Say that there are too few free GPUs, if that is so."""
    free = view.available(job).gpus
    kind = f"{job.gpu_type} " if job.gpu_type else ""
    where = f" in partition {job.partition!r}" if job.partition in view.cluster.partitions else ""
    return f"needs {counted(job.gpus, f'{kind}GPU')}, {free} free{where}" if free < job.gpus else None
