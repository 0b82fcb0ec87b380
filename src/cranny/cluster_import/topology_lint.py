"""What is implausible about the tree of a cluster: mostly a line that was forgotten, not a real network."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Literal, NamedTuple

from cranny.cluster_import.imported import naming
from cranny.model.cluster import Cluster
from cranny.model.validate import counted

MOST_OVERSUBSCRIBED = 16.0  # real networks have up to 8:1 or so
FEWEST_RACKS = 3  # from which the size of a rack can be unusual


class TopologyProblem(NamedTuple):
    """Something to look at, and where."""

    level: Literal["error", "warning"]  # an error makes decisions wrong
    where: str
    problem: str


def lint_cluster(cluster: Cluster) -> list[TopologyProblem]:
    """Return what is implausible about a cluster."""
    found = (_loose_machines, _odd_racks, _links_of_machines, _links_of_switches, _lone_switches, _gpu_counts)
    return [problem for check in found for problem in check(cluster)]


def _warning(where: str, problem: str) -> TopologyProblem:
    return TopologyProblem("warning", where, problem)


def nodes_below(cluster: Cluster) -> dict[int, list[int]]:
    """Return the nodes right below each switch."""
    below: dict[int, list[int]] = defaultdict(list)
    for node in range(cluster.root):
        below[cluster.parent[node]].append(node)
    return below


def _loose_machines(cluster: Cluster) -> Iterator[TopologyProblem]:
    """Find machines right below the top beside racks."""
    count = len(cluster.machines)
    loose = [node for node in nodes_below(cluster)[cluster.root] if node < count]
    if loose and len(loose) < count:
        names = naming(cluster.node_names[node] for node in loose)
        yield TopologyProblem("error", names, "below no rack while others are: are they missing in the topology?")


def _odd_racks(cluster: Cluster) -> Iterator[TopologyProblem]:
    """Find racks with far fewer or far more machines than most."""
    sizes = {
        rack: past - first for rack, (first, past) in zip(cluster.rack_nodes, cluster.rack_spans, strict=True)
    }
    if len(sizes) < FEWEST_RACKS:
        return
    usual = median(sizes.values())
    for rack, size in sizes.items():
        if rack != cluster.root and (size <= usual / 4 or size >= 4 * usual):
            yield _warning(
                cluster.node_names[rack], f"has {counted(size, 'machine')}; racks here have {usual:g} as a rule"
            )


def _links_of_machines(cluster: Cluster) -> Iterator[TopologyProblem]:
    """Find machines whose link is unlike that of the others in their rack."""
    for rack, (first, past) in zip(cluster.rack_nodes, cluster.rack_spans, strict=True):
        speeds = Counter(cluster.uplink_gbps[first:past])
        usual, often = speeds.most_common(1)[0]
        odd = [node for node in range(first, past) if cluster.uplink_gbps[node] != usual]
        if odd and often > len(odd):
            names = naming(cluster.node_names[node] for node in odd)
            slow = cluster.uplink_gbps[odd[0]]
            where = cluster.node_names[rack]
            yield _warning(names, f"has a link of {slow:g} Gbps; others in {where} have {usual:g}")


def _links_of_switches(cluster: Cluster) -> Iterator[TopologyProblem]:
    """Find switches whose uplink is slower than that of one thing below, or faster than all together."""
    for switch, below in nodes_below(cluster).items():
        if switch == cluster.root:
            continue
        uplink, links = cluster.uplink_gbps[switch], [cluster.uplink_gbps[node] for node in below]
        name = cluster.node_names[switch]
        if uplink < max(links):
            problem = f"its uplink of {uplink:g} Gbps is slower than a link below, {max(links):g} Gbps"
            yield _warning(name, problem)
        elif sum(links) > MOST_OVERSUBSCRIBED * uplink:
            yield _warning(name, f"its uplink is oversubscribed {sum(links) / uplink:.0f}:1")
        elif uplink > sum(links) * (1 + 1e-9):
            problem = f"its uplink of {uplink:g} Gbps is faster than all links below, {sum(links):g} Gbps"
            yield _warning(name, problem)


def _lone_switches(cluster: Cluster) -> Iterator[TopologyProblem]:
    """Find switches with nothing below but one switch; the top of a single rack is one of ours."""
    for switch, below in nodes_below(cluster).items():
        if switch != cluster.root and len(below) == 1 and below[0] >= len(cluster.machines):
            problem = f"has nothing below but {cluster.node_names[below[0]]}"
            yield _warning(cluster.node_names[switch], problem)


def _gpu_counts(cluster: Cluster) -> Iterator[TopologyProblem]:
    """Find machines with fewer GPUs than most that have GPUs of their type."""
    by_type: dict[str, Counter[int]] = defaultdict(Counter)
    for machine in cluster.machines:
        by_type[machine.gpu_type][machine.gpus] += 1
    for kind, sizes in by_type.items():
        usual, often = sizes.most_common(1)[0]
        for gpus in sizes:
            odd = [each.name for each in cluster.machines if (each.gpu_type, each.gpus) == (kind, gpus)]
            if gpus < usual and 4 * len(odd) <= often:
                described = f"{kind} GPU".strip()
                others = f"{often} other machines have {usual}"
                yield _warning(naming(odd), f"has {counted(gpus, described)}; {others}: is one broken?")
