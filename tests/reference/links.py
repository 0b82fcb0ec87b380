"""What a placement puts on the links, message by message and link by link."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cranny.core.traffic import parts, renumber
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from tests.reference.collectives import directed


@dataclass(frozen=True)
class Literal:
    """What one iteration of a job costs."""

    cross_bytes: float
    comm_s: float
    link_bytes: dict[int, float]  # busier direction of each link, summed over the phases


def climb(cluster: Cluster, machine: int) -> list[int]:
    """Return a machine and the nodes above it, up to the root."""
    nodes = [machine]
    while cluster.parent[nodes[-1]] != nodes[-1]:
        nodes.append(cluster.parent[nodes[-1]])
    return nodes


def route(cluster: Cluster, a: int, b: int) -> tuple[list[int], list[int]]:
    """Return the links that a message goes up and those it comes down."""
    up, down = climb(cluster, a), climb(cluster, b)
    meet = next(node for node in up if node in down)
    return up[: up.index(meet)], down[: down.index(meet)]


def communicate(cluster: Cluster, job: Job, machines: Sequence[int]) -> Literal:
    """Add up all messages of one iteration."""
    cross_bytes = comm_s = 0.0
    link_bytes: dict[int, float] = defaultdict(float)
    for pattern, k_bytes in parts(job, renumber(machines)):
        for phase in pattern.phases:
            load: dict[tuple[int, str], float] = defaultdict(float)
            for a, b in phase.pairs:
                if machines[a] != machines[b]:
                    cross_bytes += phase.share * phase.times * k_bytes
            for a, b in directed(phase):
                up, down = route(cluster, machines[a], machines[b])
                for link in up:
                    load[link, "up"] += phase.share * k_bytes
                for link in down:
                    load[link, "down"] += phase.share * k_bytes
            busier = {link: max(load[link, "up"], load[link, "down"]) for link, _ in list(load)}
            comm_s += phase.times * max(
                (moved * 8 / (cluster.uplink_gbps[link] * 1e9) for link, moved in busier.items()), default=0.0
            )
            for link, moved in busier.items():
                link_bytes[link] += moved * phase.times
    return Literal(cross_bytes, comm_s, dict(link_bytes))
