"""Clusters from YAML or JSON files; the format is described in `docs/use/cluster-format.md`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from cranny.model.topology_spec import (
    MAX_GPUS_PER_MACHINE,
    MAX_LEVELS,
    MAX_MACHINES,
    Machine,
    Switch,
    peak_aggregation_gbps,
)
from cranny.model.yaml_file import MAX_NAME, Document, Fields, Name, Positive, Step, checked

DEFAULT_LINK_GBPS = 100.0

Gpus = Annotated[int, Field(ge=1, le=MAX_GPUS_PER_MACHINE)]
Count = Annotated[int, Field(ge=1, le=MAX_MACHINES)]

# What the value of a field must be, in words.
_MUST_BE = {
    "gpus": f"a whole number from 1 to {MAX_GPUS_PER_MACHINE}",
    "count": f"a whole number from 1 to {MAX_MACHINES}",
    "name": f"printable text of 1 to {MAX_NAME} characters",
    "gpu_type": f"printable text of 1 to {MAX_NAME} characters",
    "machines": "a list with an entry for each machine",
    "racks": "a list with an entry for each rack",
    "switches": "a list with an entry for each switch",
}


class MachineFields(Fields):
    """A machine, or `count` equal ones."""

    name: Name | None = None
    gpus: Gpus
    gpu_type: Name | None = None
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


_KNOWN: dict[str, type[Fields]] = {
    "machines": MachineFields,
    "racks": SwitchFields,
    "switches": SwitchFields,
}


def read_tree(path: Path) -> Switch:
    """Read the tree of a cluster from a file, or say in one line what is wrong with the file, and where."""
    document = Document(path, text_fields=frozenset({"name", "gpu_type"}))
    whole = checked(document, ClusterFields, _KNOWN, _MUST_BE)
    if _machine_count(whole) > MAX_MACHINES:
        raise document.error((), f"has more than {MAX_MACHINES} machines")
    seen: dict[tuple[str, str], tuple[Step, ...]] = {}  # kind and name -> where it was given

    def claim(kind: str, name: str, spot: tuple[Step, ...]) -> None:
        """Refuse a name that is already taken."""
        other = seen.setdefault((kind, name), spot)
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
            for twin in range(group.count):
                machine = f"{prefix}machine{len(children)}"
                if group.name is not None:
                    machine = group.name if group.count == 1 else f"{group.name}-{twin}"
                claim("machines", machine, spot)
                children.append(Machine(machine, group.gpus, group.gpu_type or ""))
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

    return build(whole, whole.name or path.stem, "", ())


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
