"""What an import finds, whatever it reads: machines, switches above them, and what a person should know."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cranny.model.cluster import Cluster
from cranny.model.cluster_yaml import LINKS, cluster_yaml
from cranny.model.errors import InputError
from cranny.model.hostlist import fold
from cranny.model.topology_spec import MAX_GPUS_PER_MACHINE, Machine, Switch
from cranny.model.validate import counted

TOP = "core"  # the switch above all others, if the source names none
ASSUMED = "assumed: put the real speed"
_NAMED = 8  # machines that a note names at most


class FoundMachine(NamedTuple):
    """A machine as its source describes it."""

    name: str
    gpus: int
    gpu_type: str = ""
    partitions: tuple[str, ...] = ()
    remark: str = ""  # what the file says beside it
    part_of: str = ""  # the node that this is only some of the GPUs of
    resources: Mapping[str, int] = {}  # beside GPUs
    features: frozenset[str] = frozenset()

    @property
    def node(self) -> str:
        """What the source calls it."""
        return self.part_of or self.name

    def machine(self) -> Machine:
        """Return it as a machine of a cluster."""
        return Machine(self.name, self.gpus, self.gpu_type, self.resources, self.features)


@dataclass(frozen=True, slots=True)
class FoundSwitch:
    """A switch with the names of what is right below it."""

    name: str
    machines: tuple[str, ...] = ()
    switches: tuple["FoundSwitch", ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ImportedCluster:
    """A cluster, and what a person should know about how it was found."""

    cluster: Cluster
    source: str  # what it was made from, in words
    notes: tuple[str, ...]
    remarks: Mapping[str, str] = field(default_factory=dict)  # machine or switch -> what the file says beside it

    def yaml(self) -> str:
        """Return a cluster file to edit."""
        header = [
            f"Made by `cranny cluster import` from {self.source}.",
            "Speeds of links are assumed: no source tells them. Put the real ones (Gbps, each direction).",
            *self.notes,
        ]
        return cluster_yaml(self.cluster, header, {LINKS: ASSUMED, **self.remarks})


def assemble(
    name: str,
    source: str,
    machines: Sequence[FoundMachine],
    tree: FoundSwitch | None = None,
    notes: Iterable[str] = (),
    link_gbps: float = 100.0,
    links: Cluster | None = None,
) -> ImportedCluster:
    """Put machines below their switches; those that no switch has are right below the topmost.

    What `links` has of the same name has the speed that it has there.
    """
    if not machines:
        said = "; ".join(note.rstrip(".") for note in notes)
        raise InputError(f"{source}: no machine with GPUs was found" + (f" ({said})" if said else ""))
    names: set[str] = set()
    on_node: dict[str, list[FoundMachine]] = {}
    for machine in machines:
        if machine.name in names:
            raise InputError(f"{source}: machine {machine.name!r} is described twice")
        if machine.gpus > MAX_GPUS_PER_MACHINE:
            most = f"a machine has at most {MAX_GPUS_PER_MACHINE}"
            raise InputError(f"{source}: machine {machine.name!r} has {machine.gpus} GPUs; {most}")
        names.add(machine.name)
        on_node.setdefault(machine.node, []).append(machine)
    remarks = {each.name: each.remark for each in machines if each.remark}
    speeds = {} if links is None else dict(zip(links.node_names, links.uplink_gbps, strict=True))
    pats = {} if links is None else dict(zip(links.node_names, links.pat_gbps, strict=True))
    placed: set[str] = set()

    def built(switch: FoundSwitch) -> Switch | None:
        below: list[Machine | Switch] = []
        for node in switch.machines:
            placed.add(node)
            below += [each.machine() for each in on_node.get(node, ())]
        below += [made for inner in switch.switches if (made := built(inner)) is not None]
        if not below:
            return None
        remarks[switch.name] = f"{ASSUMED}; {switch.remark}" if switch.remark else ASSUMED
        return Switch(switch.name, tuple(below), tuple(map(uplink_gbps, below)), pats.get(switch.name))

    def uplink_gbps(node: Machine | Switch) -> float:
        known = speeds.get(node.name)
        if known is not None and not math.isinf(known):
            return known
        return link_gbps if isinstance(node, Machine) else sum(node.uplinks_gbps)

    root = built(tree) if tree is not None else None
    left = [each.machine() for each in machines if each.node not in placed]
    if left:
        children: tuple[Machine | Switch, ...] = (*left, *(root.children if root is not None else ()))
        top = root.name if root is not None else TOP
        root = Switch(top, children, tuple(map(uplink_gbps, children)), pats.get(top))
    if root is None:
        raise InputError(f"{source}: no machine with GPUs was found")
    partitions: dict[str, list[str]] = {}
    for each in machines:
        for partition in each.partitions:
            partitions.setdefault(partition, []).append(each.name)
    remarks.pop(root.name, None)  # it has no uplink
    laid_out = Cluster.of(Switch(name, root.children, root.uplinks_gbps, root.pat_gbps), partitions)
    return ImportedCluster(laid_out, source, tuple(notes), remarks)


def naming(names: Iterable[str]) -> str:
    """Name some machines, and count the rest."""
    every = sorted(names, key=in_order)
    shown = ", ".join(every) if any(re.search(r"[\s,\[\]]", name) for name in every) else fold(every)
    if len(shown) <= 100:
        return shown
    return f"{', '.join(every[:_NAMED])} and {len(every) - _NAMED} more" if len(every) > _NAMED else shown


def about(names: Sequence[str], what: str) -> list[str]:
    """Return a note on some machines; none if there are none."""
    return [f"{counted(len(names), 'machine')} {what}: {naming(names)}."] if names else []


def in_order(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts names by their numbers: n2 comes before n10."""
    return tuple((text, int(number or 0)) for text, number in re.findall(r"([^0-9]*)([0-9]{0,18})", name))
