"""Clusters from YAML or JSON files; the format is described in `docs/use/cluster-format.md`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from cranny.model.errors import InputError, unknown
from cranny.model.hostlist import expand
from cranny.model.topology_spec import (
    MAX_GPUS_PER_MACHINE,
    MAX_LEVELS,
    MAX_MACHINES,
    MAX_RESOURCE,
    ClusterSpec,
    Machine,
    Switch,
    peak_aggregation_gbps,
)
from cranny.model.yaml_file import MAX_NAME, Document, Fields, Name, Positive, Step, checked, shown

DEFAULT_LINK_GBPS = 100.0

Gpus = Annotated[int, Field(ge=1, le=MAX_GPUS_PER_MACHINE)]
Count = Annotated[int, Field(ge=1, le=MAX_MACHINES)]
Amount = Annotated[int, Field(ge=0, le=MAX_RESOURCE)]

# What the value of a field must be, in words.
_MUST_BE = {
    "gpus": f"a whole number from 1 to {MAX_GPUS_PER_MACHINE}",
    "count": f"a whole number from 1 to {MAX_MACHINES}",
    "name": f"printable text of 1 to {MAX_NAME} characters",
    "names": "a list of names such as node[001-004]",
    "gpu_type": f"printable text of 1 to {MAX_NAME} characters",
    "resources": "names, each with a whole number",
    "features": "a list of names",
    "features[]": f"printable text of 1 to {MAX_NAME} characters",
    "machines": "a list with an entry for each machine",
    "racks": "a list with an entry for each rack",
    "switches": "a list with an entry for each switch",
    "partitions": "names, each with its machines",
}


class MachineFields(Fields):
    """A machine, or `count` equal ones, or one for each of `names`."""

    name: Name | None = None
    names: str | None = None
    gpus: Gpus
    gpu_type: Name | None = None
    resources: dict[Name, Amount] = Field(default_factory=dict)
    features: list[Name] = Field(default_factory=list)
    uplink_gbps: Positive | None = None
    count: Count = 1


class SwitchFields(Fields):
    """A switch and what hangs below it."""

    name: Name | None = None
    uplink_gbps: Positive | None = None
    oversubscription: Positive | None = None
    pat_gbps: Positive | None = None
    memory_kb: Positive | None = None
    machines: list[MachineFields] = Field(default_factory=list)
    racks: list["SwitchFields"] = Field(default_factory=list)
    switches: list["SwitchFields"] = Field(default_factory=list)


class ClusterFields(Fields):
    """The whole file: the topmost switch, and defaults for what is below it."""

    name: Name | None = None
    link_gbps: Positive = DEFAULT_LINK_GBPS
    oversubscription: Positive = 1.0
    pat_gbps: Positive | None = None
    memory_kb: Positive | None = None
    rtt_us: Positive | None = None
    machines: list[MachineFields] = Field(default_factory=list)
    racks: list[SwitchFields] = Field(default_factory=list)
    switches: list[SwitchFields] = Field(default_factory=list)
    partitions: dict[str, object] = Field(default_factory=dict)


_KNOWN: dict[str, type[Fields]] = {
    "machines": MachineFields,
    "racks": SwitchFields,
    "switches": SwitchFields,
}


def read_cluster_file(path: Path) -> ClusterSpec:
    """Read a cluster from a file, or say in one line what is wrong with the file, and where."""
    document = Document(
        path, frozenset({"name", "names", "gpu_type"}), frozenset({"partitions"}), frozenset({"features"})
    )
    whole = checked(document, ClusterFields, _KNOWN, _MUST_BE)
    if _machine_count(whole) > MAX_MACHINES:
        raise document.error((), f"has more than {MAX_MACHINES} machines")
    root = _tree(document, whole, path.stem)
    return ClusterSpec(root, _partitions(document, whole, root))


def _tree(document: Document, whole: ClusterFields, file_name: str) -> Switch:
    """Build the tree of switches and machines."""
    # Kind -> name -> where it was given.
    seen: dict[str, dict[str, tuple[Step, ...]]] = {"machines": {}, "switches": {}}

    def claim(kind: str, name: str, spot: tuple[Step, ...]) -> None:
        """Refuse a name that is already taken, and too many machines."""
        other = seen[kind].setdefault(name, spot)
        if len(seen["machines"]) > MAX_MACHINES:
            raise document.error((), f"has more than {MAX_MACHINES} machines")
        if other is not spot:
            line = document.line(other)
            raise document.error(spot, f"two {kind} are called {name!r}; the other is on line {line}")

    def build(fields: ClusterFields | SwitchFields, name: str, prefix: str, steps: tuple[Step, ...]) -> Switch:
        """Build one switch; `prefix` begins the names of what below it has none."""
        if len(steps) > 2 * (MAX_LEVELS - 1):
            raise document.error(steps, f"is more than {MAX_LEVELS} levels of switches deep")
        if fields.racks and fields.switches:
            raise document.error(steps, "has both `racks` and `switches`, which mean the same: use one")
        if not (fields.machines or fields.racks or fields.switches):
            raise document.error(steps, "has no machines: give `machines`, `racks` or `switches`")
        children: list[Switch | Machine] = []
        uplinks_gbps: list[float] = []
        for index, group in enumerate(fields.machines):
            spot: tuple[Step, ...] = (*steps, "machines", index)
            for machine in _machine_names(document, group, f"{prefix}machine", len(children), spot):
                claim("machines", machine, spot)
                children.append(
                    Machine(machine, group.gpus, group.gpu_type or "", group.resources, frozenset(group.features))
                )
                uplinks_gbps.append(group.uplink_gbps or whole.link_gbps)
        key, noun = ("racks", "rack") if fields.racks else ("switches", "switch")
        for index, below in enumerate(fields.racks or fields.switches):
            spot = (*steps, key, index)
            below_name = below.name or f"{prefix}{noun}{index}"
            claim("switches", below_name, spot)
            switch = build(below, below_name, f"{below_name}-", spot)
            children.append(switch)
            oversubscription = below.oversubscription or whole.oversubscription
            uplinks_gbps.append(below.uplink_gbps or sum(switch.uplinks_gbps) / oversubscription)
        return Switch(name, tuple(children), tuple(uplinks_gbps), _pat_gbps(document, fields, whole, steps))

    return build(whole, whole.name or file_name, "", ())


def _machine_names(
    document: Document, group: MachineFields, unnamed: str, first: int, steps: tuple[Step, ...]
) -> Sequence[str]:
    """Return the names of the machines that an entry stands for; those without one are numbered from `first`."""
    if group.names is not None:
        names = _expanded(document, group.names, (*steps, "names"))
        wrong = next((name for name in names if len(name) > MAX_NAME or not name.isprintable()), None)
        if group.name is not None or "count" in group.model_fields_set:
            raise document.error(steps, "has `names`, which neither `name` nor `count` can stand beside")
        if wrong is not None or not names:
            raise document.error((*steps, "names"), f"must be {_MUST_BE['names']}, not {shown(group.names)}")
        if len(set(names)) < len(names):
            raise document.error((*steps, "names"), "names a machine twice")
        return names
    if group.name is None:
        return [f"{unnamed}{first + twin}" for twin in range(group.count)]
    return [group.name] if group.count == 1 else [f"{group.name}-{twin}" for twin in range(group.count)]


def _expanded(document: Document, text: str, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Return the names that a host list in the file stands for."""
    try:
        return expand(text)
    except InputError as error:
        raise document.error(steps, str(error)) from None


def _partitions(document: Document, whole: ClusterFields, root: Switch) -> Mapping[str, tuple[str, ...]]:
    """Return the machines of each partition by name; each entry is a machine's name or a host list."""
    if not whole.partitions:
        return {}
    known = dict.fromkeys(_names_below(root))
    found: dict[str, tuple[str, ...]] = {}
    for partition, entries in whole.partitions.items():
        steps: tuple[Step, ...] = ("partitions", partition)
        if not partition or len(partition) > MAX_NAME or not partition.isprintable():
            raise document.error(steps, f"the name of a partition must be {_MUST_BE['name']}")
        listed = [entries] if isinstance(entries, str) else entries
        if not isinstance(listed, list):
            raise document.error(steps, f"must be machines such as node[001-004], not {shown(entries)}")
        names: list[str] = []
        for index, entry in enumerate(listed):
            spot = steps if isinstance(entries, str) else (*steps, index)
            if not isinstance(entry, str):
                raise document.error(
                    spot, f"must be a machine or machines such as node[001-004], not {shown(entry)}"
                )
            here = (entry,) if entry in known else _expanded(document, entry, spot)
            stranger = next((name for name in here if name not in known), None)
            if stranger is not None:
                raise document.error(spot, str(unknown("machine", stranger, known)))
            names += here
        found[partition] = tuple(dict.fromkeys(names))
    return found


def _names_below(switch: Switch) -> Iterator[str]:
    """Yield the names of the machines below a switch."""
    for child in switch.children:
        if isinstance(child, Machine):
            yield child.name
        else:
            yield from _names_below(child)


def _pat_gbps(
    document: Document, fields: ClusterFields | SwitchFields, whole: ClusterFields, steps: tuple[Step, ...]
) -> float | None:
    """Return what a switch can aggregate, as given or by its memory."""
    if fields.memory_kb is None:
        return fields.pat_gbps
    if fields.pat_gbps is not None:
        raise document.error(steps, "has both `pat_gbps` and `memory_kb`: give one")
    if whole.rtt_us is None:
        raise document.error(steps, "has `memory_kb`, which needs the `rtt_us` of the file")
    return peak_aggregation_gbps(fields.memory_kb, whole.rtt_us)


def _machine_count(fields: ClusterFields | SwitchFields) -> int:
    """Count the machines below a switch."""
    below = sum(_machine_count(switch) for switch in (*fields.racks, *fields.switches))
    return below + sum(group.count for group in fields.machines)
