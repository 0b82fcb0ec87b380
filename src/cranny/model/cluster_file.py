"""Clusters from YAML or JSON files; the format is described in `docs/use/cluster-format.md`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from cranny.model.topology_spec import MAX_GPUS_PER_MACHINE, MAX_LEVELS, MAX_MACHINES, Machine, Switch
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
    machines: list[MachineFields] = Field(default_factory=list)
    racks: list["SwitchFields"] = Field(default_factory=list)
    switches: list["SwitchFields"] = Field(default_factory=list)


class ClusterFields(Fields):
    """The whole file: the topmost switch, and defaults for what is below it."""

    name: Name | None = None
    link_gbps: Positive = DEFAULT_LINK_GBPS
    oversubscription: Positive = 1.0
    pat_gbps: Positive | None = None
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
    return _Builder(document, checked(document, ClusterFields, _KNOWN, _MUST_BE)).root()


def _machine_count(fields: ClusterFields | SwitchFields) -> int:
    """Count the machines below a switch."""
    below = sum(_machine_count(switch) for switch in (*fields.racks, *fields.switches))
    return below + sum(group.count for group in fields.machines)


class _Builder:
    """Lays out checked fields as a tree of switches and machines."""

    def __init__(self, document: Document, fields: ClusterFields) -> None:
        self._document = document
        self._fields = fields
        self._seen: dict[tuple[str, str], tuple[Step, ...]] = {}  # kind and name -> where it was given

    def root(self) -> Switch:
        """Return the topmost switch."""
        if _machine_count(self._fields) > MAX_MACHINES:
            raise self._document.error((), f"has more than {MAX_MACHINES} machines")
        name = self._fields.name or self._document.path.stem
        return self._switch(self._fields, name, "", ())

    def _switch(
        self, fields: ClusterFields | SwitchFields, name: str, prefix: str, steps: tuple[Step, ...]
    ) -> Switch:
        """Build one switch; `prefix` begins the names of what below it has none."""
        if len(steps) > 2 * (MAX_LEVELS - 1):
            raise self._document.error(steps, f"is more than {MAX_LEVELS} levels of switches deep")
        if fields.racks and fields.switches:
            raise self._document.error(steps, "has both `racks` and `switches`, which mean the same: use one")
        if not (fields.machines or fields.racks or fields.switches):
            raise self._document.error(steps, "has no machines: give `machines`, `racks` or `switches`")
        children: list[Switch | Machine] = []
        uplinks_gbps: list[float] = []
        for machine, gbps in self._machines(fields.machines, prefix, steps):
            children.append(machine)
            uplinks_gbps.append(gbps)
        key = "racks" if fields.racks else "switches"
        noun = "rack" if fields.racks else "switch"
        for index, below in enumerate(fields.racks or fields.switches):
            spot = (*steps, key, index)
            below_name = below.name or f"{prefix}{noun}{index}"
            self._claim("switches", below_name, spot)
            switch = self._switch(below, below_name, f"{below_name}-", spot)
            children.append(switch)
            oversubscription = below.oversubscription or self._fields.oversubscription
            uplinks_gbps.append(below.uplink_gbps or sum(switch.uplinks_gbps) / oversubscription)
        return Switch(name, tuple(children), tuple(uplinks_gbps), fields.pat_gbps)

    def _machines(
        self, groups: Sequence[MachineFields], prefix: str, steps: tuple[Step, ...]
    ) -> Iterator[tuple[Machine, float]]:
        """Yield each machine of these groups and its uplink."""
        number = 0  # of the machine below its switch
        for index, group in enumerate(groups):
            spot = (*steps, "machines", index)
            gbps = group.uplink_gbps or self._fields.link_gbps
            for twin in range(group.count):
                name = f"{prefix}machine{number}"
                if group.name is not None:
                    name = group.name if group.count == 1 else f"{group.name}-{twin}"
                self._claim("machines", name, spot)
                yield Machine(name, group.gpus, group.gpu_type or ""), gbps
                number += 1

    def _claim(self, kind: str, name: str, spot: tuple[Step, ...]) -> None:
        """Refuse a name that is already taken."""
        other = self._seen.setdefault((kind, name), spot)
        if other is not spot:
            line = self._document.line(other)
            raise self._document.error(spot, f"two {kind} are called {name!r}; the other is on line {line}")
