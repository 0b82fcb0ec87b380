"""The least time that a job communicates with any map of its ranks to machines, by trying them all."""

from collections.abc import Mapping

from cranny.core.traffic import communication
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from tests.reference.links import communicate
from tests.reference.partition import divisions


def comm_s(cluster: Cluster, job: Job, machines: tuple[int, ...]) -> float:
    """Return how long an iteration communicates, message by message; `ina` has flows and no messages."""
    if job.collective == "ina":
        return communication(cluster, job, machines).comm_s
    return communicate(cluster, job, machines).comm_s


def least_comm_s(cluster: Cluster, job: Job, counts: Mapping[int, int]) -> float:
    """Return the least time of all maps with so many ranks on each machine."""
    machines, ranks = list(counts), list(counts.values())
    maps = (tuple(machines[part] for part in parts) for parts in divisions(job.gpus, ranks))
    return min(comm_s(cluster, job, each) for each in maps)
