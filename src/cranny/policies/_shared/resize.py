"""New numbers of workers for some jobs, turned into machines and a plan, with as few moves as can be."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start, Stop
from cranny.policies._shared.actions import feasible_order
from cranny.policies._shared.candidates import Board, Seats, placed, variations
from cranny.policies._shared.promises import Pool

# Chooses machines for a number of workers, given the free GPUs of each; None if there are too few.
Seat = Callable[[int, Sequence[int], Cluster], tuple[int, ...] | None]


def emptied(view: Snapshot, job_ids: Iterable[str]) -> Snapshot:
    """Return the view without some running jobs."""
    for job_id in job_ids:
        view = view.without(job_id)
    return view


def reseat(
    sizes: Mapping[str, int],
    running: Mapping[str, Running],
    waiting: Mapping[str, Waiting],
    base: Snapshot,
    seat: Seat,
) -> Seats:
    """Return machines for jobs that get so many workers; `base` is the cluster without any of them.

    A running job whose size is what it was stays where it is, and one that shrinks keeps some of its machines. The
    others are seated anew, the largest first. If somebody finds no machines so, because others have those of the
    types that it can use, all are seated again, those first that can use fewest. Jobs for which there is no way
    are left out; one that runs stays where it is if nobody took its GPUs.
    """
    largest = sorted(sizes, key=lambda job_id: -sizes[job_id])
    seating = _Seating(sizes, running, waiting, base, seat)
    keeping = [job_id for job_id in sizes if job_id in running and sizes[job_id] <= sum(seating.own(job_id))]
    for job_id in [*keeping, *[job_id for job_id in largest if job_id not in keeping]]:
        seating.sit(job_id, seating.choice(job_id, keep=job_id in keeping))
    if len(seating.seats) < len(sizes):
        again = _Seating(sizes, running, waiting, base, seat)
        usable = {job_id: sum(again.usable(job_id)) for job_id in sizes}
        for job_id in sorted(largest, key=lambda job_id: (usable[job_id], job_id not in keeping)):
            again.sit(job_id, again.considerate(job_id, keep=job_id in keeping))
        if len(again.seats) > len(seating.seats):
            seating = again
    for job_id in running:
        if job_id not in seating.seats and sum(seating.own(job_id)) == len(running[job_id].placement.machines):
            seating.sit(job_id, running[job_id].placement.machines)
    return seating.seats


class _Seating:
    """Seats jobs one after the other on what is free."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        running: Mapping[str, Running],
        waiting: Mapping[str, Waiting],
        base: Snapshot,
        seat: Seat,
    ) -> None:
        self.seats: dict[str, tuple[int, ...]] = {}
        self._sizes, self._running, self._waiting = sizes, running, waiting
        self._base, self._seat = base, seat
        self._free: list[int] = base.free.tolist()

    def own(self, job_id: str) -> list[int]:
        """Return the free GPUs that ranks of a running job had, (machines,); none where machines went down."""
        counts = Counter(self._running[job_id].placement.machines)
        return [min(gpus, counts[machine]) for machine, gpus in enumerate(self._free)]

    def usable(self, job_id: str) -> list[int]:
        """Return the free GPUs that a job can use, (machines,)."""
        found: list[int] = self._base.usable(self._job(job_id), np.array(self._free)).tolist()
        return found

    def choice(self, job_id: str, *, keep: bool) -> tuple[int, ...] | None:
        """Return machines for a job; it is to keep those that it has as far as it needs them and they are free."""
        size = self._sizes[job_id]
        own = self.own(job_id) if keep else []
        if sum(own) < size:
            return self._seat(size, self.usable(job_id), self._base.cluster)
        machines = self._running[job_id].placement.machines
        return machines if len(machines) == size else self._seat(size, own, self._base.cluster)

    def considerate(self, job_id: str, *, keep: bool) -> tuple[int, ...] | None:
        """Return machines for a job so that those who come after it find theirs: if it must be, any such ones."""
        found = self.choice(job_id, keep=keep)
        after = Pool(self._free.copy())
        for other, size in self._sizes.items():
            if other != job_id and other not in self.seats:
                after.take(self._base.eligible(self._job(other)), size)
        if found is None or not after.without(found).short():
            return found
        suited, taken = self._base.eligible(self._job(job_id)), list[int]()
        after.take(suited, self._sizes[job_id])
        for machine, gpus in enumerate(self.usable(job_id)):
            for _ in range(min(gpus, self._sizes[job_id] - len(taken))):
                after.take(suited, -1)
                if after.without([*taken, machine]).short():
                    after.take(suited, 1)
                    break
                taken.append(machine)
        return tuple(taken) if len(taken) == self._sizes[job_id] else found

    def sit(self, job_id: str, machines: tuple[int, ...] | None) -> None:
        """Let a job have machines, if it found some."""
        if machines is not None:
            self.seats[job_id] = machines
            for machine in machines:
                self._free[machine] -= 1

    def _job(self, job_id: str) -> Job:
        return self._running[job_id].submitted if job_id in self._running else self._waiting[job_id].job


def plans(
    seats: Seats,
    view: Snapshot,
    base: Snapshot,
    stopped: Mapping[str, str],
    notes: Mapping[str, str],
    count: int,
    distance: Callable[[tuple[int, ...], Cluster], int],
) -> list[Plan]:
    """Return plans that bring jobs to these seats, and to others with workers at the same distance.

    Jobs that hold GPUs are moved, or stopped for the reason in `stopped`; jobs that wait are started; who is where
    it should be is left alone.
    """
    waiting = {each.job.id: each for each in view.waiting}

    def worth(job_id: str, machines: tuple[int, ...]) -> int:  # noqa: ARG001 - all jobs alike
        return distance(machines, view.cluster)

    found = []
    for each in variations(seats, Board.of(base), count, worth) if seats else [seats]:
        moves: dict[str, Placement] = {}
        starts: list[Start] = []
        for job_id, machines in each.items():
            if job_id in waiting:
                placement = placed(waiting[job_id].job, machines, base, note=notes.get(job_id, ""))
                starts.append(Start(waiting[job_id].job, placement, waiting[job_id].attained_gpu_s))
            elif machines != view.running[job_id].placement.machines:
                job = view.running[job_id].submitted
                moves[job_id] = placed(job, machines, base, note=notes.get(job_id, ""))
        stops = [Stop(job_id, reason) for job_id, reason in stopped.items()]
        found.append(Plan(view.version, (*stops, *feasible_order(view, moves, starts, stopped))))
    return found
