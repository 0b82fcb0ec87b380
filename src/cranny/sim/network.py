"""Network models: how long a job runs where it is placed."""

from collections.abc import Callable

from cranny.core.books import Running
from cranny.model.errors import unknown

# How many times longer than on a single machine a job runs, as long as it stays where it is.
Network = Callable[[Running], float]


def isolated(running: Running) -> float:
    """Add the placement's own communication to each iteration; jobs do not slow each other.

    This is Titan's simulation: durations in the log stand for training on one machine, so a job has
    duration / iteration time iterations, and each takes the communication time on top.
    """
    return 1.0 + running.communication.comm_s / running.job.profile.iteration_s


def instant(running: Running) -> float:  # noqa: ARG001 - whatever the placement
    """Let communication take no time: every job runs as long as its log says, wherever it is placed."""
    return 1.0


NETWORKS: dict[str, Network] = {"isolated": isolated, "instant": instant}


def network(name: str) -> Network:
    """Return a network model by name."""
    if name not in NETWORKS:
        raise unknown("network model", name, NETWORKS)
    return NETWORKS[name]
