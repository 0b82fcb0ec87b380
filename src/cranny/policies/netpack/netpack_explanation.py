"""Explains NetPack's placements by the values of servers at the decision."""

from collections.abc import Mapping
from typing import NamedTuple

from cranny.core.traffic import communication
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import counted


class ServerValue(NamedTuple):
    """A server's remaining bandwidth, flows and value when it was chosen."""

    machine: int
    left_gbps: float
    flows: float
    value: float


class NetPackRationale(NamedTuple):
    """The values of a placement; a job on one machine has none."""

    job: Job
    cluster: Cluster
    values: tuple[ServerValue, ...] = ()
    server_value: float = 0.0
    share_gbps: float = 0.0
    efficiency: float = 0.0  # AE
    full_switch: int | None = None  # rack whose switch had no memory left for the job

    def facts(self, placement: Placement) -> Mapping[str, object]:
        """Return the reasons as plain values."""
        names = self.cluster.node_names
        facts: dict[str, object] = {
            "gpus": self.job.gpus,
            "gpus_on": {names[machine]: gpus for machine, gpus in placement.counts.items()},
            "servers": [{**each._asdict(), "machine": names[each.machine]} for each in self.values],
            "share_gbps": self.share_gbps if self.values else None,
        }
        if placement.server is not None:
            facts |= {
                "parameter_server": names[placement.server],
                "beside_a_worker": placement.server in placement.counts,
                "parameter_server_value": self.server_value,
                "alone_ms": self._alone_ms(placement, placement.server),
                "alone_ms_beside_rank_0": self._alone_ms(placement, placement.machines[0]),
                "aggregation": placement.aggregating(self.cluster.rack_names),
                "aggregation_efficiency": self.efficiency,
                "switch_without_memory": self._switch,
            }
        return facts

    def text(self, placement: Placement) -> str:
        """Return the reasons as text."""
        names = self.cluster.node_names
        counts = placement.counts
        where = ", ".join(f"{gpus} on {names[machine]}" for machine, gpus in counts.items())
        lines = [f"job {self.job.id}: {counted(self.job.gpus, 'worker')}: {where}"]
        if not self.values:
            return f"{lines[0]}\nit fits one machine, so nothing crosses the network; it has least to spare"
        lines += [
            f"{names[on]}: {left_gbps:.1f} Gbps left, {flows:.3g} flows, value {value:.1f}"
            for on, left_gbps, flows, value in self.values
        ]
        lines.append(f"share of its most crowded link: {self.share_gbps:.1f} Gbps")
        if placement.server is not None:
            lines += [self._server_line(placement, placement.server), self._aggregation_line(placement)]
        return "\n".join(lines)

    def _server_line(self, placement: Placement, server: int) -> str:
        """Say where the parameter server is and what that costs."""
        beside = "beside a worker" if server in placement.counts else "on a machine of its own"
        here_ms = self._alone_ms(placement, server)
        more_ms = here_ms - self._alone_ms(placement, placement.machines[0])
        against = "as beside rank 0" if abs(more_ms) < 0.05 else f"{more_ms:+.1f} ms against one beside rank 0"
        return (
            f"parameter server on {self.cluster.node_names[server]}, {beside}, value {self.server_value:.1f}:"
            f" {here_ms:.1f} ms an iteration if the network were empty, {against}"
        )

    def _aggregation_line(self, placement: Placement) -> str:
        """Say in which racks switches aggregate for the job, and why not in others."""
        efficiency = f"efficiency {self.efficiency:.0f}: its rate in Gbps times the flows that switches merge"
        racks = placement.aggregating(self.cluster.rack_names)
        where = "on" if racks is True else f"on in {', '.join(racks)} only" if racks else "off"
        why = "" if racks else ": nothing to merge"
        if self.full_switch is not None:
            has_some = self.cluster.pat_gbps[self.cluster.rack_nodes[self.full_switch]]
            what = "left for it" if has_some else "to aggregate with"
            why = f": the switch of {self._switch} has no memory {what}"
        return f"in-network aggregation is {where}{why} ({efficiency})"

    @property
    def _switch(self) -> str | None:
        """The name of the rack whose switch had no memory left."""
        return None if self.full_switch is None else self.cluster.rack_names[self.full_switch]

    def _alone_ms(self, placement: Placement, server: int) -> float:
        """Return how long an iteration communicates with the server on some machine, the network being empty."""
        cost = communication(self.cluster, self.job, placement.machines, server, placement.aggregate)
        return 1e3 * cost.comm_s
