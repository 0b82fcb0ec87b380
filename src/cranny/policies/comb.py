"""Comb: GPUs, switch memory and bandwidth one after the other; NetPack's naive combination of them.

B. Zhao et al., "Training Job Placement in Clusters with Statistical In-Network Aggregation", ASPLOS 2024,
Sec. 6.4: machines are sorted by free GPUs, then by the memory left of the switch above them, then by the bandwidth
left of their uplink, and the first that match are taken. Machines are filled as in
`_shared.ranked_fill`, as for all of NetPack's baselines.

The memory left of a switch is its PAT less the mean rates on the uplinks of its machines; a switch that does not
aggregate has none.

Departure: a switch merges the streams of a job, which then need its memory once. To count them so, each decision
would go through all running jobs. Accounting has what links carry, so here every machine's stream counts by
itself, and so do those of other collectives.
"""

import numpy as np

from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.ranked_fill import Floats, candidates, capacities, fill, ordered


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
