"""GPU balance: the machines with the most free GPUs first; what NetPack's paper measures as GB.

B. Zhao et al., "Training Job Placement in Clusters with Statistical In-Network Aggregation", ASPLOS 2024,
Sec. 6.1. Machines are filled as in `_shared.ranked_fill`, as for all of NetPack's baselines.
"""

from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.ranked_fill import candidates, fill, ordered


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
