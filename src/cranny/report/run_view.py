"""What the report reads of a run, as protocols: any object with these attributes will do."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cranny.model.errors import InputError
from cranny.network.phases.contention import Contention
from cranny.network.steady.link_load import Load

# Settings that may distinguish two runs of one policy, in the order in which they are tried.
DISTINGUISHING = ("network", "order", "cluster", "links", "trace", "seed", "price_per_gpu_hour")


class MachineView(Protocol):
    """One machine as the map shows it."""

    @property
    def name(self) -> str:
        """Name of the machine."""

    @property
    def gpus(self) -> int:
        """Number of GPUs."""

    @property
    def gpu_type(self) -> str:
        """Type of its GPUs; empty when unknown."""


class ClusterView(Protocol):
    """The machines of a cluster and their racks."""

    @property
    def machines(self) -> Sequence[MachineView]:
        """Every machine, by index."""

    @property
    def rack_of(self) -> Sequence[int] | NDArray[np.integer[Any]]:
        """Index of each machine's rack."""

    @property
    def rack_names(self) -> Sequence[str]:
        """Name of each rack, by index."""


class RunView(Protocol):
    """One finished simulation."""

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of the run: policy, network, seed, the command that repeats it, and so on."""

    @property
    def summary(self) -> Mapping[str, float]:
        """One number for each metric."""

    @property
    def jobs(self) -> pl.DataFrame:
        """One row for each job."""

    @property
    def timeline(self) -> pl.DataFrame:
        """One row for each arrival."""

    @property
    def runs(self) -> pl.DataFrame:
        """One row for each machine of each run of a job."""

    @property
    def cluster(self) -> ClusterView:
        """Where the jobs ran."""

    @property
    def contentions(self) -> Sequence[Contention]:
        """The costliest contention on links, if jobs communicated in phases."""

    def load_at(self, at_s: float) -> Load | None:
        """Return what links and switches carried at a time; None if the run did not record it."""


def policy_of(result: RunView) -> str:
    """Return the name of the policy that a run used."""
    return str(result.settings.get("policy", "unnamed"))


def labels(results: Sequence[RunView]) -> tuple[str, ...]:
    """Name each run by its policy, and by what sets it apart where one policy ran more than once."""
    if not results:
        raise InputError("nothing to report: no results were given")
    names = [policy_of(result) for result in results]
    for setting in DISTINGUISHING:
        values = [str(result.settings.get(setting, "")) for result in results]
        if len(set(names)) == len(names):
            break
        shared = {name for name in names if names.count(name) > 1}
        names = [
            f"{name} · {value}" if name in shared and value and _distinguishes(name, names, values) else name
            for name, value in zip(names, values, strict=True)
        ]
    counted: dict[str, int] = {}
    for name in names:
        counted[name] = counted.get(name, 0) + 1
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(f"{name} #{seen[name]}" if counted[name] > 1 else name)
    return tuple(unique)


def _distinguishes(name: str, names: Sequence[str], values: Sequence[str]) -> bool:
    """Say whether the runs called `name` differ in this setting."""
    return len({value for other, value in zip(names, values, strict=True) if other == name}) > 1
