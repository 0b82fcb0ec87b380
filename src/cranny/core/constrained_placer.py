"""A placer that keeps the constraints of jobs, whatever placer it is built on.

The placer does not know of constraints: it gets a view in which only the machines that they allow take jobs.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from cranny.core.constraints import Constraints, rack_shares
from cranny.core.machine_set import within
from cranny.core.protocol import Placer, lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster, mask_of
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import counted


class ConstrainedPlacer:
    """A placer that keeps the constraints of jobs."""

    def __init__(self, placer: Placer, constraints_of: Callable[[str], Constraints | None]) -> None:
        self.placer = placer
        self._constraints_of = constraints_of  # by job id

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place a job where its constraints allow; of racks in which it fits, the fullest is tried first."""
        wanted = self._constraints_of(job.id)
        if wanted is None:
            return self.placer.place(job, view if job.resources is None else shown_to(job, view, Constraints()))
        view = shown_to(job, view, wanted)
        if wanted.spread > 1:
            return self._place_spread(job, view, wanted)
        placement = self._place(job, view, wanted)
        if wanted.same_rack is None or (placement is not None and _racks(placement, view.cluster) == 1):
            return placement
        fitting = (rack for rack in _racks_free(job, view) if rack[0] >= job.gpus)
        for _, first, past in sorted(fitting):
            inside = self._place(job, view.only(within(-1, first, past) & wanted.allowed(view.cluster)), wanted)
            if inside is not None:
                return inside
        return placement if wanted.same_rack == "preferred" else None

    def _place(self, job: Job, view: Snapshot, wanted: Constraints) -> Placement | None:
        """Place a job on machines of a view, on which it has as many GPUs as it wants of each."""
        placement = self.placer.place(job, view)
        if placement is None or wanted.per_machine is None:
            return placement
        machines = evenly(placement.counts, wanted.per_machine, job.gpus)
        if machines == placement.counts:
            return placement
        return self.placer.place(job, view.only(mask_of(machines)))  # on no others, so it fills these

    def _place_spread(self, job: Job, view: Snapshot, wanted: Constraints) -> Placement | None:
        """Place a job over several racks: as the placer would anyway, or else on machines chosen for that."""
        placement = self.placer.place(job, view)
        if placement is not None and is_spread(placement, job.gpus, wanted, view.cluster):
            return placement
        racks = _racks_free(job, view)
        for tightest in (True, False):
            shares = rack_shares(job.gpus, wanted, [free for free, _, _ in racks], tightest=tightest)
            placement = None if shares is None else self.placer.place(job, _only_shares(job, view, shares))
            if placement is not None:
                return placement
        return None

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say why a job must wait, and whether that is because of its constraints."""
        wanted = self._constraints_of(job.id)
        if wanted is None and job.resources is not None:
            wanted = Constraints()
        if wanted is None or lacks_gpus(job, view):
            return self.placer.why_wait(job, view)
        return lacks_room(job, view, wanted) or self.placer.why_wait(job, shown_to(job, view, wanted))


def shown_to(job: Job, view: Snapshot, constraints: Constraints) -> Snapshot:
    """Return the view that has only what a job may use: a policy that sees no other need not know why.

    Machines that its constraints do not allow take no jobs, and others have no more GPUs free than the job may
    have there: by the resources that each worker needs beside its GPU, and by `per_machine`.
    """
    if constraints.excluded:
        view = view.only(constraints.allowed(view.cluster))
    each = constraints.per_machine
    if job.resources is None and each is None:
        return view
    most = np.minimum(view.room_for(job), view.free)
    return view.at_most(most if each is None else np.where(most >= each, each, 0))


def evenly(counts: Counter[int], per_machine: int, gpus: int) -> Counter[int]:
    """Return machines with so many GPUs of a job on each: those that have most of it, the lowest first."""
    order = sorted(counts, key=lambda machine: (-counts[machine], machine))
    return Counter(dict.fromkeys(order[: gpus // per_machine], per_machine))


def lacks_room(job: Job, view: Snapshot, constraints: Constraints | None) -> str | None:
    """Say that too few GPUs are free, or too few where a job's constraints allow; None if there are enough."""
    lacking = lacks_gpus(job, view)
    if lacking or (constraints is None and job.resources is None):
        return lacking
    constraints = constraints or Constraints()
    permitted = view.only(constraints.allowed(view.cluster)) if constraints.excluded else view
    lacking = lacks_gpus(job, permitted)
    if lacking:
        return f"{lacking} on the machines that it does not exclude"
    allowed = shown_to(job, permitted, constraints._replace(excluded=0))
    lacking = _lacks_shape(job, allowed, constraints) if allowed is not permitted else None
    if lacking:
        return lacking
    if constraints.same_rack == "required":
        most = max((free for free, _, _ in _racks_free(job, allowed)), default=0)
        if most < job.gpus:
            return f"must have all its {job.gpus} GPUs in one rack; the emptiest has {most} free"
    if constraints.spread > 1:
        racks = [free for free, _, _ in _racks_free(job, allowed)]
        room, most = constraints.spread_over(job.gpus, racks), constraints.most_in_rack(job.gpus)
        if room < job.gpus:
            each = f"over {constraints.spread} racks with up to {counted(most, 'GPU')} in each"
            some = f"free GPUs are in {counted(sum(map(bool, racks)), 'rack')}"
            found = f"{room} of {job.gpus} free so" if room else some
            return f"must be spread {each}; {found}"
    return None


def _lacks_shape(job: Job, allowed: Snapshot, constraints: Constraints) -> str | None:
    """Say that too few machines have the resources, or the GPUs, that a job wants of each; None if enough have."""
    lacking, each = lacks_gpus(job, allowed), constraints.per_machine
    if lacking is None:
        return None
    needs = [f"{amount} {name}" for name, amount in (job.resources or {}).items()]
    beside = f" on machines with {' and '.join(needs)} for each of its workers" if needs else ""
    if each is None:
        return f"{lacking}{beside}"
    ready = allowed.available(job).gpus // each
    free = f"{counted(ready, 'machine')} of {job.gpus // each} have as many free"
    return f"must have {counted(each, 'GPU')} of each machine; {free}{beside}"


def is_spread(placement: Placement, gpus: int, constraints: Constraints, cluster: Cluster) -> bool:
    """Say whether the workers of a job are in as many racks as it wants, with no more than its share in any."""
    in_racks = Counter(cluster.rack_of[machine] for machine in placement.machines)
    return len(in_racks) >= constraints.spread and max(in_racks.values()) <= constraints.most_in_rack(gpus)


def _only_shares(job: Job, view: Snapshot, shares: Sequence[int]) -> Snapshot:
    """Return the view in which each rack has only so many free GPUs, on as few machines as possible.

    The tightest machine that holds the rest is kept, else the one with the most free. A job that does nothing
    holds the GPUs of the last one that are too many.
    """
    free = view.usable(job, view.free).tolist()
    kept, spare = 0, dict[int, int]()
    for span, share in zip(view.cluster.rack_spans, shares, strict=True):
        rack = {machine: free[machine] for machine in range(*span) if free[machine]}
        while share > 0:
            enough = [machine for machine, gpus in rack.items() if gpus >= share]
            machine = min(enough, key=rack.__getitem__) if enough else max(rack, key=rack.__getitem__)
            kept |= 1 << machine
            share -= rack.pop(machine)  # noqa: PLW2901 - what is missing
            if share < 0:
                spare[machine] = -share
    shown = view.only(kept)
    for machine, gpus in spare.items():
        shown = shown.after(Placement((machine,) * gpus), Job(f"not for {job.id} on {machine}", gpus))
    return shown


def _racks(placement: Placement, cluster: Cluster) -> int:
    """Count the racks of a placement, with that of its parameter server."""
    server = () if placement.server is None else (placement.server,)  # otherwise it is beside a worker
    return len({cluster.rack_of[machine] for machine in (*placement.machines, *placement.spare, *server)})


def _racks_free(job: Job, view: Snapshot) -> list[tuple[int, int, int]]:
    """Return the free GPUs of each rack that a job may use, and the rack's span."""
    available = view.available(job)
    return [(available.only(within(-1, *span)).gpus, *span) for span in view.cluster.rack_spans]
