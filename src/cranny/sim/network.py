"""Network models: how long a job runs where it is placed."""

from cranny.core.queue import Slowdown
from cranny.core.traffic import Communication, isolated
from cranny.model.errors import unknown
from cranny.model.job import Job


def instant(job: Job, communication: Communication) -> float:  # noqa: ARG001 - whatever the placement
    """Let communication take no time: every job runs as long as its log says, wherever it is placed."""
    return 1.0


# `isolated` is Titan's simulation: durations in the log stand for training on one machine, so a job has
# duration / iteration time iterations, and each takes the placement's own communication time on top.
NETWORKS: dict[str, Slowdown] = {"isolated": isolated, "instant": instant}


def network(name: str) -> Slowdown:
    """Return a network model by name."""
    if name not in NETWORKS:
        raise unknown("network model", name, NETWORKS)
    return NETWORKS[name]
