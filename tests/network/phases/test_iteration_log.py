"""A log of iteration times, in a network and in a replay."""

from itertools import pairwise

import pytest

from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.profile import ModelProfile
from cranny.network.phases.iteration_log import IterationLog
from cranny.network.phases.phases_network import Phases
from cranny.policy_choice import resolve_policy
from cranny.sim.replay import Replay

RACK = Cluster.single_rack(machines=3, gpus_per_machine=2, link_gbps=100.0)
EVEN = ModelProfile("even", grad_bytes=1e9, iteration_ms=80.0)  # a ring of two talks for 80 ms, too


def replayed(jobs: list[Job]) -> IterationLog:
    """Replay jobs, and return the log."""
    iteration_log = IterationLog()
    _, policy, _ = resolve_policy("best-fit", None, None, 0, isolated)
    Replay(RACK, policy, network=Phases(RACK, iteration_log=iteration_log)).run(jobs)
    return iteration_log


def test_a_job_alone_has_one_stretch_with_all_of_its_iterations() -> None:
    (stretch,) = replayed([Job("a", 4, EVEN, "ring", duration_s=80.0)]).intervals
    assert stretch.job_id == "a"
    assert stretch.start_s == 0.0
    assert stretch.iterations == pytest.approx(1000.0)
    assert stretch.outcome.mean_s == pytest.approx(stretch.alone_s)


def test_a_job_on_one_machine_is_in_it_as_well() -> None:
    (stretch,) = replayed([Job("a", 2, EVEN, "ring", duration_s=8.0)]).intervals
    assert (stretch.end_s, stretch.alone_s) == (8.0, 0.08)
    assert stretch.iterations == pytest.approx(100.0)


def test_stretches_end_where_another_job_comes_or_goes_and_lose_no_iteration() -> None:
    jobs = [
        Job("a", 3, EVEN, "ring", duration_s=80.0),
        Job("b", 3, EVEN, "ring", submit_s=10.0, duration_s=16.0),
    ]
    intervals = replayed(jobs).intervals
    of_a = sorted((each for each in intervals if each.job_id == "a"), key=lambda each: each.start_s)
    assert [each.start_s for each in of_a][:2] == [0.0, 10.0]
    assert all(one.end_s == other.start_s for one, other in pairwise(of_a))
    assert of_a[1].outcome.mean_s > of_a[0].outcome.mean_s  # both use the link of the machine in the middle
    assert sum(each.iterations for each in of_a) == pytest.approx(1000.0)
    assert sum(each.iterations for each in intervals if each.job_id == "b") == pytest.approx(200.0)


def test_a_change_at_the_moment_of_another_leaves_no_empty_stretch() -> None:
    assert all(
        each.end_s > each.start_s
        for each in replayed(
            [Job(name, 3, EVEN, "ring", duration_s=8.0) for name in "abcd"]  # two start at once, two wait
        ).intervals
    )
