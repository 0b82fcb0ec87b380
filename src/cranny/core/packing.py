"""How few machines a job needs: the closed form of Titan's objectives without the bandwidth constraint."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from cranny.model.cluster import Cluster


class Fewest(NamedTuple):
    """Fewest idle machines opened (O1) and, with those, fewest machines used at all (O2)."""

    idle: int
    machines: int
    sizes: tuple[int, ...]  # free GPUs of these machines: the idle ones first, then the others, largest first


def largest_first(gpus: int, count: Sequence[int]) -> list[int]:
    """Take the largest machines until they hold `gpus`, or there are no more; return their sizes."""
    sizes: list[int] = []
    for size in range(len(count) - 1, 0, -1):
        if gpus <= 0:
            break
        take = min(count[size], -(-gpus // size))
        sizes += [size] * take
        gpus -= take * size
    return sizes


@lru_cache(maxsize=65536)
def fewest(gpus: int, in_use_count: tuple[int, ...], idle_count: tuple[int, ...]) -> Fewest | None:
    """Return the fewest machines for a job of this size, or None if it does not fit.

    `in_use_count[f]` counts the non-idle machines with f GPUs free, `idle_count[g]` the idle ones of g GPUs.
    Idle machines open only for what the others cannot hold; among equals the largest hold the most, so taking
    the largest first needs the fewest.
    """
    missing = gpus - sum(size * count for size, count in enumerate(in_use_count))
    return fewest_with(len(largest_first(missing, idle_count)), gpus, in_use_count, idle_count)


def fewest_with(idle: int, gpus: int, in_use_count: Sequence[int], idle_count: Sequence[int]) -> Fewest | None:
    """Return the fewest machines when exactly `idle` idle ones are opened, or None if that does not work."""
    opened = largest_first(gpus, idle_count)[:idle]
    others = largest_first(gpus - sum(opened), in_use_count)
    if len(opened) < idle or sum(opened) + sum(others) < gpus:
        return None
    return Fewest(idle, idle + len(others), (*opened, *others))


@lru_cache(maxsize=4096)
def machines_when_empty(gpus: int, cluster: Cluster, eligible: int) -> int:
    """Return how many machines a job takes in an empty cluster; `eligible` is the set of those that it can use."""
    sizes = [machine.gpus for index, machine in enumerate(cluster.machines) if eligible >> index & 1]
    return len(largest_first(gpus, [sizes.count(size) for size in range(max(sizes, default=0) + 1)]))
