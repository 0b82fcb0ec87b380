"""Ideal: every job has its links to itself, as on a dedicated cluster.

The yardstick "Ideal" of CASSINI (S. Rajasekaran et al., NSDI 2024, Sec. 5.1) runs each training job on a cluster
of its own: no job ever shares a link. Here jobs still share one cluster, so a job waits until there are machines
with links that no other job uses. Iteration times are those of the paper's Ideal, under every network model;
waiting times are not, and the paper has none.
"""

from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.locality import closest


class Ideal(WaitsForGpus):
    """Place a job where it shares no link, or let it wait."""

    other_reason = "the free GPUs are at links that other jobs use"

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take one machine, else the lowest switch below which enough machines have unused links up to it."""
        cluster, free = view.cluster, view.usable(job, view.free).tolist()
        holding = [(gpus, machine) for machine, gpus in enumerate(free) if gpus >= job.gpus]
        if holding:
            return view.placement(job, (min(holding)[1],) * job.gpus)

        def used(machine: int, switch: int) -> bool:
            """Say whether a job uses a link from a machine up to a switch."""
            path = cluster.paths[machine]
            below = path[: path.index(switch)] if switch in path else path
            return any(view.link_users(link) for link in below)

        switches = range(len(cluster.machines), len(cluster.parent))
        for switch in sorted(switches, key=lambda node: cluster.spans[node][1] - cluster.spans[node][0]):
            first, past = cluster.spans[switch]
            alone = [
                free[machine] if first <= machine < past and not used(machine, switch) else 0
                for machine in range(len(free))
            ]
            found = closest(job.gpus, alone, cluster)
            if found is not None:
                return view.placement(job, found, note="shares no link")
        return None
