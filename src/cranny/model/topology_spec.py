"""How a cluster is described before it is laid out: a tree of switches with machines at its leaves."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cranny.model.errors import InputError
from cranny.model.validate import positive, whole

MAX_GPUS_PER_MACHINE = 64
MAX_MACHINES = 1_000_000
MAX_LEVELS = 32  # of switches
MAX_RESOURCE = 2**53  # of one kind on a machine; beyond it numbers are no longer exact in JSON


def peak_aggregation_gbps(memory_kb: float, rtt_us: float) -> float:
    """Return the PAT of a switch, its memory over the round-trip time (NetPack, ASPLOS 2024, Sec. 4.1: M / T).

    A packet holds its memory for a round trip: the propagation delay, plus the time that the queue takes up to the
    ECN threshold.
    """
    return 8.0 * positive(memory_kb, "memory_kb") / positive(rtt_us, "rtt_us")  # kilobytes by microseconds


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and its GPUs.

    `resources` is what else it has that can be counted, such as "cpus" and "memory_mb"; a job that asks for a
    resource runs only on machines that name it. `features` are labels that jobs may require.
    """

    name: str
    gpus: int
    gpu_type: str = ""
    resources: Mapping[str, int] = field(default_factory=dict, hash=False)
    features: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"a machine's name must be a non-empty string, not {self.name!r}")
        if not isinstance(self.gpu_type, str):
            raise InputError(f"machine {self.name!r}: gpu_type must be a string, not {self.gpu_type!r}")
        what = f"machine {self.name!r}: gpus"
        object.__setattr__(self, "gpus", whole(self.gpus, what, most=MAX_GPUS_PER_MACHINE))
        if self.resources:
            object.__setattr__(self, "resources", checked_resources(self.resources, f"machine {self.name!r}"))
        if self.features:
            object.__setattr__(self, "features", checked_features(self.features, f"machine {self.name!r}"))


def checked_resources(resources: Mapping[str, int], owner: str, least: int = 0) -> Mapping[str, int]:
    """Return countable resources by name, in the order of these, or say what is wrong with them."""
    if not isinstance(resources, Mapping) or not all(isinstance(name, str) and name for name in resources):
        raise InputError(f"{owner}: resources must be numbers by name, not {resources!r}")
    return {
        name: whole(resources[name], f"{owner}: {name}", least=least, most=MAX_RESOURCE)
        for name in sorted(resources)
    }


def checked_features(features: Iterable[str], owner: str) -> frozenset[str]:
    """Return labels as a set, or say what is wrong with them."""
    found = [] if isinstance(features, str) else list(features)
    if not found or not all(isinstance(each, str) and each for each in found):
        raise InputError(f"{owner}: features must be a list of names, not {features!r}")
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Switch:
    """A node of the tree with other nodes below it; how to describe a cluster before it is laid out."""

    name: str
    children: tuple["Switch | Machine", ...]
    uplinks_gbps: tuple[float, ...]  # of each child
    pat_gbps: float | None = None  # what the switch can aggregate, if it can

    def __post_init__(self) -> None:
        if len(self.children) != len(self.uplinks_gbps):
            count = f"{len(self.uplinks_gbps)} uplinks for {len(self.children)} children"
            raise InputError(f"switch {self.name!r} has {count}")
        for child, gbps in zip(self.children, self.uplinks_gbps, strict=True):
            positive(gbps, f"uplink of {child.name!r}: Gbps")
        if self.pat_gbps is not None:
            positive(self.pat_gbps, f"switch {self.name!r}: pat_gbps")


class ClusterSpec(NamedTuple):
    """What a cluster file says."""

    root: Switch
    partitions: Mapping[str, tuple[str, ...]]  # name -> names of its machines
