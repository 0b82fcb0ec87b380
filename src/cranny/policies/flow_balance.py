"""Flow balance: the machines with the fewest flows first; what NetPack's paper measures as FB.

B. Zhao et al., "Training Job Placement in Clusters with Statistical In-Network Aggregation", ASPLOS 2024,
Sec. 6.1. Machines are filled as in `_shared.ranked_fill`, as for all of NetPack's baselines.

The flows of a machine are the running jobs that use its uplink: a job's workers on one machine send one flow, and
what its parameter server gets counts as one as well, as it does where switches aggregate.
"""

from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.ranked_fill import candidates, fill, ordered


class FlowBalance(WaitsForGpus):
    """Prefer machines with fewer flows, so that every uplink has about as many."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take the machines with the fewest flows first."""
        found = candidates(job, view)
        flows = [view.link_users(machine) for machine in found.machines.tolist()]  # link i is machine i's uplink
        return fill(job, view, ordered(found, flows), "preferred: fewest flows on the uplink")
