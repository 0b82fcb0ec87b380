"""Wishes about where a job runs: machines that it must not have, and whether all of it shares a rack.

A parameter server belongs to its job: what a job wishes holds for its server too.

Policies know nothing of wishes. A placer is shown a view in which only the machines that a wish allows take jobs.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from cranny.core.machine_set import within
from cranny.core.protocol import Placer, lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement

SameRack = Literal["required", "preferred"]


class Constraints(NamedTuple):
    """What a job wishes of its placement."""

    excluded: int = 0  # machines that it must not have, as a set
    same_rack: SameRack | None = None

    def allowed(self, cluster: Cluster) -> int:
        """Return the machines that the job may have, as a set."""
        return (1 << len(cluster.machines)) - 1 & ~self.excluded


class ConstrainedPlacer:
    """A placer that keeps the wishes of jobs."""

    def __init__(self, placer: Placer, wish_of: Callable[[str], Constraints | None]) -> None:
        self.placer = placer
        self._wish_of = wish_of  # of a job's id

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place a job where its wish allows; a rack is tried after the other, the fullest that has room first."""
        wish = self._wish_of(job.id)
        if wish is None:
            return self.placer.place(job, view)
        if wish.excluded:
            view = view.only(wish.allowed(view.cluster))
        placement = self.placer.place(job, view)
        if wish.same_rack is None or (placement is not None and _racks(placement, view.cluster) == 1):
            return placement
        for _, first, past in sorted(_room(job, view)):
            inside = self.placer.place(job, view.only(within(-1, first, past) & wish.allowed(view.cluster)))
            if inside is not None:
                return inside
        return placement if wish.same_rack == "preferred" else None

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say why a job must wait, and whether that is for its wish."""
        wish = self._wish_of(job.id)
        if wish is None or lacks_gpus(job, view):
            return self.placer.why_wait(job, view)
        allowed = view.only(wish.allowed(view.cluster)) if wish.excluded else view
        lacking = lacks_gpus(job, allowed)
        if lacking:
            return f"{lacking} on the machines that it does not exclude"
        if wish.same_rack == "required" and self.placer.place(job, allowed) is not None:
            most = max((free for free, _, _ in _racks_free(job, allowed)), default=0)
            return f"must have all its {job.gpus} GPUs in one rack; the emptiest has {most} free"
        return self.placer.why_wait(job, allowed)


def _racks(placement: Placement, cluster: Cluster) -> int:
    """Count the racks of a placement, with that of its parameter server."""
    machines = {*placement.machines, *placement.spare}
    if placement.server is not None:  # otherwise it is beside a worker
        machines.add(placement.server)
    return len({cluster.rack_of[machine] for machine in machines})


def _racks_free(job: Job, view: Snapshot) -> list[tuple[int, int, int]]:
    """Return the free GPUs of each rack that a job may have, and the rack's span."""
    offer = view.available(job)
    return [(offer.only(within(-1, *span)).gpus, *span) for span in view.cluster.rack_spans]


def _room(job: Job, view: Snapshot) -> list[tuple[int, int, int]]:
    """Return the racks with enough free GPUs for a job."""
    return [rack for rack in _racks_free(job, view) if rack[0] >= job.gpus]
