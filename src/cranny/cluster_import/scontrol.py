"""Machines from `scontrol show node -d`, its lines as they are, with `-o`, or as JSON."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cranny.cluster_import.gres import NodeGpus, read_gres
from cranny.cluster_import.imported import FoundMachine, FoundSwitch, ImportedCluster, about, assemble
from cranny.model.errors import InputError, at
from cranny.model.validate import counted
from cranny.model.yaml_file import read_text
from cranny.traces.readers.json_log import load, mapping, objects, text

MOST_BYTES = 256 * 2**20
# A value ends at a space; OS, Reason and Comment hold spaces, but come with no key of these inside before it.
_FIELD = re.compile(r"(?:^|\s)(Gres|State|Partitions|CfgTRES)=(\S*)")
_NODE = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
_DOWN = re.compile(r"DOWN|DRAIN|FAIL|NOT_RESPONDING|POWERED_DOWN|FUTURE|MAINT|INVAL", re.IGNORECASE)


class _Node(NamedTuple):
    """A node as it stands in the file."""

    spot: str
    name: str
    gres: str
    state: str
    partitions: tuple[str, ...]
    tres: str


def read_scontrol(
    path: Path, tree: FoundSwitch | None = None, *, count_parts: bool = False, link_gbps: float = 100.0
) -> ImportedCluster:
    """Read the nodes that a file describes, below the switches of `tree` if it is given.

    MIG instances are skipped unless `count_parts` counts each as a GPU. Nodes without GPUs are skipped.
    """
    content = read_text(path, MOST_BYTES)
    nodes = list(_from_json(path) if content.lstrip().startswith("{") else _from_text(path, content))
    if not nodes:
        raise InputError(f"{path}: no line begins with NodeName=; give what `scontrol show node -d` prints")
    machines: list[FoundMachine] = []
    without, unavailable, parted, mixed, shared = [], [], [], [], []
    for node in nodes:
        gpus = _gpus(node)
        parts = sum(gpus.parts.values())
        remark = node.state if _DOWN.search(node.state) else ""
        kinds = dict(gpus.whole)
        if parts:
            parted.append(node.name)
            if count_parts:
                kinds.update(gpus.parts)
        if len(kinds) > 1:
            mixed.append(node.name)
        if not kinds:
            without += [] if parts else [node.name]
            continue
        unavailable += [node.name] if remark else []
        shared += [node.name] if gpus.shared else []
        machines += _machines(node, kinds, remark)
    counted_as = "each counted as a GPU" if count_parts else "skipped (--count-parts counts each as a GPU)"
    notes = [
        *about(unavailable, "not available when this was printed, kept in the cluster"),
        *about(parted, f"with MIG instances, {counted_as}"),
        *about(mixed, "with GPUs of several types, divided into a machine for each type"),
        *about(shared, "with GPUs that jobs can share (shards or MPS), counted as whole GPUs"),
        *about(without, "without GPUs, skipped"),
        *_off_the_tree(machines, tree),
    ]
    return assemble(path.stem, f"scontrol ({path.name})", machines, tree, notes, link_gbps)


def _machines(node: _Node, kinds: dict[str, int], remark: str) -> Iterator[FoundMachine]:
    """Yield a machine for each type; the type with the most GPUs keeps the name of the node."""
    ordered = sorted(kinds.items(), key=lambda each: -each[1])
    for index, (kind, count) in enumerate(ordered):
        if index == 0:
            yield FoundMachine(node.name, count, kind, node.partitions, remark)
            continue
        beside = "; ".join(filter(None, [remark, f"the same machine as {node.name}"]))
        yield FoundMachine(f"{node.name}-{kind or 'gpu'}", count, kind, node.partitions, beside, node.name)


def _gpus(node: _Node) -> NodeGpus:
    """Return the GPUs of a node, by CfgTRES if its Gres is silent."""
    try:
        gpus = read_gres(node.gres)
    except InputError as error:
        raise InputError(f"{node.spot}: node {node.name}: {error}") from None
    total = re.search(r"(?:^|,)gres/gpu=([0-9]{1,6})", node.tres)
    if not gpus.whole and not gpus.parts and total and int(total[1]):
        return NodeGpus({"": int(total[1])}, {}, gpus.shared)
    return gpus


def _from_text(path: Path, content: str) -> Iterator[_Node]:
    """Yield the nodes of what scontrol prints."""
    begins = list(_NODE.finditer(content))
    line, counted_to = 1, 0
    for index, begin in enumerate(begins):
        end = begins[index + 1].start() if index + 1 < len(begins) else len(content)
        line += content.count("\n", counted_to, begin.start())
        counted_to = begin.start()
        fields: dict[str, str] = {}
        for found in _FIELD.finditer(content, begin.start(), end):
            fields.setdefault(found[1], found[2])  # a later one stands in a comment or a reason
        spot = at(path, line)
        if "Gres" not in fields or "State" not in fields:
            raise InputError(f"{spot}: node {begin[1]}: has no Gres= and State=; is the file cut short?")
        yield _Node(
            spot,
            begin[1],
            fields["Gres"],
            fields["State"],
            _split(fields.get("Partitions", "")),
            fields.get("CfgTRES", ""),
        )


def _from_json(path: Path) -> Iterator[_Node]:
    """Yield the nodes of `scontrol show node --json`, or of `sinfo --json` of older versions."""
    for place, entry in enumerate(objects(mapping(load(path)).get("nodes")), 1):
        name = text(entry.get("name"))
        if name is None:
            raise InputError(f"{path}: node {place}: has no name")
        flags = entry.get("state_flags")  # apart from the state in versions up to 22.05
        states = [*_words(entry.get("state")), *_words(flags)]
        yield _Node(
            f"{path}: node {place}",
            name,
            text(entry.get("gres")) or "",
            "+".join(states).upper(),
            tuple(_words(entry.get("partitions"))),
            text(entry.get("tres")) or "",
        )


def _words(value: object) -> list[str]:
    """Take a list of words, or words with commas between."""
    if isinstance(value, list):
        return [word for each in value if (word := text(each)) is not None]
    return list(_split(text(value) or ""))


def _split(value: str) -> tuple[str, ...]:
    return tuple(each for each in value.split(",") if each and each != "(null)")


def _off_the_tree(machines: list[FoundMachine], tree: FoundSwitch | None) -> list[str]:
    """Say which machines no switch has, and which switches' nodes are not described."""
    if not machines:
        return []
    if tree is None:
        return ["No topology was given: all machines hang below one switch (see --topology)."]

    def below(switch: FoundSwitch) -> Iterator[str]:
        yield from switch.machines
        for inner in switch.switches:
            yield from below(inner)

    on_tree = set(below(tree))
    names = {machine.node for machine in machines}
    missing = sorted(names - on_tree)
    notes = about(missing, "not in the topology, put below the topmost switch")
    strange = on_tree - names
    if strange:
        notes.append(
            f"{counted(len(strange), 'node')} of the topology without GPUs or not described: passed over."
        )
    return notes
