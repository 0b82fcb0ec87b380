"""The cluster with some machines more or fewer."""

from collections import Counter
from collections.abc import Collection, Mapping

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.validate import counted

Extra = Mapping[int, list[tuple[Machine, int]]]  # switch -> new machines, and which machine each is like


def resized(
    cluster: Cluster, change: int, gpu_type: str | None = None, last: Collection[int] = frozenset()
) -> Cluster:
    """Return the cluster with `change` machines more, or fewer if it is negative, spread evenly over the racks.

    With a `gpu_type`, as the cluster writes it, they are of that type. Those of `last` go after all others.
    """
    if change == 0:
        return cluster
    those = [at for at, machine in enumerate(cluster.machines) if gpu_type in (None, machine.gpu_type)]
    return _with_more(cluster, change, those) if change > 0 else _with_fewer(cluster, -change, those, last)


def _with_fewer(cluster: Cluster, count: int, those: Collection[int], last: Collection[int]) -> Cluster:
    """Take machines away one by one, each the last of the rack that has the most left."""
    if count > len(those) or count >= len(cluster.machines):
        raise InputError(f"cannot remove {count} of {counted(len(those), 'machine')}")
    seen: Counter[int] = Counter()
    order = []
    for machine in those:
        rack = cluster.rack_of[machine]
        order.append((machine not in last, seen[rack], rack, machine))
        seen[rack] += 1
    gone = {machine for *_, machine in sorted(order, reverse=True)[:count]}
    return _rebuilt(cluster, gone, {})


def _with_more(cluster: Cluster, count: int, those: Collection[int]) -> Cluster:
    """Add machines to the racks of some in turn, each like the last of them in its rack."""
    if not those:
        raise InputError("there is no machine that the new ones could be like")
    extra: dict[int, list[tuple[Machine, int]]] = {}
    last_of = {cluster.parent[machine]: machine for machine in those}  # rack -> machine
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
        extra.setdefault(rack, []).append((Machine(name, like.gpus, like.gpu_type), machine))
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
        children += [(more, cluster.uplink_gbps[like]) for more, like in extra.get(node, ())]
        name, pat_gbps = cluster.node_names[node], cluster.pat_gbps[node]
        return Switch(name, tuple(child for child, _ in children), tuple(gbps for _, gbps in children), pat_gbps)

    root = switch(cluster.root)
    partitions = {
        name: [cluster.machines[machine].name for machine in own if machine not in gone]
        + [more.name for pairs in extra.values() for more, like in pairs if like in own]
        for name, own in cluster.partitions.items()
    }
    return Cluster.of(root, partitions)
