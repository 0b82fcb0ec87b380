"""The flows that a job puts on links and switches, for each Gbps that its workers stream.

A *resource* is a link or the memory of a rack's switch. Resources are numbered: first the links as the cluster
numbers them, then the switches as `rack_of` counts racks. A job *uses* a resource with a number of flows, each of
the job's rate. In-network aggregation makes that number change with the rate: a switch that still has memory
turns what it gets into one flow, and one that has none left passes everything on.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.placement import Aggregation

NO_SWITCH = -1


class Flows(NamedTuple):
    """The uses that a job makes of resources, (uses,) each; several may be of the same resource.

    A use is `merged` flows while its root switch has memory. Then it is `few` flows while its leaf switch has
    memory, and `many` without. Where there is no such switch, it is as if its memory were used up.
    """

    resource: Ints
    root: Ints  # switch that everything meets at before the parameter server, as a resource; or NO_SWITCH
    leaf: Ints  # switch of the workers; or NO_SWITCH
    merged: Floats
    few: Floats
    many: Floats


Use = tuple[int, int, int, float, float, float]


def _flows(uses: Sequence[Use]) -> Flows:
    columns = zip(*uses, strict=True) if uses else ((),) * 6
    kinds = (*(np.int64,) * 3, *(np.float64,) * 3)
    return Flows._make(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True))


def fixed(flows: Mapping[int, float]) -> Flows:
    """Return flows on some links that do not change with the rate."""
    links, counts = np.array(list(flows), np.int64), np.array(list(flows.values()), np.float64)
    if not counts.all():
        links, counts = links[counts != 0.0], counts[counts != 0.0]
    no_switch = np.full(len(links), NO_SWITCH)
    return Flows(links, no_switch, no_switch, counts, counts, counts)


def parameter_server(
    cluster: Cluster, machines: Collection[int], server: int, *, ina: Aggregation = True
) -> Flows:
    """Return the flows of a job with workers on these machines and its parameter server on machine `server`.

    Workers on one machine add up their gradients first and send one flow; those beside the parameter server send
    none. With `ina` the switches of the workers' racks and of the server's rack aggregate, or those of some racks.
    """
    workers = sorted(set(machines) - {server})
    home = cluster.rack_of[server]
    up = cluster.paths[server][1:]
    senders = Counter(cluster.rack_of[worker] for worker in workers)
    above = {cluster.rack_of[worker]: cluster.paths[worker][1:] for worker in workers}
    between = {rack: sorted(set(above[rack]) ^ set(up)) for rack in senders}
    if ina is False or ina == ():
        total: Counter[int] = Counter(workers)
        for rack, count in senders.items():
            total.update(dict.fromkeys((*between[rack], server), count))
        return fixed(total)
    links = len(cluster.uplink_gbps)

    def switch(rack: int) -> int:
        return links + rack if ina is True or rack in ina else NO_SWITCH

    root = switch(home)
    uses: list[Use] = [(worker, NO_SWITCH, NO_SWITCH, 1.0, 1.0, 1.0) for worker in workers]
    for rack, count in senders.items():
        leaf = NO_SWITCH if rack == home else switch(rack)
        few = 1.0 if leaf != NO_SWITCH else float(count)
        uses += [(link, NO_SWITCH, leaf, few, few, float(count)) for link in between[rack]]
        uses.append((server, root, leaf, 0.0, few, float(count)))
        if leaf != NO_SWITCH:
            uses.append((leaf, NO_SWITCH, NO_SWITCH, 1.0, 1.0, 1.0))
    if workers and root != NO_SWITCH:
        uses.append((server, root, NO_SWITCH, 1.0, 0.0, 0.0))
        uses.append((root, NO_SWITCH, NO_SWITCH, 1.0, 1.0, 1.0))
    return _flows(uses)


def merged_flows(cluster: Cluster, machines: Iterable[int], server: int) -> Counter[int]:
    """Count the flows that come in at each rack's switch: from workers, and at the server's from other racks."""
    rack_of = cluster.rack_of
    flows = Counter(rack_of[machine] for machine in dict.fromkeys(machines) if machine != server)
    if flows:
        flows[rack_of[server]] += len(flows) - (rack_of[server] in flows)
    return flows


def isolated_rate(cluster: Cluster, flows: Flows) -> tuple[float, dict[int, float]]:
    """Return the rate of a job that has the network to itself, in Gbps, and what each link carries then."""
    links = len(cluster.uplink_gbps)
    racks = cluster.rack_nodes

    def memory(switch: int) -> float:
        return 0.0 if switch == NO_SWITCH else cluster.pat_gbps[racks[switch - links]] or 0.0

    # On each link, pieces of the rate: from (below the next) so many Gbps on, a use is so many flows.
    steps: dict[int, list[tuple[float, float]]] = {}
    for resource, root, leaf, merged, few, many in zip(*(column.tolist() for column in flows), strict=True):
        if resource < links:
            merged_to = memory(root)
            few_to = max(merged_to, memory(leaf))
            steps.setdefault(resource, []).extend([(0.0, merged), (merged_to, few - merged), (few_to, many - few)])
    rate = min((_full(sorted(each), cluster.uplink_gbps[link]) for link, each in steps.items()), default=np.inf)
    carried = {
        link: sum(more * (rate - since) for since, more in each if since < rate) for link, each in steps.items()
    }
    return rate, carried


def _full(steps: Sequence[tuple[float, float]], gbps: float) -> float:
    """Return the rate at which a link is full that carries so many flows more from certain rates on."""
    load = slope = rate = 0.0
    for since, more in steps:
        at_since = load + slope * (since - rate)
        if at_since >= gbps:
            break
        load, slope, rate = at_since, slope + more, since
    return rate + (gbps - load) / slope if slope > 0.0 else np.inf
