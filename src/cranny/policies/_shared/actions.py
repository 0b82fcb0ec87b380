"""Orders the actions of a plan so that each finds its GPUs free."""

from collections.abc import Iterable, Mapping, Sequence

from cranny.core.accounting import attained_gpu_s
from cranny.core.snapshot import Snapshot
from cranny.model.placement import Placement
from cranny.model.plan import Action, Move, Start, Stop

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
