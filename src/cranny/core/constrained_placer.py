"""A placer that keeps the constraints of jobs, whatever placer it is built on.

The placer does not know of constraints: it gets a view in which only the machines that they allow take jobs.
"""

from collections.abc import Callable

from cranny.core.constraints import Constraints
from cranny.core.machine_set import within
from cranny.core.protocol import Placer, lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement


class ConstrainedPlacer:
    """A placer that keeps the constraints of jobs."""

    def __init__(self, placer: Placer, constraints_of: Callable[[str], Constraints | None]) -> None:
        self.placer = placer
        self._constraints_of = constraints_of  # by job id

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place a job where its constraints allow; of racks in which it fits, the fullest is tried first."""
        wanted = self._constraints_of(job.id)
        if wanted is None:
            return self.placer.place(job, view)
        view = allowed_by(wanted, view)
        placement = self.placer.place(job, view)
        if wanted.same_rack is None or (placement is not None and _racks(placement, view.cluster) == 1):
            return placement
        fitting = (rack for rack in _racks_free(job, view) if rack[0] >= job.gpus)
        for _, first, past in sorted(fitting):
            inside = self.placer.place(job, view.only(within(-1, first, past) & wanted.allowed(view.cluster)))
            if inside is not None:
                return inside
        return placement if wanted.same_rack == "preferred" else None

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say why a job must wait, and whether that is because of its constraints."""
        wanted = self._constraints_of(job.id)
        if wanted is None or lacks_gpus(job, view):
            return self.placer.why_wait(job, view)
        return lacks_room(job, view, wanted) or self.placer.why_wait(job, allowed_by(wanted, view))


def allowed_by(constraints: Constraints, view: Snapshot) -> Snapshot:
    """Return the view in which no machines take jobs but those that constraints allow."""
    return view.only(constraints.allowed(view.cluster)) if constraints.excluded else view


def lacks_room(job: Job, view: Snapshot, constraints: Constraints | None) -> str | None:
    """Say that too few GPUs are free, or too few where a job's constraints allow; None if there are enough."""
    lacking = lacks_gpus(job, view)
    if lacking or constraints is None:
        return lacking
    allowed = allowed_by(constraints, view)
    lacking = lacks_gpus(job, allowed)
    if lacking:
        return f"{lacking} on the machines that it does not exclude"
    if constraints.same_rack == "required":
        most = max((free for free, _, _ in _racks_free(job, allowed)), default=0)
        if most < job.gpus:
            return f"must have all its {job.gpus} GPUs in one rack; the emptiest has {most} free"
    return None


def _racks(placement: Placement, cluster: Cluster) -> int:
    """Count the racks of a placement, with that of its parameter server."""
    server = () if placement.server is None else (placement.server,)  # otherwise it is beside a worker
    return len({cluster.rack_of[machine] for machine in (*placement.machines, *placement.spare, *server)})


def _racks_free(job: Job, view: Snapshot) -> list[tuple[int, int, int]]:
    """Return the free GPUs of each rack that a job may use, and the rack's span."""
    available = view.available(job)
    return [(available.only(within(-1, *span)).gpus, *span) for span in view.cluster.rack_spans]
