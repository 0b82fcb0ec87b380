"""Least fragmentation: use up the machines that are in use; what NetPack's paper measures as LF.

B. Zhao et al., "Training Job Placement in Clusters with Statistical In-Network Aggregation", ASPLOS 2024,
Sec. 6.1. Machines are filled as in `_shared.ranked_fill`, as for all of NetPack's baselines.
"""

from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.ranked_fill import candidates, fill, ordered


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
