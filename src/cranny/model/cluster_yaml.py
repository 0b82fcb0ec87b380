"""Clusters written as YAML that people can edit; `Cluster.from_file` gives the same cluster back."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.hostlist import fold

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})  # YAML takes these for no text
_COLUMN = 60  # where remarks begin, on lines that are shorter
LINKS = "link_gbps"  # stands among remarks for the uplink of machines


class _Like(NamedTuple):
    """What machines on one line have in common."""

    gpus: int
    gpu_type: str
    uplink_gbps: float
    remark: str
    resources: tuple[tuple[str, int], ...]
    features: tuple[str, ...]


def cluster_yaml(cluster: Cluster, header: Sequence[str] = (), remarks: Mapping[str, str] | None = None) -> str:
    """Return a cluster as the text of a cluster file.

    `header` are lines of comment at its beginning; `remarks` are comments on machines and switches by name, and on
    `LINKS`. A switch's machines come before the switches below it, as in every cluster file.
    """
    remarks = remarks or {}
    common_gbps = Counter(cluster.uplink_gbps[: len(cluster.machines)]).most_common(1)[0][0]
    lines = [f"# {' '.join(line.splitlines())}".rstrip() for line in header]
    lines.append(f"name: {_text(cluster.name)}")
    lines.append(_remarked(f"link_gbps: {_number(common_gbps)}", remarks.get(LINKS, "")))
    root_pat_gbps = cluster.pat_gbps[cluster.root]
    if root_pat_gbps is not None:
        lines.append(f"pat_gbps: {_number(root_pat_gbps)}")
    below: dict[int, list[int]] = {}
    for node in sorted(range(cluster.root), key=lambda node: (cluster.spans[node], node)):
        below.setdefault(cluster.parent[node], []).append(node)
    lines += _children(cluster, cluster.root, below, "", common_gbps, remarks)
    lines += _partition_lines(cluster)
    return "\n".join(lines) + "\n"


def _children(
    cluster: Cluster,
    node: int,
    below: Mapping[int, Sequence[int]],
    indent: str,
    common_gbps: float,
    remarks: Mapping[str, str],
) -> Iterator[str]:
    """Yield the lines of what hangs below a switch."""
    machines = [child for child in below[node] if child < len(cluster.machines)]
    switches = [child for child in below[node] if child >= len(cluster.machines)]

    def like(machine: int) -> _Like:
        described = cluster.machines[machine]
        remark = remarks.get(described.name, "")
        has = tuple(described.resources.items()), tuple(sorted(described.features))
        return _Like(described.gpus, described.gpu_type, cluster.uplink_gbps[machine], remark, *has)

    if machines:
        yield f"{indent}machines:"
    for shared, group in groupby(machines, key=like):
        fields = [f"gpus: {shared.gpus}"]
        if shared.gpu_type:
            fields.append(f"gpu_type: {_text(shared.gpu_type)}")
        if shared.uplink_gbps != common_gbps:
            fields.append(f"uplink_gbps: {_number(shared.uplink_gbps)}")
        if shared.resources:
            amounts = ", ".join(f"{_text(name)}: {amount}" for name, amount in shared.resources)
            fields.append(f"resources: {{{amounts}}}")
        if shared.features:
            fields.append(f"features: [{', '.join(map(_text, shared.features))}]")
        for name in _named([cluster.node_names[machine] for machine in group]):
            yield _remarked(f"{indent}  - {{{', '.join([name, *fields])}}}", shared.remark)
    if switches:
        flat = all(child < len(cluster.machines) for switch in switches for child in below[switch])
        yield f"{indent}{'racks' if flat else 'switches'}:"
    for switch in switches:
        yield f"{indent}  - name: {_text(cluster.node_names[switch])}"
        remark = remarks.get(cluster.node_names[switch], "")
        yield _remarked(f"{indent}    uplink_gbps: {_number(cluster.uplink_gbps[switch])}", remark)
        pat_gbps = cluster.pat_gbps[switch]
        if pat_gbps is not None:
            yield f"{indent}    pat_gbps: {_number(pat_gbps)}"
        yield from _children(cluster, switch, below, f"{indent}    ", common_gbps, remarks)


def _named(names: Sequence[str]) -> list[str]:
    """Return the fields that name machines: one for all if a host list can hold them."""
    if len(names) > 1:
        try:
            return [f"names: {_text(fold(names))}"]
        except InputError:  # one of them has brackets, commas or spaces
            pass
    return [f"name: {_text(name)}" for name in names]


def _partition_lines(cluster: Cluster) -> Iterator[str]:
    """Yield the lines of the partitions."""
    if cluster.partitions:
        yield "partitions:"
    # A host list must not be taken for the one machine that is called so.
    listable = not any(re.search(r"[\s,\[\]]", machine.name) for machine in cluster.machines)
    for partition, machines in cluster.partitions.items():
        names = [cluster.node_names[machine] for machine in machines]
        entries = f"[{', '.join(map(_text, names))}]"
        yield f"  {_text(partition)}: {_text(fold(names)) if names and listable else entries}"


def _remarked(line: str, remark: str) -> str:
    """Return a line with a comment at its end."""
    return f"{line.ljust(_COLUMN)}  # {' '.join(remark.split())}" if remark else line


def _text(text: str) -> str:
    """Return text as YAML writes it, in quotes where it needs them."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number that reads back as the same."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
