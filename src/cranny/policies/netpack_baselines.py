"""What NetPack's paper measures as GB, FB and LF, and Comb, its naive combination of resources.

B. Zhao et al., "Training Job Placement in Clusters with Statistical In-Network Aggregation", ASPLOS 2024, Sec. 6.1
and 6.4. They differ only in the machines that they prefer, and fill them as in `_shared.ranked_fill`.

The paper does not say whether the preference is asked once for a job or once for each of its workers, and Sec. 2.1
lets a worker have one GPU or several. So GB and FB are here in both readings: by machine, in their favour, and by
worker.

For FB the flows of a machine are the running jobs that use its uplink: a job's workers on one machine send one
flow, and what its parameter server gets counts as one as well, as it does where switches aggregate.

For Comb the memory left of a switch is its PAT less the mean rates on the uplinks of its machines; a switch that
does not aggregate has none.

Departure: a switch merges the streams of a job, which then need its memory once. To count them so, each decision
would go through all running jobs. Accounting has what links carry, so here every machine's stream counts by
itself, and so do those of other collectives.
"""

import numpy as np

from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.ranked_fill import Floats, candidates, capacities, fill, fill_by_worker, ordered


class GpuBalance(WaitsForGpus):
    """Prefer machines with more free GPUs, so that every machine has about as many."""

    fragments_before_idle = False

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take the machines with the most free GPUs first."""
        found = candidates(job, view)
        return fill(job, view, ordered(found, -found.free), "preferred: most free GPUs")

    def first_choices(self, gpus: int, size: int) -> range:
        """Look for the emptiest machine."""
        return range(size, gpus - 1, -1)


class FlowBalance(WaitsForGpus):
    """Prefer machines with fewer flows, so that every uplink has about as many."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take the machines with the fewest flows first."""
        found = candidates(job, view)
        flows = [view.link_users(machine) for machine in found.machines.tolist()]  # link i is machine i's uplink
        return fill(job, view, ordered(found, flows), "preferred: fewest flows on the uplink")


class GpuBalancePerWorker(WaitsForGpus):
    """Put each worker on the machine with the most free GPUs by then."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Spread the workers over the emptiest machines."""
        return fill_by_worker(job, view, lambda free, _: -free, "preferred for each worker: most free GPUs")


class FlowBalancePerWorker(WaitsForGpus):
    """Put each worker on the machine with the fewest flows by then; the first of a job there adds one."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Spread the workers over the least used uplinks."""
        flows = np.array([view.link_users(machine) for machine in range(len(view.cluster.machines))])
        note = "preferred for each worker: fewest flows on the uplink"
        return fill_by_worker(job, view, lambda _, held: flows + (held > 0), note)


class LeastFragmentation(WaitsForGpus):
    """Prefer non-idle machines, those with the fewest free GPUs first; idle ones come last."""

    fragments_before_idle = False

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take the smallest fragments first."""
        found = candidates(job, view)
        idle = [view.is_idle(machine) for machine in found.machines.tolist()]
        return fill(job, view, ordered(found, idle, found.free), "preferred: in use, fewest free GPUs")

    def first_choices(self, gpus: int, size: int) -> range:
        """Look for the tightest machine."""
        return range(gpus, size + 1)


class Comb(WaitsForGpus):
    """Prefer machines with more free GPUs, then more switch memory left, then more bandwidth left."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take the machines that come first in that order."""
        found = candidates(job, view)
        link_gbps, memory_gbps = left_above(view)
        chosen = found.machines
        order = ordered(found, -found.free, -memory_gbps[chosen], -link_gbps[chosen])
        return fill(job, view, order, "preferred: most free GPUs, then switch memory, then bandwidth left")


def left_above(view: Snapshot) -> tuple[Floats, Floats]:
    """Return what is left of each machine's uplink and of the memory of the switch above it, (machines,)."""
    has, use_gbps = capacities(view.cluster), view.uplink_use_gbps
    asked_gbps = np.bincount(has.switch, weights=use_gbps)[has.switch]
    return np.maximum(has.link_gbps - use_gbps, 0.0), np.maximum(has.pat_gbps - asked_gbps, 0.0)
