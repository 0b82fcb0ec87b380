"""Network models: how long a job runs where it is placed, and among others."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from cranny.core.books import Running
from cranny.core.queue import Slowdown
from cranny.core.traffic import Communication, isolated
from cranny.model.cluster import Cluster
from cranny.model.errors import unknown
from cranny.model.job import Job

# Jobs by id, and how many times longer than on one machine each of them runs from now on.
Slowdowns = Iterable[tuple[str, float]]


class Network(Protocol):
    """What the network does to running jobs."""

    def start(self, running: Running) -> Slowdowns:
        """Let a job in; return its slowdown, and those of others that it changes."""

    def end(self, job_id: str) -> Slowdowns:
        """Let a job out; return the slowdowns of others that this changes."""


class Alone:
    """A network in which no job notices another: a slowdown follows from the job's own placement."""

    def __init__(self, slowdown: Slowdown) -> None:
        self._slowdown = slowdown

    def start(self, running: Running) -> Slowdowns:
        """Return how the job's own communication slows it down."""
        cost = running.communication
        return ((running.job.id, self._slowdown(running.job, cost) if cost.comm_s else 1.0),)

    def end(self, job_id: str) -> Slowdowns:  # noqa: ARG002 - whoever it was
        """Change nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class Model:
    """A kind of network: the slowdown of a job alone, and what several do to each other, if anything."""

    alone: Slowdown
    shared: Callable[[Cluster], Network] | None = None

    def on(self, cluster: Cluster) -> Network:
        """Return the network of a cluster without jobs."""
        return Alone(self.alone) if self.shared is None else self.shared(cluster)


def instant(job: Job, communication: Communication) -> float:  # noqa: ARG001 - whatever the placement
    """Let communication take no time: every job runs as long as its log says, wherever it is placed."""
    return 1.0


# `isolated` is Titan's simulation: durations in the log stand for training on one machine, so a job has
# duration / iteration time iterations, and each takes the placement's own communication time on top.
NETWORKS: dict[str, Model] = {"isolated": Model(isolated), "instant": Model(instant)}


def network(name: str) -> Model:
    """Return a network model by name."""
    if name not in NETWORKS:
        raise unknown("network model", name, NETWORKS)
    return NETWORKS[name]
