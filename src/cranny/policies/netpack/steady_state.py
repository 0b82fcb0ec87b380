"""The steady state of the running jobs of a cluster: what it leaves of servers, racks and switches."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.network.steady.rates import RateEstimate, Served
from cranny.policies._shared.ranked_fill import rounded
from cranny.policies.netpack.plan_kernel import NONE, Bools, Floats, Ints, ServerArrays, tightest


class Left(NamedTuple):
    """What jobs leave of links, (links,), with the flows there, and of the PAT of racks' switches, (racks,)."""

    link_gbps: Floats
    flows: Floats
    memory_gbps: Floats
    short: Floats  # 1 where that is not enough for one more job at the rate of a link


class SteadyState:
    """The rates of running jobs and of those just placed."""

    def __init__(self, cluster: Cluster) -> None:
        machines = len(cluster.machines)
        self.cluster = cluster
        self.pat_gbps = np.array([cluster.pat_gbps[rack] or 0.0 for rack in cluster.rack_nodes])
        self._estimate = RateEstimate(cluster)
        self._left: Left | None = None  # until a job comes or goes
        self._link_gbps = np.array(cluster.uplink_gbps[:machines])
        self._fastest_gbps = float(self._link_gbps.max())
        self._rack = np.array(cluster.rack_of)
        self._uplinks = np.array(cluster.rack_nodes)
        self._rack_gbps = np.array([cluster.uplink_gbps[uplink] for uplink in cluster.rack_nodes])

    def follow(self, view: Snapshot) -> None:
        """Take over the jobs that run now."""
        self._left = None
        self._estimate.follow(view)

    def add(self, job: Job, placement: Placement) -> None:
        """Add a job that was just placed."""
        if placement.machines[0] != placement.machines[-1]:  # it uses links
            self._left = None
        self._estimate.add(job, placement)

    def rate_gbps(self, job_id: str) -> float:
        """Return the rate of a job; 0 if it uses no links."""
        return self._estimate.rate_gbps(job_id)

    @property
    def served(self) -> Mapping[str, Served]:
        """The jobs that send to a parameter server over links."""
        return self._estimate.served

    def short_of_memory(self) -> bool:
        """Say whether switches have no memory left, or do not aggregate for a job; never if none has any."""
        has_some = self.pat_gbps > 0.0
        if not has_some.any():
            return False
        used_up = bool((self.left.memory_gbps[has_some] <= 0.0).any())
        return used_up or any(each.placement.aggregate is not True for each in self.served.values())

    @property
    def left(self) -> Left:
        """What is left now."""
        if self._left is None:
            rates = self._estimate.rates
            (link_gbps, memory_gbps), (flows, _) = rates.left_gbps(), rates.flows()
            memory_gbps = rounded(memory_gbps)
            short = (memory_gbps < self._fastest_gbps).astype(float)
            self._left = Left(rounded(link_gbps), rounded(flows), memory_gbps, short)
        return self._left

    def tightest(self, free: Ints, gpus: int, rank: Floats, by_free: bool) -> int | None:  # noqa: FBT001 - a tie rule
        """Return the machine with the fewest free GPUs that holds a job; of equals in the first rack."""
        machine = tightest(free, gpus, self._rack, rank, by_free)
        return None if machine == NONE else machine

    def servers(self, free: Ints, up: Bools) -> ServerArrays:
        """Return what is left of every server, and of every rack's uplink."""
        link_gbps, flows, *_ = self.left
        of_machines = self._link_gbps, link_gbps[: len(free)], flows[: len(free)], self._rack
        return ServerArrays(free, up, *of_machines, self._rack_gbps, flows[self._uplinks])
