"""From new numbers of workers to machines, and to plans whose actions find their GPUs free, with few moves."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from cranny.core.accounting import Running, attained_gpu_s
from cranny.core.protocol import WaitsForGpus
from cranny.core.queue import BySubmission
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Move, Plan, Start, Stop
from cranny.policies._shared.candidates import JobMachines, as_trained
from cranny.policies._shared.promises import GpuPool

# Chooses machines for a number of workers, given the free GPUs of each; None if there are too few.
ChooseMachines = Callable[[int, Sequence[int], Cluster], tuple[int, ...] | None]


class ResizingPolicy(BySubmission, WaitsForGpus):
    """A policy that gives jobs numbers of workers; the machines for them follow from `_choose`."""

    _choose: ChooseMachines

    @abstractmethod
    def candidates(self, view: Snapshot, count: int) -> list[Plan]:
        """Return plans with the same numbers of workers on different machines."""

    def plan(self, view: Snapshot) -> Plan:
        """Return the first of the plans."""
        return self.candidates(view, 1)[0]

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job as if it were alone, with all of its workers."""
        found = self._choose(job.gpus, view.usable(job, view.free).tolist(), view.cluster)
        return None if found is None else view.placement(job, found)


def elastic(job: Job) -> bool:
    """Say whether a job can run with other numbers of workers than it asks for."""
    return job.least_gpus is not None or job.most_gpus is not None


def all_jobs(view: Snapshot) -> Iterator[Job]:
    """Yield the jobs that wait and those that run, as they were submitted."""
    yield from (each.job for each in view.waiting)
    yield from (each.submitted for each in view.running.values())


def without_jobs(view: Snapshot, job_ids: Iterable[str]) -> Snapshot:
    """Return the view without some running jobs."""
    for job_id in job_ids:
        view = view.without(job_id)
    return view


def place_resized(
    sizes: Mapping[str, int], running: Mapping[str, Running], base: Snapshot, choose: ChooseMachines
) -> JobMachines:
    """Return machines for jobs that get so many workers; `base` is the cluster without any of them.

    A running job whose size is what it was stays where it is, and one that shrinks keeps some of its machines. The
    others are placed anew, the largest first. If a job finds no machines so, because others have those of the
    types that it can use, all are placed again, those first that can use the fewest. Jobs that still find none are
    skipped; a running one stays where it is if its GPUs are free.
    """
    largest = sorted(sizes, key=lambda job_id: -sizes[job_id])
    resizing = _Resizing(sizes, running, base, choose)
    keeping = [job_id for job_id in sizes if job_id in running and sizes[job_id] <= sum(resizing.own(job_id))]
    for job_id in [*keeping, *[job_id for job_id in largest if job_id not in keeping]]:
        resizing.take(job_id, resizing.choice(job_id, keep=job_id in keeping))
    if len(resizing.machines_of) < len(sizes):
        again = _Resizing(sizes, running, base, choose)
        usable = {job_id: sum(again.usable(job_id)) for job_id in sizes}
        for job_id in sorted(largest, key=lambda job_id: (usable[job_id], job_id not in keeping)):
            again.take(job_id, again.choice_leaving_others(job_id, keep=job_id in keeping))
        if len(again.machines_of) > len(resizing.machines_of):
            resizing = again
    for job_id, each in running.items():
        if job_id not in resizing.machines_of and sum(resizing.own(job_id)) == len(each.placement.machines):
            resizing.take(job_id, each.placement.machines)
    return resizing.machines_of


class _Resizing:
    """Places jobs one after the other on what is free."""

    def __init__(
        self, sizes: Mapping[str, int], running: Mapping[str, Running], base: Snapshot, choose: ChooseMachines
    ) -> None:
        self.machines_of: dict[str, tuple[int, ...]] = {}
        self._sizes, self._running, self._base, self._choose = sizes, running, base, choose
        self._free: list[int] = base.free.tolist()
        jobs = {each.job.id: each.job for each in base.waiting if each.job.id in sizes}
        self._jobs = jobs | {job_id: each.submitted for job_id, each in running.items()}

    def own(self, job_id: str) -> list[int]:
        """Return the free GPUs that ranks of a running job had, (machines,); none where machines went down."""
        counts = Counter(self._running[job_id].placement.machines)
        return [min(gpus, counts[machine]) for machine, gpus in enumerate(self._free)]

    def usable(self, job_id: str) -> list[int]:
        """Return the free GPUs that a job can use, (machines,)."""
        found: list[int] = self._base.usable(self._jobs[job_id], np.array(self._free)).tolist()
        return found

    def choice(self, job_id: str, *, keep: bool) -> tuple[int, ...] | None:
        """Return machines for a job; it is to keep those that it has as far as it needs them and they are free."""
        size = self._sizes[job_id]
        own = self.own(job_id) if keep else []
        if sum(own) < size:
            return self._choose(size, self.usable(job_id), self._base.cluster)
        machines = self._running[job_id].placement.machines
        return machines if len(machines) == size else self._choose(size, own, self._base.cluster)

    def choice_leaving_others(self, job_id: str, *, keep: bool) -> tuple[int, ...] | None:
        """Return machines for a job that leave enough for the jobs after it; any such machines, if need be."""
        found = self.choice(job_id, keep=keep)
        after = GpuPool(self._free.copy())
        for other, size in self._sizes.items():
            if other != job_id and other not in self.machines_of:
                after.take(self._base.eligible(self._jobs[other]), size)
        if found is None or not after.without(found).short():
            return found
        suited, taken = self._base.eligible(self._jobs[job_id]), list[int]()
        after.take(suited, self._sizes[job_id])
        for machine, gpus in enumerate(self.usable(job_id)):
            for _ in range(min(gpus, self._sizes[job_id] - len(taken))):
                after.take(suited, -1)
                if after.without([*taken, machine]).short():
                    after.take(suited, 1)
                    break
                taken.append(machine)
        return tuple(taken) if len(taken) == self._sizes[job_id] else found

    def take(self, job_id: str, machines: tuple[int, ...] | None) -> None:
        """Give a job machines, if it found some."""
        if machines is not None:
            self.machines_of[job_id] = machines
            for machine in machines:
                self._free[machine] -= 1


def plans(
    choices: Iterable[JobMachines],
    view: Snapshot,
    base: Snapshot,
    stopped: Mapping[str, str],
    notes: Mapping[str, str],
) -> list[Plan]:
    """Return a plan for each choice of machines; `base` is the cluster without the jobs that get some.

    Jobs that hold GPUs are moved, or stopped for the reason in `stopped`; waiting jobs are started; jobs
    that are where they should be stay.
    """
    choices = list(choices)
    named = set().union(*choices)
    waiting = {each.job.id: each for each in view.waiting if each.job.id in named}
    found = []
    for each in choices:
        moves: dict[str, Placement] = {}
        starts: list[Start] = []
        for job_id, machines in each.items():
            job = waiting[job_id].job if job_id in waiting else view.running[job_id].submitted
            placement = base.placement(as_trained(job, len(machines)), machines, note=notes.get(job_id, ""))
            if job_id in waiting:
                starts.append(Start(job, placement, waiting[job_id].attained_gpu_s))
            elif machines != view.running[job_id].placement.machines:
                moves[job_id] = placement
        stops = [Stop(job_id, reason) for job_id, reason in stopped.items()]
        found.append(Plan(view.version, (*stops, *feasible_order(view, moves, starts, stopped))))
    return found


SWAP = "swaps GPUs with another job"


def feasible_order(
    view: Snapshot, moves: Mapping[str, Placement], starts: Sequence[Start], stopped: Iterable[str] = ()
) -> tuple[Action, ...]:
    """Return moves and starts that can be applied one after the other, once some jobs are stopped.

    A job moves once its new GPUs are free. Where several jobs wait for each other's GPUs, one is stopped first and
    started again at the end, which costs it no more than a move.
    """
    free = view.free.tolist()
    running = view.running
    waiting, last, actions = dict(moves), list(starts), list[Action]()

    def release(placement: Placement, sign: int = 1) -> None:
        """Release the GPUs of a placement (sign 1), or take them (sign -1)."""
        for machine, gpus in placement.counts.items():
            if view.is_up(machine):
                free[machine] += sign * gpus

    for job_id in stopped:
        release(running[job_id].placement)
    while waiting:
        for job_id, placement in list(waiting.items()):
            release(running[job_id].placement)
            release(placement, -1)
            if min(free[machine] for machine in placement.counts) >= 0:
                actions.append(Move(job_id, placement))
                del waiting[job_id]
                break
            release(placement)
            release(running[job_id].placement, -1)
        else:
            job_id, placement = next(iter(waiting.items()))
            release(running[job_id].placement)
            del waiting[job_id]
            actions.append(Stop(job_id, SWAP))
            found = running[job_id]
            last.append(Start(found.submitted, placement, attained_gpu_s(found, view.now_s)))
    return (*actions, *last)
