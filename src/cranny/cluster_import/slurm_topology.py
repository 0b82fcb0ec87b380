"""Switches from `scontrol show topology` (topology/tree), or from a topology.conf of the same words."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cranny.cluster_import.imported import TOP, FoundSwitch
from cranny.model.errors import InputError, at
from cranny.model.hostlist import expand
from cranny.model.topology_spec import MAX_LEVELS
from cranny.model.yaml_file import read_text

_FIELD = re.compile(r"(\w+)=(\S*)")


class _Line(NamedTuple):
    """A switch as it stands in the file."""

    number: int
    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    speed: str


def read_topology(path: Path) -> FoundSwitch:
    """Read the tree of switches; several topmost ones are put below one more."""
    return topology_of(read_text(path), path)


def topology_of(content: str, path: Path) -> FoundSwitch:
    """Read the tree of switches from text; errors name `path`."""
    lines = _lines(content, path)
    above: dict[str, _Line] = {}
    for line in lines.values():
        for name in line.switches:
            if name not in lines:
                raise InputError(
                    f"{at(path, line.number)}: switch {line.name} has a switch {name} that is not there"
                )
            other = above.setdefault(name, line)
            if other is not line:
                problem = f"switch {name} is below {other.name} (line {other.number}) and below {line.name}"
                raise InputError(f"{at(path, line.number)}: {problem}")
    holder = _holders(path, lines)
    own: dict[str, list[str]] = {}
    for node, line in holder.items():
        own.setdefault(line.name, []).append(node)

    def built(line: _Line, level: int) -> FoundSwitch:
        if level > MAX_LEVELS:
            raise InputError(f"{at(path, line.number)}: more than {MAX_LEVELS} levels of switches")
        below = tuple(built(lines[name], level + 1) for name in line.switches)
        speed = f"LinkSpeed={line.speed} in Slurm, whose unit is free" if line.speed not in ("", "1") else ""
        return FoundSwitch(line.name, tuple(own.get(line.name, ())), below, speed)

    tops = [line for line in lines.values() if line.name not in above]
    if not tops:
        raise InputError(f"{path}: every switch is below another: the switches form a circle")
    made = [built(line, 1) for line in tops]
    if len(made) == 1:
        return made[0]
    name = TOP
    while name in lines:
        name += "-top"
    return FoundSwitch(name, (), tuple(made))


def _lines(content: str, path: Path) -> dict[str, _Line]:
    """Return the switches of a file by name."""
    lines: dict[str, _Line] = {}
    for number, whole_line in enumerate(content.splitlines(), 1):
        spot = at(path, number)
        text = whole_line.partition("#")[0].strip()
        if not text:
            continue
        if text.startswith("BlockName="):
            raise InputError(f"{spot}: topology/block is not read, only topology/tree; give racks by hand")
        fields = dict(_FIELD.findall(text))
        if not text.startswith("SwitchName="):
            raise InputError(f"{spot}: must begin with SwitchName=, as `scontrol show topology` prints it")
        try:
            nodes, below = (expand(_listed(fields.get(key, ""))) for key in ("Nodes", "Switches"))
            names = expand(fields["SwitchName"])
        except InputError as error:
            raise InputError(f"{spot}: {error}") from None
        for name in names:
            if name in lines:
                raise InputError(f"{spot}: switch {name} is described twice, first on line {lines[name].number}")
            lines[name] = _Line(number, name, nodes, below, fields.get("LinkSpeed", ""))
    if not lines:
        raise InputError(f"{path}: has no switches; give what `scontrol show topology` prints")
    return lines


def _listed(value: str) -> str:
    return "" if value == "(null)" else value


def _holders(path: Path, lines: Mapping[str, _Line]) -> dict[str, _Line]:
    """Return the switch right above each node; switches with others below repeat the nodes of those."""
    holder: dict[str, _Line] = {}
    for line in lines.values():
        if line.switches:
            continue
        for node in line.nodes:
            other = holder.setdefault(node, line)
            if other is not line:
                problem = f"node {node} is below {other.name} (line {other.number}) and below {line.name}"
                raise InputError(f"{at(path, line.number)}: {problem}")
    return holder
