"""What a GPU of each type is worth: how much of a job's speed it gives to the jobs seen lately.

A job that is as fast everywhere then takes the types that others gain little on, and leaves them the rest.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cranny.model.arrays import Ints
from cranny.model.cluster import Cluster
from cranny.policies.cranny.sizes import FORGET


class MachineTypes(NamedTuple):
    """Machines by the types of their GPUs."""

    cluster: Cluster
    gpus: Mapping[str, int]  # of each type
    kind: Ints  # (machines,) the index of each machine's type
    size: Ints  # (machines,) all of its GPUs

    def __deepcopy__(self, memo: dict[int, object]) -> "MachineTypes":
        """Return the same: it never changes."""
        return self

    @classmethod
    def of(cls, cluster: Cluster) -> "MachineTypes":
        """Return the machines of a cluster."""
        types = list(cluster.machines_with)
        number = {each: at for at, each in enumerate(types)}
        kind = np.array([number[machine.gpu_type] for machine in cluster.machines])
        size = np.array([machine.gpus for machine in cluster.machines])
        gpus = {each: int(size[kind == number].sum()) for number, each in enumerate(types)}
        return cls(cluster, gpus, kind, size)


class GpuPrices:
    """Prices of GPUs by their type: 1 on average over all GPUs."""

    def __init__(self) -> None:
        self._worth: dict[str, float] = {}  # of one GPU to the jobs seen, by type

    @property
    def known(self) -> bool:
        """Whether any job was seen."""
        return bool(self._worth)

    def see(self, speeds: Mapping[str, float], gpus: Mapping[str, int]) -> None:
        """Learn from a job, by its speed on one GPU of each type, and how many of these there are."""
        total = sum(speeds[kind] * count for kind, count in gpus.items())
        if total > 0.0:
            known = {kind: FORGET * self._worth.get(kind, 0.0) for kind in gpus}
            self._worth = {kind: worth + speeds[kind] / total for kind, worth in known.items()}

    def each(self, gpus: Mapping[str, int]) -> dict[str, float]:
        """Return the price of a GPU of each type; of one that no job was seen with, it is 1."""
        known = {kind: count for kind, count in gpus.items() if kind in self._worth}
        total = sum(self._worth[kind] * count for kind, count in known.items())
        if total <= 0.0:
            return dict.fromkeys(gpus, 1.0)
        one = sum(known.values()) / total
        return {kind: self._worth[kind] * one if kind in known else 1.0 for kind in gpus}
