"""Which machines a job gets beside others that use links: what sharing them costs decides, not only room."""

import pytest

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import Submitted
from cranny.model.job import Job
from cranny.policies.cranny import Cranny

SLOW_GBPS, FAST_GBPS = 10.0, 100_000.0  # where sharing a link costs much, and next to nothing


def machines_of_last(machines: int, link_gbps: float, jobs: list[Job]) -> set[int]:
    """Return the machines of the last of jobs that come one after the other to machines of four GPUs."""
    engine = Engine(ClusterState(Cluster.fat_tree(1, machines, 4, link_gbps)), Cranny())
    for now_s, job in enumerate(jobs):
        engine.handle(Submitted(job), float(now_s))
    return set(engine.state.running[jobs[-1].id].placement.machines)


def job(name: str, gpus: int, duration_s: float = 10_000.0) -> Job:
    return Job(name, gpus, model="vgg16", duration_s=duration_s)


@pytest.mark.parametrize(("link_gbps", "expected"), [(SLOW_GBPS, {2, 3}), (FAST_GBPS, {1, 2})])
def test_it_opens_an_idle_machine_where_sharing_a_link_costs_more(link_gbps: float, expected: set[int]) -> None:
    assert machines_of_last(5, link_gbps, [job("first", 6), job("second", 6)]) == expected


@pytest.mark.parametrize(("link_gbps", "expected"), [(SLOW_GBPS, {2, 3}), (FAST_GBPS, {1, 3})])
def test_it_joins_a_job_that_uses_no_link(link_gbps: float, expected: set[int]) -> None:
    jobs = [job("linked", 7, 20_000.0), job("alone", 3, 9000.0), job("last", 5)]
    assert machines_of_last(4, link_gbps, jobs) == expected
