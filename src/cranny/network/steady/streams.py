"""What a running job streams: its flows, and the gigabits of an iteration that go at its rate."""

from typing import NamedTuple

import numpy as np

from cranny.core.flows import Flows, fixed, parameter_server
from cranny.core.traffic import BITS_PER_BYTE, GIGA, footprint
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement


class Stream(NamedTuple):
    """The flows of a job, and the gigabits that each iteration moves at the job's rate."""

    flows: Flows
    gigabits: float


def stream(cluster: Cluster, job: Job, placement: Placement) -> Stream:
    """Return what a job streams when it is placed so."""
    machines = placement.machines
    if job.collective == "ina":
        server = machines[0] if placement.server is None else placement.server
        flows = parameter_server(cluster, set(machines), server, ina=placement.aggregate)
        return Stream(flows, job.profile.grad_bytes * BITS_PER_BYTE / GIGA)
    return collective(cluster, job, machines)


def collective(cluster: Cluster, job: Job, machines: tuple[int, ...]) -> Stream:
    """Return what the collective of a job streams; its rate is what its busiest link carries of it."""
    _, links, costs = footprint(cluster, job, machines)
    moved = np.zeros(len(links))
    for cost, k_bytes in costs:
        moved += np.array(cost.link_share) * k_bytes
    busiest = float(moved.max(initial=0.0))
    shares = dict(zip(links, (moved / busiest).tolist(), strict=True)) if busiest else {}
    return Stream(fixed(shares), busiest * BITS_PER_BYTE / GIGA)
