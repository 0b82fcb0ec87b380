"""New numbers of workers for some jobs, turned into machines and a plan, with as few moves as can be."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from cranny.core.books import Running, attained_gpu_s
from cranny.core.candidates import Board, Seats, placed, variations
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.plan import Action, Move, Plan, Start, Stop

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
    others are seated anew, the largest first. Jobs that find no machines are left out.
    """
    free = base.free.tolist()
    seats: dict[str, tuple[int, ...]] = {}

    def take(job_id: str, job: Job, offered: Sequence[int]) -> None:
        found = seat(sizes[job_id], base.usable(job, np.array(offered)).tolist(), base.cluster)
        if found is not None:
            seats[job_id] = found
            for machine in found:
                free[machine] -= 1

    def own(job_id: str) -> list[int]:
        counts = running[job_id].placement.counts
        return [min(gpus, counts[machine]) for machine, gpus in enumerate(free)]  # none where machines went down

    keeping = [job_id for job_id in sizes if job_id in running and sizes[job_id] <= sum(own(job_id))]
    for job_id in keeping:
        machines = running[job_id].placement.machines
        if len(machines) == sizes[job_id]:
            seats[job_id] = machines
            for machine in machines:
                free[machine] -= 1
        else:
            take(job_id, running[job_id].submitted, own(job_id))
    for job_id in sorted(sizes, key=lambda job_id: -sizes[job_id]):
        if job_id not in seats:
            job = running[job_id].submitted if job_id in running else waiting[job_id].job
            take(job_id, job, free)
    return seats


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
        moves: list[Move] = []
        starts: list[Start] = []
        for job_id, machines in each.items():
            if job_id in waiting:
                placement = placed(waiting[job_id].job, machines, base, note=notes.get(job_id, ""))
                starts.append(Start(waiting[job_id].job, placement, waiting[job_id].attained_gpu_s))
            elif machines != view.running[job_id].placement.machines:
                job = view.running[job_id].submitted
                moves.append(Move(job_id, placed(job, machines, base, note=notes.get(job_id, ""))))
        stops = [Stop(job_id, reason) for job_id, reason in stopped.items()]
        found.append(Plan(view.version, _ordered(stops, moves, starts, view)))
    return found


def _ordered(stops: list[Stop], moves: list[Move], starts: list[Start], view: Snapshot) -> tuple[Action, ...]:
    """Order actions so that each finds its GPUs free: jobs that wait for each other to move are stopped for it."""
    free = view.free.tolist()
    done: list[Action] = []

    def leave(job_id: str) -> None:
        for machine, gpus in view.running[job_id].placement.counts.items():
            free[machine] += gpus if view.is_up(machine) else 0

    for stop in stops:
        leave(stop.job_id)
    left = list(moves)
    while left:
        move = next((each for each in left if _fits(each, free, view)), None)
        if move is not None:
            leave(move.job_id)
            for machine, gpus in move.placement.counts.items():
                free[machine] -= gpus
            done.append(move)
        else:
            move = left[0]
            leave(move.job_id)
            running = view.running[move.job_id]
            done.append(Stop(move.job_id, "changes places with another job"))
            had_gpu_s = attained_gpu_s(running, view.now_s)
            starts = [*starts, Start(running.submitted, move.placement, had_gpu_s)]
        left.remove(move)
    return (*stops, *done, *starts)


def _fits(move: Move, free: Sequence[int], view: Snapshot) -> bool:
    """Say whether the GPUs of a move are free, with those that the job leaves."""
    own = view.running[move.job_id].placement.counts
    return all(gpus <= free[machine] + own[machine] for machine, gpus in move.placement.counts.items())
