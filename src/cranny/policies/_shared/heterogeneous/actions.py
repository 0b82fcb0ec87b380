"""From what jobs shall hold to a plan: who starts, who moves, and in which order they can."""

from collections.abc import Iterable, Mapping, Sequence

from cranny.core.accounting import attained_gpu_s
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Move, Start, Stop
from cranny.policies._shared.heterogeneous.problem import Ints

SWAP = "goes on elsewhere at once"


def placed(view: Snapshot, job: Job, workers: Ints, note: str) -> Placement:
    """Return a placement of so many workers on each machine, (machines,)."""
    machines = tuple(machine for machine, count in enumerate(workers.tolist()) for _ in range(count))
    as_many = job if len(machines) == job.gpus else job.resized(len(machines), float(len(machines)))
    return view.placement(as_many, machines, note=note)


def in_order(
    view: Snapshot, moves: Mapping[str, Placement], starts: Sequence[Start], stopped: Iterable[str] = ()
) -> tuple[Action, ...]:
    """Return actions that can be taken one after the other, once some jobs are stopped.

    A job moves once its new GPUs are free. Where several wait for each other's, one stops first and starts again
    at the end, which costs it no more than a move.
    """
    free = view.free.tolist()
    running = view.running
    waiting, last, actions = dict(moves), list(starts), list[Action]()

    def give(placement: Placement, sign: int) -> None:
        """Give back the GPUs of a placement (sign 1), or take them (sign -1)."""
        for machine, gpus in placement.counts.items():
            if view.is_up(machine):
                free[machine] += sign * gpus

    for job_id in stopped:
        give(running[job_id].placement, 1)
    while waiting:
        for job_id, placement in list(waiting.items()):
            give(running[job_id].placement, 1)
            give(placement, -1)
            if min(free[machine] for machine in placement.counts) >= 0:
                actions.append(Move(job_id, placement))
                del waiting[job_id]
                break
            give(placement, 1)
            give(running[job_id].placement, -1)
        else:
            job_id, placement = next(iter(waiting.items()))
            give(running[job_id].placement, 1)
            del waiting[job_id]
            actions.append(Stop(job_id, SWAP))
            found = running[job_id]
            last.append(Start(found.submitted, placement, attained_gpu_s(found, view.now_s)))
    return (*actions, *last)
