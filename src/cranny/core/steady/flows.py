"""What a job puts on links and switches, for each Gbps that its workers stream.

A *resource* is a link or the memory of a rack's switch. Resources are numbered: first the links as the cluster
numbers them, then the switches as `rack_of` counts racks. A job *uses* a resource with a number of flows, each of
the job's rate. In-network aggregation makes that number change with the rate: a switch that still has memory
turns what it gets into one flow, and one that has none left passes everything on.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cranny.core.traffic import footprint
from cranny.model.cluster import Cluster
from cranny.model.job import Job

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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
    resource, root, leaf, merged, few, many = zip(*uses, strict=True) if uses else ((),) * 6
    return Flows(
        np.array(resource, dtype=np.int64),
        np.array(root, dtype=np.int64),
        np.array(leaf, dtype=np.int64),
        np.array(merged, dtype=np.float64),
        np.array(few, dtype=np.float64),
        np.array(many, dtype=np.float64),
    )


def fixed(flows: Mapping[int, float]) -> Flows:
    """Return flows on some links that do not change with the rate."""
    return _flows([(link, NO_SWITCH, NO_SWITCH, n, n, n) for link, n in flows.items() if n])


def collective(cluster: Cluster, job: Job, machines: tuple[int, ...]) -> tuple[Flows, float]:
    """Return the flows of a job's collective, and the gigabits that an iteration moves on its busiest link.

    The rate of such a job is what its busiest link carries of it.
    """
    _, links, costs = footprint(cluster, job, machines)
    moved = np.zeros(len(links))
    for cost, k_bytes in costs:
        moved += np.array(cost.link_share) * k_bytes
    busiest = float(moved.max(initial=0.0))
    shares = dict(zip(links, (moved / busiest).tolist(), strict=True)) if busiest else {}
    return fixed(shares), busiest * 8 / 1e9


def parameter_server(cluster: Cluster, machines: Collection[int], server: int, *, ina: bool = True) -> Flows:
    """Return the flows of a job with workers on these machines and its parameter server on machine `server`.

    Workers on one machine add up their gradients first and send one flow; those beside the parameter server send
    none. With `ina` the switches of the workers' racks and of the server's rack aggregate.
    """
    workers = sorted(set(machines) - {server})
    home = cluster.rack_of[server]
    up = cluster.paths[server][1:]
    senders = Counter(cluster.rack_of[worker] for worker in workers)
    above = {cluster.rack_of[worker]: cluster.paths[worker][1:] for worker in workers}
    between = {rack: sorted(set(above[rack]) ^ set(up)) for rack in senders}
    if not ina:
        total: Counter[int] = Counter(workers)
        for rack, count in senders.items():
            total.update(dict.fromkeys((*between[rack], server), count))
        return fixed(total)
    links = len(cluster.uplink_gbps)
    root = links + home
    uses: list[Use] = [(worker, NO_SWITCH, NO_SWITCH, 1.0, 1.0, 1.0) for worker in workers]
    for rack, count in senders.items():
        leaf = links + rack
        if rack == home:
            uses.append((server, root, NO_SWITCH, 0.0, float(count), float(count)))
            continue
        uses += [(link, NO_SWITCH, leaf, 1.0, 1.0, float(count)) for link in between[rack]]
        uses.append((server, root, leaf, 0.0, 1.0, float(count)))
        uses.append((leaf, NO_SWITCH, NO_SWITCH, 1.0, 1.0, 1.0))
    if workers:
        uses.append((server, root, NO_SWITCH, 1.0, 0.0, 0.0))
        uses.append((root, NO_SWITCH, NO_SWITCH, 1.0, 1.0, 1.0))
    return _flows(uses)
