"""Locality of workers: how close together they can be, and which links they communicate over."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from cranny.model.cluster import Cluster
from cranny.model.validate import whole

if TYPE_CHECKING:
    import numpy as np


@lru_cache(maxsize=16)
def children(cluster: Cluster) -> tuple[tuple[int, ...], ...]:
    """Return the nodes right below each node of the tree; none below a machine."""
    below: list[list[int]] = [[] for _ in cluster.parent]
    for node, parent in enumerate(cluster.parent[:-1]):
        below[parent].append(node)
    return tuple(map(tuple, below))


def closest(gpus: int, free: Sequence[int], cluster: Cluster) -> tuple[int, ...] | None:
    """Return machines for so many workers, close together; None if there are too few free GPUs.

    Of machines and switches that hold all of them the lowest in the tree is taken, and of several the one with
    the fewest free GPUs. If that is a switch, what is below it with the most free GPUs is filled, and the rest is
    placed in the same way.
    """
    if sum(free) < gpus:
        return None
    found: list[int] = []
    _fill(cluster.root, gpus, list(free), cluster, found)
    return tuple(found)


def _fill(node: int, gpus: int, free: list[int], cluster: Cluster, found: list[int]) -> None:
    """Place workers below a node that holds them."""
    while gpus:
        node = _tightest(node, gpus, free, cluster)
        if node < len(cluster.machines):
            found += [node] * gpus
            free[node] -= gpus
            return
        counts = [(_below(child, free, cluster), -child) for child in children(cluster)[node]]
        most, child = max(counts)
        _fill(-child, most, free, cluster, found)
        gpus -= most


def _tightest(node: int, gpus: int, free: Sequence[int], cluster: Cluster) -> int:
    """Return the tightest machine from here down that holds so many workers, else the lowest such switch."""
    machines = [machine for machine in range(*cluster.spans[node]) if free[machine] >= gpus]
    if machines:  # one right below the root too, which is no lower in the tree than some switches
        return min(machines, key=lambda machine: (free[machine], machine))
    level = [node]
    while True:
        holding = [
            child for each in level for child in children(cluster)[each] if _below(child, free, cluster) >= gpus
        ]
        if not holding:
            return min(level, key=lambda each: (_below(each, free, cluster), each))
        level = holding


def _below(node: int, free: Sequence[int], cluster: Cluster) -> int:
    """Count the free GPUs below a node."""
    first, past = cluster.spans[node]
    return sum(free[first:past])


def drawn_by(seed: int | None, what: str) -> "np.random.Generator | None":
    """Return a generator that draws among equal places; None if the first is taken."""
    if seed is None:
        return None
    import numpy as np  # only where places are drawn

    return np.random.default_rng(whole(seed, what, least=0))


def nearby(
    gpus: int, free: Sequence[int], cluster: Cluster, ties: "np.random.Generator | None" = None
) -> tuple[int, ...] | None:
    """Return machines for so many workers: one machine, or one rack, or simply the first with free GPUs.

    For policies that distinguish only whether workers are on one machine, in one rack or in several. With `ties`
    places that are equal by that are drawn, and not the tightest and first taken.
    """
    if sum(free) < gpus:
        return None
    spans = [(machine, machine + 1) for machine in range(len(free))], cluster.rack_spans, [(0, len(free))]
    for level in spans:
        holding = [span for span in level if sum(free[slice(*span)]) >= gpus]
        if holding:
            first, past = min(holding, key=lambda span: (sum(free[slice(*span)]), span))
            if ties is not None:
                first, past = holding[int(ties.integers(len(holding)))]
            slots = [machine for machine in range(first, past) for _ in range(free[machine])]
            return tuple(slots[:gpus] if ties is None else sorted(ties.permutation(slots)[:gpus].tolist()))
    return None


def level(machines: tuple[int, ...], cluster: Cluster) -> int:
    """Return 0 for workers on one machine, 1 for workers in one rack, 2 for others."""
    if len(set(machines)) == 1:
        return 0
    return 1 if len({cluster.rack_of[machine] for machine in machines}) == 1 else 2


@lru_cache(maxsize=65536)
def crossed(machines: tuple[int, ...], cluster: Cluster) -> tuple[int, ...]:
    """Return the links that workers on these machines communicate over, with some of them on either side."""
    counts: dict[int, int] = {}
    for machine in set(machines):
        for link in cluster.paths[machine]:
            counts[link] = counts.get(link, 0) + 1
    whole = len(set(machines))
    return tuple([link for link, count in counts.items() if count < whole])
