"""A cluster: machines with GPUs at the leaves of a tree of links.

Nodes 0..M-1 are the machines, in the order of the tree, so that every switch covers a run of consecutive
machines; the switches follow and the root comes last. Link i is the uplink of node i; the root has none.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cranny.model.errors import InputError, unknown
from cranny.model.topology_spec import MAX_GPUS_PER_MACHINE, MAX_LEVELS, MAX_MACHINES, Machine, Switch
from cranny.model.validate import counted, positive, whole

__all__ = ["Cluster", "Machine", "Switch", "mask_of", "shape"]

UNNAMED = "core"  # what the top of a cluster is called that was built without a name


@dataclass(frozen=True, eq=False)
class Cluster:
    """Machines and the tree of links between them; shared read-only by every state and snapshot."""

    name: str
    machines: tuple[Machine, ...]
    parent: tuple[int, ...]  # (nodes,) the root is its own parent
    uplink_gbps: tuple[float, ...]  # (nodes,) the root's is infinite
    node_names: tuple[str, ...]  # (nodes,)
    spans: tuple[tuple[int, int], ...]  # (nodes,) first machine and one past the last below each node
    pat_gbps: tuple[float | None, ...]  # (nodes,) None where a node cannot aggregate
    # Name -> its machines, in their order. A machine may be in several, or in none.
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Switch, partitions: Mapping[str, Iterable[str]] | None = None) -> "Cluster":
        """Lay out a tree of switches and machines as flat tuples; `partitions` name their machines."""
        leaves: list[tuple[Machine, float]] = []
        switches: list[tuple[Switch, float, tuple[int, int], list[int]]] = []

        def visit(switch: Switch, uplink_gbps: float, level: int = 1) -> int:
            if level > MAX_LEVELS:
                raise InputError(f"cluster {root.name!r} has more than {MAX_LEVELS} levels of switches")
            first = len(leaves)
            below: list[int] = []  # machines as -1 - index, switches by index
            for child, gbps in zip(switch.children, switch.uplinks_gbps, strict=True):
                if isinstance(child, Machine):
                    below.append(-1 - len(leaves))
                    leaves.append((child, gbps))
                else:
                    below.append(visit(child, gbps, level + 1))
            switches.append((switch, uplink_gbps, (first, len(leaves)), below))
            return len(switches) - 1

        visit(root, math.inf)
        if not leaves:
            raise InputError(f"cluster {root.name!r} has no machines")
        if len(leaves) > MAX_MACHINES:
            raise InputError(f"cluster {root.name!r} has more than {MAX_MACHINES} machines")
        count = len(leaves)
        parent = [count + len(switches) - 1] * (count + len(switches))
        for index, (_, _, _, below) in enumerate(switches):
            for child_node in below:
                parent[-1 - child_node if child_node < 0 else count + child_node] = count + index
        names = [machine.name for machine, _ in leaves]
        if len(set(names)) != len(names):
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise InputError(f"cluster {root.name!r}: two machines are called {twice!r}")
        return cls(
            name=root.name,
            machines=tuple(machine for machine, _ in leaves),
            parent=tuple(parent),
            uplink_gbps=(*(gbps for _, gbps in leaves), *(gbps for _, gbps, _, _ in switches)),
            node_names=(*names, *(switch.name for switch, _, _, _ in switches)),
            spans=(*((i, i + 1) for i in range(count)), *(span for _, _, span, _ in switches)),
            pat_gbps=(*(None for _ in leaves), *(switch.pat_gbps for switch, _, _, _ in switches)),
            partitions=_numbered(names, partitions or {}),
        )

    @classmethod
    def fat_tree(
        cls,
        racks: int,
        machines_per_rack: int,
        gpus_per_machine: int,
        link_gbps: float = 100.0,
        oversubscription: float = 1.0,
        racks_per_pod: int | None = None,
        gpu_type: str = "",
        pat_gbps: float | None = None,
    ) -> "Cluster":
        """Build racks of equal machines.

        A rack's uplink is the sum of its machines' over the oversubscription. With `racks_per_pod` the racks
        hang below pods, whose uplinks are oversubscribed once more. With `pat_gbps` the racks' switches
        aggregate gradients, each up to this rate.
        """
        racks = whole(racks, "racks", most=MAX_MACHINES)
        machines_per_rack = whole(machines_per_rack, "machines_per_rack", most=MAX_MACHINES)
        gpus = whole(gpus_per_machine, "gpus_per_machine", most=MAX_GPUS_PER_MACHINE)
        if racks * machines_per_rack > MAX_MACHINES:
            raise InputError(f"{racks} racks x {machines_per_rack} machines is more than {MAX_MACHINES} machines")
        link_gbps = positive(link_gbps, "link_gbps")
        oversubscription = positive(oversubscription, "oversubscription")

        def rack(index: int) -> Switch:
            machines = tuple(Machine(f"rack{index}-machine{i}", gpus, gpu_type) for i in range(machines_per_rack))
            return Switch(f"rack{index}", machines, (link_gbps,) * machines_per_rack, pat_gbps)

        rack_gbps = link_gbps * machines_per_rack / oversubscription
        tops = tuple(rack(index) for index in range(racks))
        if racks_per_pod is None:
            return cls.of(Switch(UNNAMED, tops, (rack_gbps,) * racks))
        per_pod = whole(racks_per_pod, "racks_per_pod", most=racks)
        groups = [tops[i : i + per_pod] for i in range(0, racks, per_pod)]
        pods = tuple(Switch(f"pod{i}", group, (rack_gbps,) * len(group)) for i, group in enumerate(groups))
        pod_gbps = tuple(rack_gbps * len(group) / oversubscription for group in groups)
        return cls.of(Switch(UNNAMED, pods, pod_gbps))

    @classmethod
    def single_rack(cls, machines: int, gpus_per_machine: int, link_gbps: float = 100.0) -> "Cluster":
        """Build one switch with equal machines."""
        return cls.fat_tree(1, machines, gpus_per_machine, link_gbps)

    @classmethod
    def from_file(cls, path: str | Path) -> "Cluster":
        """Read a cluster from YAML or JSON; see `docs/use/cluster-format.md`."""
        from cranny.model.cluster_file import read_cluster_file  # YAML and pydantic only where a file is read

        return cls.of(*read_cluster_file(Path(path)))

    @cached_property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return sum(machine.gpus for machine in self.machines)

    @cached_property
    def root(self) -> int:
        """The node above all others."""
        return len(self.parent) - 1

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Links from each machine up to, not including, the root."""
        above: dict[int, tuple[int, ...]] = {self.root: ()}  # a switch comes after what is below it
        for node in range(self.root - 1, -1, -1):
            above[node] = (node, *above[self.parent[node]])
        return tuple(above[machine] for machine in range(len(self.machines)))

    @cached_property
    def rack_of(self) -> tuple[int, ...]:
        """Index of the switch right above each machine, counted over such switches in machine order."""
        number: dict[int, int] = {}
        return tuple(number.setdefault(node, len(number)) for node in self.parent[: len(self.machines)])

    @cached_property
    def rack_nodes(self) -> tuple[int, ...]:
        """The nodes that `rack_of` counts."""
        return tuple(dict.fromkeys(self.parent[: len(self.machines)]))

    @cached_property
    def rack_names(self) -> tuple[str, ...]:
        """Names of the racks that `rack_of` counts."""
        return tuple(self.node_names[rack] for rack in self.rack_nodes)

    @cached_property
    def rack_spans(self) -> tuple[tuple[int, int], ...]:
        """First machine and one past the last below each of the racks that `rack_of` counts."""
        return tuple(self.spans[rack] for rack in self.rack_nodes)

    @cached_property
    def machines_with(self) -> dict[str, int]:
        """The machines with each type of GPU, as sets."""
        sets: dict[str, int] = {}
        for index, machine in enumerate(self.machines):
            sets[machine.gpu_type] = sets.get(machine.gpu_type, 0) | 1 << index
        return sets

    @cached_property
    def machines_in(self) -> dict[str, int]:
        """The machines of each partition, as sets."""
        return {name: mask_of(machines) for name, machines in self.partitions.items()}

    @cached_property
    def share_unit(self) -> int:
        """Least common multiple of the machines' sizes: shares of a machine are whole multiples of 1/unit."""
        return math.lcm(*{machine.gpus for machine in self.machines})

    def link_name(self, link: int) -> str:
        """Name a link as people speak of it."""
        kind = "machine" if link < len(self.machines) else "switch"
        return f"uplink of {kind} {self.node_names[link]}"

    def describe(self) -> str:
        """Describe the cluster in one line."""
        sizes = Counter(
            counted(machine.gpus, "GPU") + (f" ({machine.gpu_type})" if machine.gpu_type else "")
            for machine in self.machines
        )
        parts = ", ".join(f"{counted(count, 'machine')} x {key}" for key, count in sizes.items())
        racks = counted(len(self.rack_names), "rack")
        name = "" if self.name == UNNAMED else f"{self.name}: "
        queues = ", ".join(f"{each} ({counted(len(own), 'machine')})" for each, own in self.partitions.items())
        partitions = f", partitions {queues}" if queues else ""
        return f"{name}{racks}, {parts}, {counted(self.gpus, 'GPU')}{partitions}"

    def describe_links(self) -> str:
        """Say in one line how fast links are, how far switches are oversubscribed, and what they can aggregate."""
        below_gbps = dict.fromkeys(range(len(self.machines), self.root), 0.0)
        for node in range(self.root):
            if self.parent[node] != self.root:
                below_gbps[self.parent[node]] += self.uplink_gbps[node]
        parts = [f"{_span(self.uplink_gbps[: len(self.machines)])} Gbps for each machine"]
        if below_gbps:
            ratios = [below / self.uplink_gbps[switch] for switch, below in below_gbps.items()]
            parts.append(f"switches oversubscribed {_span(ratios)}:1")
        pats = [pat for pat in self.pat_gbps if pat]
        if pats:
            parts.append(f"PAT {_span(pats)} Gbps")
        return ", ".join(parts)


def _span(values: Sequence[float]) -> str:
    """Write some numbers as the least and the greatest of them, or as one where all are alike."""
    low, high = f"{min(values):,.6g}", f"{max(values):,.6g}"
    return low if low == high else f"{low} to {high}"


def _numbered(names: Sequence[str], partitions: Mapping[str, Iterable[str]]) -> dict[str, tuple[int, ...]]:
    """Return the machines of partitions by their indices."""
    if not partitions:
        return {}
    index = {name: number for number, name in enumerate(names)}
    found: dict[str, tuple[int, ...]] = {}
    for partition, own in partitions.items():
        distinct = dict.fromkeys(own)
        stranger = next((name for name in distinct if name not in index), None)
        if stranger is not None:
            raise InputError(f"partition {partition!r}: {unknown('machine', stranger, names)}")
        found[partition] = tuple(sorted(index[name] for name in distinct))
    return found


def mask_of(machines: Iterable[int]) -> int:
    """Return a set of machines as an int with their bits set."""
    mask = 0
    for machine in machines:
        mask |= 1 << machine
    return mask


def shape(text: str) -> tuple[int, int, int] | None:
    """Read RACKSxMACHINESxGPUS, for `Cluster.fat_tree`; None if the text is something else."""
    found = re.fullmatch(r"(\d{1,9})x(\d{1,9})x(\d{1,9})", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found is not None else None
