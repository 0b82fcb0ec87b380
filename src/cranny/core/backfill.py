"""Backfilling: later jobs start first where they delay no job that a start is reserved for.

EASY reserves a start for the first job of the queue only, conservative backfilling for each of the first many, as
Slurm's backfill does. Both expect a job to run as long as its `duration_s` says, which in the replay of a log is
the limit that its user asked for. Jobs that share no machine with one another, by type of GPU or partition, are in
queues of their own, each with a first job.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cranny.core.protocol import Placer, Slowdown
from cranny.core.snapshot import ALL, Snapshot, Waiting
from cranny.core.traffic import isolated
from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.job import Job
from cranny.model.plan import Plan, Start

# How many jobs behind the first are tried when it does not fit; batch schedulers bound this too.
DEPTH = 100
OVERDUE_S = 1.0  # from now, when a job is expected to end that has run for longer than was expected


@dataclass(frozen=True, slots=True)
class ReservedStart:
    """When the first job of the queue can start at the latest, and the GPUs it could use that are left over."""

    start_s: float
    extra_gpus: int


@dataclass(slots=True)
class _Line:
    """Waiting jobs that are linked by machines which several of them could use."""

    machines: int  # that any of them could use, as a set
    first_can_use: int
    reserved: ReservedStart | None  # of its first job
    tried: int = 0


def easy(view: Snapshot, placer: Placer, slowdown: Slowdown = isolated) -> Plan:
    """Start a job that delays no first one: it ends before that could start, or leaves it enough GPUs.

    The first job of the whole queue is known not to fit.
    """
    lines: list[_Line] = []
    for waiting in view.waiting:
        job = waiting.job
        eligible = view.eligible(job)
        ahead = [line for line in lines if line.machines & eligible]
        placed = None
        if ahead:
            if all(line.tried < DEPTH for line in ahead):
                placed = _passing(waiting, ahead, view, placer, slowdown)
            for line in ahead:
                line.tried += 1
                line.machines |= eligible
        else:
            if lines:  # it is the first of those that could use its machines
                placement = placer.place(job, view)
                placed = None if placement is None else Start(job, placement, waiting.attained_gpu_s)
            lines.append(_Line(eligible, eligible, reservation(job, view, slowdown)))
        if placed is not None:
            return Plan(view.version, (placed,))
        if lines[0].machines == ALL and all(line.reserved is None or line.tried >= DEPTH for line in lines):
            break
    return Plan(view.version)


def _passing(
    waiting: Waiting, ahead: list[_Line], view: Snapshot, placer: Placer, slowdown: Slowdown
) -> Start | None:
    """Start a job if it delays none of the first jobs that could use the same machines."""
    job = waiting.job
    best = 1.0 if job.speeds is None else 1.0 / max(job.speeds.values(), default=1.0)
    for line in ahead:
        can_use = line.first_can_use
        elsewhere = 0 if can_use == ALL else view.available(job).only(~can_use).gpus
        if line.reserved is None or not _may_pass(
            waiting, line.reserved, view, max(0, job.gpus - elsewhere), best
        ):
            return None  # not even where it runs best, and with all that it can have of other GPUs
    placement = placer.place(job, view)
    if placement is None:
        return None
    running = view.as_running(job, placement)
    slower = slowdown(running.job, running.communication) * running.stretch
    for line in ahead:
        gpus = running.gpus_on(line.first_can_use & view.up_machines)
        if line.reserved is None or not _may_pass(waiting, line.reserved, view, gpus, slower):
            return None
    return Start(job, placement, waiting.attained_gpu_s)


def reservation(job: Job, view: Snapshot, slowdown: Slowdown = isolated) -> ReservedStart | None:
    """Count the GPUs that come free as running jobs end, until there are enough; None if that is unknown.

    EASY counts GPUs only, not where they are, as batch schedulers do. GPUs that cannot run the job do not
    count, nor do the ends of jobs that hold only such.
    """
    free = view.available(job).gpus
    eligible = view.eligible(job)
    ends = []
    for running in view.running.values():
        if running.job.duration_s is not None:
            slower = slowdown(running.job, running.communication) * running.stretch
            left_s = remaining_s(running.job, running.attained_gpu_s, slower)
            ends.append((running.started_s + left_s, running.gpus_on(eligible & view.up_machines)))
    for end_s, gpus in sorted(ends):
        free += gpus
        if gpus and free >= job.gpus:
            return ReservedStart(max(end_s, view.now_s), free - job.gpus)
    return None


def _may_pass(waiting: Waiting, reserved: ReservedStart, view: Snapshot, gpus: int, slowdown: float) -> bool:
    """Say whether a job on `gpus` GPUs that the first could use ends before that starts, or fits beside it."""
    end_s = view.now_s + remaining_s(waiting.job, waiting.attained_gpu_s, slowdown)
    return end_s <= reserved.start_s or gpus <= reserved.extra_gpus


def remaining_s(job: Job, attained_gpu_s: float, slowdown: float) -> float:
    """Return how long a job still runs that takes so many times longer than on one machine; inf if unknown."""
    if job.duration_s is None:
        return math.inf
    return max(0.0, job.duration_s * slowdown - attained_gpu_s / job.gpus)


def conservative(view: Snapshot, placer: Placer, slowdown: Slowdown = isolated) -> Plan:
    """Start a job that delays none before it: in the order of the queue, each gets the earliest start there is.

    GPUs are counted, not where they are, but for machines that not every job can use.
    """
    planned = list(_in_reach(view))
    if not planned:
        return Plan(view.version)
    from cranny.core.backfill_kernel import earliest_starts  # importing the compiler takes a second

    kinds = _machine_kinds(view, [eligible for _, eligible in planned])
    free = np.array([view.machines.only(kind).gpus for kind in kinds], dtype=np.int64)
    end_s, held = _expected_ends(view, kinds, slowdown)
    usable = np.array([[bool(eligible & kind) for kind in kinds] for _, eligible in planned])
    start_s = earliest_starts(
        view.now_s,
        free,
        end_s,
        held,
        np.array([waiting.job.gpus for waiting, _ in planned], dtype=np.int64),
        np.array([remaining_s(each.job, each.attained_gpu_s, 1.0) for each, _ in planned]),
        usable,
        _rarest_first(usable),
    )
    for at in np.flatnonzero(start_s <= view.now_s).tolist():
        waiting = planned[at][0]
        placement = placer.place(waiting.job, view)
        if placement is not None:
            return Plan(view.version, (Start(waiting.job, placement, waiting.attained_gpu_s),))
    return Plan(view.version)


def _in_reach(view: Snapshot) -> Iterator[tuple[Waiting, int]]:
    """Yield the jobs that are planned for, with the machines that they can use: the first so many of each kind."""
    seen: dict[int, int] = {}
    for waiting in view.waiting:
        eligible = view.eligible(waiting.job)
        seen[eligible] = seen.get(eligible, 0) + 1
        if seen[eligible] <= DEPTH:
            yield waiting, eligible
        elif eligible == ALL and len(seen) == 1 and not view.cluster.partitions:
            return


def _machine_kinds(view: Snapshot, sets: list[int]) -> list[int]:
    """Divide the machines that take jobs by which of some sets they belong to; return the parts, as sets."""
    whole = view.up_machines & (1 << len(view.cluster.machines)) - 1
    kinds = [whole]
    for machines in dict.fromkeys(sets):
        kinds = [part for kind in kinds for part in (kind & machines, kind & ~machines) if part]
    return kinds


def _expected_ends(view: Snapshot, kinds: list[int], slowdown: Slowdown) -> tuple[Floats, Ints]:
    """Return when running jobs are expected to end, (running,), and their GPUs of each kind, (running, kinds)."""
    running = list(view.running.values())
    end_s = np.empty(len(running))
    held = np.zeros((len(running), len(kinds)), dtype=np.int64)
    for at, each in enumerate(running):
        slower = slowdown(each.job, each.communication) * each.stretch
        expected_s = each.started_s + remaining_s(each.job, each.attained_gpu_s, slower)
        end_s[at] = expected_s if expected_s > view.now_s else view.now_s + OVERDUE_S
        held[at] = [each.gpus_on(kind) for kind in kinds]
    order = np.argsort(end_s, kind="stable")
    return end_s[order], held[order]


def _rarest_first(usable: Flags) -> Ints:
    """Return the kinds of machine in the order in which a job takes them: first those that fewer jobs can use."""
    return np.argsort(usable.sum(axis=0), kind="stable")
