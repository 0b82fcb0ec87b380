"""The same cluster with a few machines fewer or more."""

from collections import Counter
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError

Extra = Mapping[int, list[tuple[Machine, float]]]  # switch -> new machines and their uplinks


def resized(cluster: Cluster, change: int) -> Cluster:
    """Return the cluster with `change` machines more, or fewer if it is negative, spread evenly over the racks."""
    if change == 0:
        return cluster
    return _with_more(cluster, change) if change > 0 else _with_fewer(cluster, -change)


def _with_fewer(cluster: Cluster, count: int) -> Cluster:
    """Take machines away one by one, each the last of the rack that has the most left."""
    if count >= len(cluster.machines):
        raise InputError(f"cannot remove {count} of {len(cluster.machines)} machines")
    members: dict[int, list[int]] = {}
    for machine, rack in enumerate(cluster.rack_of):
        members.setdefault(rack, []).append(machine)
    fullest = [(-len(machines), -rack) for rack, machines in members.items()]
    heapify(fullest)
    gone = set()
    for _ in range(count):
        left, rack = heappop(fullest)
        gone.add(members[-rack].pop())
        heappush(fullest, (left + 1, rack))
    return _rebuilt(cluster, gone, {})


def _with_more(cluster: Cluster, count: int) -> Cluster:
    """Add machines to the racks in turn, each like the last machine of its rack."""
    extra: dict[int, list[tuple[Machine, float]]] = {}
    last_of = {cluster.parent[machine]: machine for machine in range(len(cluster.machines))}  # rack -> machine
    racks = list(last_of)
    names = set(cluster.node_names)
    given: Counter[str] = Counter()
    for index in range(count):
        rack = racks[index % len(racks)]
        machine = last_of[rack]
        like = cluster.machines[machine]
        name = like.name
        while name in names:
            given[like.name] += 1
            name = f"{like.name}-more{given[like.name]}"
        names.add(name)
        extra.setdefault(rack, []).append((Machine(name, like.gpus, like.gpu_type), cluster.uplink_gbps[machine]))
    return _rebuilt(cluster, set(), extra)


def _rebuilt(cluster: Cluster, gone: set[int], extra: Extra) -> Cluster:
    """Lay the tree out again without some machines and with some new ones."""
    below: dict[int, list[int]] = {}
    for node, parent in enumerate(cluster.parent):
        if node != cluster.root:
            below.setdefault(parent, []).append(node)

    def switch(node: int) -> Switch:
        children: list[tuple[Switch | Machine, float]] = []
        for child in sorted(below.get(node, ()), key=lambda child: cluster.spans[child]):
            gbps = cluster.uplink_gbps[child]
            if child >= len(cluster.machines):
                inner = switch(child)
                if inner.children:  # a rack without machines is gone too
                    children.append((inner, gbps))
            elif child not in gone:
                children.append((cluster.machines[child], gbps))
        children += extra.get(node, [])
        name, pat_gbps = cluster.node_names[node], cluster.pat_gbps[node]
        return Switch(name, tuple(child for child, _ in children), tuple(gbps for _, gbps in children), pat_gbps)

    return Cluster.of(switch(cluster.root))
