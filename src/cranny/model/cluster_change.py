"""A cluster that becomes another one: machines join, leave, return with other GPUs, or hang elsewhere in the tree.

Machines are the same if they have the same name; their numbers follow from the tree, and change with it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from cranny.model.cluster import Cluster
from cranny.model.cluster_values import cluster_values
from cranny.model.errors import PlacementError
from cranny.model.placement import Placement
from cranny.model.topology_spec import Machine, Switch


class ClusterDifference(NamedTuple):
    """What is different in another cluster, by names of machines."""

    joined: tuple[str, ...]
    left: tuple[str, ...]
    changed: tuple[str, ...]  # with other GPUs, resources or features
    links: bool  # the tree, speeds of links or partitions are others

    def describe(self) -> str:
        """Say what is different, in one line."""
        parts = [
            f"{what}: {_named(names)}"
            for what, names in (("joined", self.joined), ("left", self.left), ("changed", self.changed))
            if names
        ]
        return "; ".join(parts + ["other links or partitions"] * (self.links and not parts))

    def __bool__(self) -> bool:
        return bool(self.joined or self.left or self.changed or self.links)


class Renumbering:
    """The numbers that machines and racks of one cluster have in another."""

    def __init__(self, old: Cluster, new: Cluster) -> None:
        index = {machine.name: number for number, machine in enumerate(new.machines)}
        racks = {name: number for number, name in enumerate(new.rack_names)}
        self._names = [machine.name for machine in old.machines]
        self.machines = {
            number: index[machine.name] for number, machine in enumerate(old.machines) if machine.name in index
        }
        self.racks = {number: racks[name] for number, name in enumerate(old.rack_names) if name in racks}

    def machine(self, number: int) -> int:
        """Return the number of a machine; raise if it is no longer there."""
        if number not in self.machines:
            raise PlacementError(f"machine {self._names[number]} is no longer there")
        return self.machines[number]

    def placement(self, old: Placement) -> Placement:
        """Return a placement with other numbers; its reasons, which name the old ones, are dropped."""
        racks = old.aggregate
        if not isinstance(racks, bool):
            racks = tuple(self.racks[rack] for rack in racks if rack in self.racks)
        return Placement(
            tuple(map(self.machine, old.machines)),
            tuple(map(self.machine, old.spare)),
            old.gpus,
            None,
            None if old.server is None else self.machine(old.server),
            racks,
        )

    def is_known(self, old: Placement) -> bool:
        """Say whether all machines of a placement are there."""
        server = () if old.server is None else (old.server,)
        return all(number in self.machines for number in (*old.machines, *old.spare, *server))


def difference(old: Cluster, new: Cluster) -> ClusterDifference:
    """Return what is different in a cluster that follows another one."""
    before = {machine.name: machine for machine in old.machines}
    after = {machine.name: machine for machine in new.machines}
    changed = tuple(name for name, machine in after.items() if name in before and before[name] != machine)
    joined = tuple(name for name in after if name not in before)
    left = tuple(name for name in before if name not in after)
    same = cluster_values(old) == cluster_values(new)
    return ClusterDifference(joined, left, changed, not same)


def keeping(new: Cluster, old: Cluster, needed: Mapping[str, int]) -> Cluster:
    """Return a cluster with machines of the one before that jobs still hold, with as many GPUs as they need.

    A machine that has left stays below the switch of the same name, or else at the top, until its jobs are over.
    """
    there = {machine.name: machine for machine in new.machines}
    short = {name for name, gpus in needed.items() if name not in there or there[name].gpus < gpus}
    if not short:
        return new
    tops = set(new.node_names[len(new.machines) :])
    missing: dict[str, list[tuple[Machine, float]]] = {}
    for number, machine in enumerate(old.machines):
        if machine.name in short and machine.name not in there:
            above = old.node_names[old.parent[number]]
            where = above if above in tops else new.node_names[new.root]
            missing.setdefault(where, []).append((machine, old.uplink_gbps[number]))

    def grown(switch: Switch) -> Switch:
        children: list[Switch | Machine] = []
        for child in switch.children:
            if isinstance(child, Switch):
                children.append(grown(child))
            else:
                children.append(replace(child, gpus=needed[child.name]) if child.name in short else child)
        extra = missing.get(switch.name, [])
        added = tuple(machine for machine, _ in extra)
        gbps = tuple(each for _, each in extra)
        return replace(switch, children=(*children, *added), uplinks_gbps=(*switch.uplinks_gbps, *gbps))

    partitions = {name: [new.node_names[each] for each in own] for name, own in new.partitions.items()}
    return Cluster.of(grown(tree_of(new)), partitions)


def tree_of(cluster: Cluster) -> Switch:
    """Return the tree that a cluster was laid out from."""
    below: dict[int, list[int]] = {}
    for node in sorted(range(cluster.root), key=lambda node: (cluster.spans[node][0], cluster.spans[node], node)):
        below.setdefault(cluster.parent[node], []).append(node)

    def switch(node: int) -> Switch:
        inside = below.get(node, [])
        children = tuple(
            cluster.machines[each] if each < len(cluster.machines) else switch(each) for each in inside
        )
        gbps = tuple(cluster.uplink_gbps[each] for each in inside)
        return Switch(cluster.node_names[node], children, gbps, cluster.pat_gbps[node])

    return switch(cluster.root)


def _named(names: tuple[str, ...], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
