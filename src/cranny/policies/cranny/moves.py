"""Moves of running jobs that pay: what they save in GPU-seconds must exceed their restarts with a margin.

A job that moves loses its restart. Moves are proposed to

    empty   leave a machine, which is then free for larger jobs or can be switched off
    free    leave a machine to jobs that end sooner, so that it is idle earlier
    gather  bring a job together on fewer machines, or away from links that others use; perhaps only a part, to a
            machine where no job uses links and others make room
    start   make room on one machine for a job that waits, or would have to be split

Some pay only together, such as all jobs of a machine: they are a group, judged as one by the `Outlook` before and
after. The group that saves most is taken first, and the others are judged again with its moves made, so the saving
of the whole plan is the sum. A job moves once at most, and never if it does not allow it. Moves take no GPUs from
waiting jobs: as many are free afterwards. Those that the policy makes itself delay no start that it promised
(`policy_moves`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cranny.core.accounting import Running
from cranny.core.constraints import Constraints
from cranny.core.protocol import no_constraints
from cranny.model.cluster import Cluster
from cranny.model.job import RESTART_S, Job
from cranny.model.placement import Placement
from cranny.model.plan import Move
from cranny.model.validate import not_negative, whole

MARGIN = 1.0  # of the restarts, by which the gain must exceed them
MOST = 64  # moves of one plan
SECONDS_PER_HOUR = 3600.0

Purpose = Literal["empty", "free", "gather", "start"]


class MoveGain(NamedTuple):
    """What moves save, in GPU-seconds."""

    own_gpu_s: float  # communication of the moved jobs
    others_gpu_s: float  # of jobs on links with them
    machines_gpu_s: float  # by which machines are in use for less time; negative if for more
    waiting_gpu_s: float  # of a waiting job that starts sooner, or on one machine

    @property
    def total_gpu_s(self) -> float:
        """All terms together."""
        return sum(self)


class ProposedMove(NamedTuple):
    """A job that would move, and what its restart costs."""

    job_id: str
    gpus: int
    source: Placement
    placement: Placement
    restart_gpu_s: float


class MoveGroup(NamedTuple):
    """Moves that are made together, in this order, and what they save."""

    purpose: Purpose
    moves: tuple[ProposedMove, ...]
    gain: MoveGain
    emptied: tuple[int, ...] = ()  # machines that would be idle
    starts: str | None = None  # a waiting job that would have room

    @property
    def cost_gpu_s(self) -> float:
        """What the restarts cost."""
        return sum(move.restart_gpu_s for move in self.moves)

    @property
    def net_gpu_s(self) -> float:
        """What is saved in all."""
        return self.gain.total_gpu_s - self.cost_gpu_s


@dataclass(frozen=True, slots=True)
class MoveRules:
    """Which jobs may move, where to, and how long they are expected to run."""

    movable: Callable[[Job], bool]
    left_s: Callable[[Job, float], float]  # on one machine, of a job that has done so many seconds of its work
    constraints_of: Callable[[str], Constraints | None] = no_constraints
    margin: float = MARGIN
    most: int = MOST
    # The same of a running job, at a time, if more is known of it than what it has done.
    running_left_s: Callable[[Running, float], float] | None = None
    kept: Collection[int] = ()  # machines that no job moves to
    # Whether a job may be on certain machines until some time, by its id.
    may_be_on: Callable[[str, Placement, float], bool] = lambda *_: True
    # The seconds from now on to the end of a job, as they count: more in the tail.
    counted_s: Callable[[Job, float], float] = lambda _, seconds: seconds

    def __post_init__(self) -> None:
        not_negative(self.margin, "margin")
        whole(self.most, "most", least=0)


def restart_s(job: Job) -> float:
    """Return what a job loses by a move."""
    return job.restart_s or RESTART_S


def actions(groups: Sequence[MoveGroup]) -> tuple[Move, ...]:
    """Return moves as the actions of a plan."""
    return tuple([Move(move.job_id, move.placement) for group in groups for move in group.moves])


def facts(groups: Sequence[MoveGroup], cluster: Cluster, price_per_gpu_hour: float) -> dict[str, Any]:
    """Return moves as plain values, with what they save in GPU-seconds and in money.

    Money counts the time for which machines are in use less, and by the hour the machines that would be idle.
    """
    price = price_per_gpu_hour / SECONDS_PER_HOUR
    idle: set[int] = set()
    shown = []
    for group in groups:
        idle = idle.union(group.emptied).difference(*(move.placement.counts for move in group.moves))
        shown.append(
            {
                "purpose": group.purpose,
                "starts": group.starts,
                "moves": [
                    {
                        "job": move.job_id,
                        "gpus": move.gpus,
                        "from": _gpus_on(move.source, cluster),
                        "to": _gpus_on(move.placement, cluster),
                        "cost_gpu_s": move.restart_gpu_s,
                    }
                    for move in group.moves
                ],
                "gain": {**group.gain._asdict(), "total_gpu_s": group.gain.total_gpu_s},
                "cost_gpu_s": group.cost_gpu_s,
                "net_gpu_s": group.net_gpu_s,
                "emptied": [cluster.machines[machine].name for machine in group.emptied],
                "saved_money": group.gain.machines_gpu_s * price,
            }
        )
    totals = ("cost_gpu_s", "net_gpu_s", "saved_money")
    return {
        "groups": shown,
        "moves": sum(len(group.moves) for group in groups),
        "emptied": [cluster.machines[machine].name for machine in sorted(idle)],
        "gain_gpu_s": sum(group.gain.total_gpu_s for group in groups),
        **{name: sum(each[name] for each in shown) for name in totals},
        "saved_money_per_hour": sum(cluster.machines[machine].gpus for machine in idle) * price_per_gpu_hour,
        "price_per_gpu_hour": price_per_gpu_hour,
    }


def _gpus_on(placement: Placement, cluster: Cluster) -> dict[str, int]:
    return {cluster.machines[machine].name: gpus for machine, gpus in placement.counts.items()}
