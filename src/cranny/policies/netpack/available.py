"""What the steady state leaves of servers and racks, in arrays: the input of NetPack's search."""

import numpy as np

from cranny.model.cluster import Cluster
from cranny.network.steady.rates import RateEstimate
from cranny.policies._shared.ranked_fill import rounded
from cranny.policies.netpack.plan_kernel import Bools, Ints, ServerArrays


class SteadyState:
    """The steady state of the running jobs of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        machines = len(cluster.machines)
        self.cluster = cluster
        self.estimate = RateEstimate(cluster)
        self._link_gbps = np.array(cluster.uplink_gbps[:machines])
        self._rack = np.array(cluster.rack_of)
        self._uplinks = np.array(cluster.rack_nodes)
        self._rack_gbps = np.array([cluster.uplink_gbps[uplink] for uplink in cluster.rack_nodes])
        # Machines among which plans are searched, (spans, 2): those of each rack, and all.
        self.spans = np.array([*cluster.rack_spans, (0, machines)])

    def memory_gbps(self) -> list[float]:
        """Return what is left of the PAT of each rack's switch, (racks,)."""
        left_gbps: list[float] = rounded(self.estimate.rates.left_pat_gbps()).tolist()
        return left_gbps

    def servers(self, free: Ints, up: Bools) -> ServerArrays:
        """Return what is left of every server, and of every rack's uplink."""
        rates, machines = self.estimate.rates, len(free)
        left_gbps, flows = rounded(rates.left_gbps()), rounded(rates.link_flows())
        return ServerArrays(
            free,
            up,
            self._link_gbps,
            left_gbps[:machines],
            flows[:machines],
            self._rack,
            self._rack_gbps,
            flows[self._uplinks],
        )
