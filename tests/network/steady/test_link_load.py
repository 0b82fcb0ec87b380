"""The network at a moment, on clusters small enough to check by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.flows import fixed, parameter_server
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.collective import COLLECTIVES
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.network.steady.link_load import JobStream, Load, job_streams

# Two racks of two machines with links of 100 Gbps; the racks' uplinks have 50 Gbps, their switches a PAT of 30.
SMALL = Cluster.fat_tree(2, 2, 4, link_gbps=100.0, oversubscription=4.0, pat_gbps=30.0)
RACK0, RACK1 = 4, 5


def job_stream(name: str, *links: int, alone_gbps: float = 100.0) -> JobStream:
    return JobStream(name, fixed(dict.fromkeys(links, 1.0)), alone_gbps)


def test_links_carry_what_jobs_stream() -> None:
    load = Load.of(SMALL, [job_stream("a", 0, 1), job_stream("b", 0, RACK0, RACK1, 2, alone_gbps=50.0)])
    assert load.link_gbps.tolist() == pytest.approx([100, 50, 50, 0, 50, 50, 0])
    assert load.share.tolist() == pytest.approx([1, 0.5, 0.5, 0, 1, 1, 0])
    assert load.link_flows.tolist() == [2, 1, 1, 0, 1, 1, 0]
    assert load.link_jobs.tolist() == [2, 1, 1, 0, 1, 1, 0]
    assert load.full.tolist() == [0, RACK0, RACK1]


def test_a_bottleneck_names_the_jobs_that_it_holds_and_those_beside() -> None:
    crossing = [job_stream(name, 0, RACK0, RACK1, 2, alone_gbps=50.0) for name in ("b", "c")]
    load = Load.of(SMALL, [job_stream("a", 0, 1), *crossing])
    # b and c share a rack's uplink; a gets what they leave of the machine's.
    assert [job.rate_gbps for job in load.jobs] == pytest.approx([50.0, 25.0, 25.0])
    assert [job.held_back for job in load.jobs] == [True, True, True]
    rack, machine = load.bottlenecks  # the same is lost at both; the rack's holds more jobs
    assert (rack.link, machine.link) == (RACK0, 0)
    assert [job.job_id for job in rack.held] == ["b", "c"]
    assert [job.job_id for job in machine.held] == ["a"]
    assert [job.job_id for job in machine.jobs] == ["b", "c", "a"]
    assert [each.lost_gbps for each in load.bottlenecks] == pytest.approx([50.0, 50.0])


def test_the_link_that_costs_most_comes_first() -> None:
    load = Load.of(
        SMALL, [job_stream("a", 0, 1), job_stream("b", 0, 1), *(job_stream(f"c{i}", 2, 3) for i in range(4))]
    )
    assert [each.lost_gbps for each in load.bottlenecks] == pytest.approx([300.0, 100.0])
    assert load.bottlenecks[0].link == 2  # the first of two that hold the same jobs alike


def test_a_job_alone_is_not_held_back() -> None:
    load = Load.of(SMALL, [job_stream("a", 0, 1)])
    assert not load.jobs[0].held_back
    assert sum(each.lost_gbps for each in load.bottlenecks) == 0.0


def test_switches_use_memory_up_to_their_pat() -> None:
    job = JobStream("a", parameter_server(SMALL, [0, 1, 3], server=2), 50.0)
    load = Load.of(SMALL, [job])
    assert load.pat_gbps.tolist() == [30.0, 30.0]
    assert load.pat_used_gbps.tolist() == pytest.approx([30.0, 30.0])
    assert load.switch_jobs.tolist() == [1, 1]


def test_nothing_runs_and_nothing_is_used() -> None:
    load = Load.of(Cluster.single_rack(2, 4), ())
    assert not load.share.any()
    assert not load.pat_used_gbps.any()
    assert load.bottlenecks == ()
    assert [link["rack"] for link in load.facts()["links"]] == ["rack0"] * 3


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10_000))
def test_books_balance_whatever_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = Cluster.fat_tree(3, 3, 4, link_gbps=25.0, oversubscription=3.0, pat_gbps=20.0)
    state = ClusterState(cluster)
    for number in range(7):
        free = [machine for machine, gpus in enumerate(state.free.tolist()) for _ in range(gpus)]
        machines = rng.permutation(free)[: rng.integers(1, 6)].tolist()
        collective = (*COLLECTIVES, "ina")[rng.integers(len(COLLECTIVES) + 1)]
        job = Job(f"job-{number}", len(machines), model="vgg16", collective=collective)
        state.place(job, Placement(machines))
    running = state.snapshot().running.values()
    load = Load.of(cluster, job_streams(cluster, running))
    assert {job.job_id for job in load.jobs} == {each.job.id for each in running if len(each.held) > 1}
    assert (load.link_gbps[:-1] <= np.array(cluster.uplink_gbps[:-1]) * (1 + 1e-9)).all()
    assert (load.pat_used_gbps <= load.pat_gbps * (1 + 1e-9)).all()
    assert load.link_jobs.sum() == sum(len(job.links) for job in load.jobs)
    # A job that is slower than alone is held by a full link, and counts there once.
    assert all(job.bottleneck in load.full for job in load.jobs if job.held_back)
    held = [job.job_id for each in load.bottlenecks for job in each.held]
    assert sorted(held) == sorted(job.job_id for job in load.jobs if job.bottleneck is not None)
