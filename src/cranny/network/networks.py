"""Network models by name: what a network does to running jobs, how much longer each runs than on one machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cranny.core.accounting import Running
from cranny.core.protocol import Network, Slowdown, Slowdowns
from cranny.core.traffic import Communication, isolated
from cranny.model.cluster import Cluster
from cranny.model.errors import unknown
from cranny.model.job import Job


class Isolated:
    """A network in which no job slows another: a slowdown follows from the job's own placement."""

    def __init__(self, slowdown: Slowdown) -> None:
        self._slowdown = slowdown

    def start(self, running: Running) -> Slowdowns:
        """Return how the job's own communication slows it down."""
        cost = running.communication
        return ((running.job.id, self._slowdown(running.job, cost) if cost.comm_s else 1.0),)

    def end(self, job_id: str) -> Slowdowns:  # noqa: ARG002 - the same for all
        """Change nothing."""
        return ()

    def shift(self, running: Sequence[Running]) -> Slowdowns:  # noqa: ARG002 - the same for all
        """Change nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """A kind of network: the slowdown of a job alone, and what several do to each other, if anything."""

    alone: Slowdown
    shared: Callable[[Cluster], Network] | None = None

    def on(self, cluster: Cluster) -> Network:
        """Return the network of a cluster without jobs."""
        return Isolated(self.alone) if self.shared is None else self.shared(cluster)


def instant(job: Job, communication: Communication) -> float:  # noqa: ARG001 - whatever the placement
    """Let communication take no time: every job runs as long as its log says, wherever it is placed."""
    return 1.0


def _steady(cluster: Cluster) -> Network:
    from cranny.network.steady.steady_network import Steady  # compiles, so it is imported only where it is used

    return Steady(cluster)


def _phases(cluster: Cluster, *, keep: bool = False, jitter: float = 0.0, seed: int = 0) -> Network:
    import numpy as np

    from cranny.network.phases.iteration_log import IterationLog
    from cranny.network.phases.phases_network import Phases

    rng = np.random.default_rng(seed) if jitter else None
    return Phases(cluster, jitter=jitter, rng=rng, iteration_log=IterationLog(keep=keep))


# `isolated` is Titan's simulation: durations in the log stand for training on one machine, so a job has
# duration / iteration time iterations, and each takes the placement's own communication time on top.
# `steady` is NetPack's estimate: jobs that share a link slow each other.
# `phases` is CASSINI's model: they do so only while they communicate, and shifts keep them apart.
NETWORKS: dict[str, NetworkModel] = {
    "isolated": NetworkModel(isolated),
    "instant": NetworkModel(instant),
    "steady": NetworkModel(isolated, _steady),
    "phases": NetworkModel(isolated, _phases),
}
# `phases`, with all intervals of time in which the iterations of a job took equally long in the result.
RECORDED_PHASES = NetworkModel(isolated, partial(_phases, keep=True))


def recorded_phases(jitter: float, seed: int) -> NetworkModel:
    """Return the same with computing times that vary by so large a share."""
    return NetworkModel(isolated, partial(_phases, keep=True, jitter=jitter, seed=seed))


def network(name: str | NetworkModel) -> NetworkModel:
    """Return a network model by name; one that is made already is returned as it is."""
    if isinstance(name, NetworkModel):
        return name
    if name not in NETWORKS:
        raise unknown("network model", name, NETWORKS)
    return NETWORKS[name]
