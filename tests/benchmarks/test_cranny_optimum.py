"""The small worlds on which policies are compared with the optimum."""

import numpy as np
import pytest
from benchmarks.cranny_optimum import bound_with_stops_s, judge, random_world, ratios

from benchmarks import cranny_optimum
from cranny.core.traffic import communication, isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.run import simulate

pytest.importorskip("ortools", reason="CP-SAT comes with the extra `exact`")
STOPPING = {"cranny", "tiresias"}


def test_worlds_are_small_and_run_times_are_whole_seconds() -> None:
    rng = np.random.default_rng(0)
    across = 0
    for _ in range(40):
        world = random_world(rng)
        cluster = world.cluster
        assert len(cluster.machines) <= 6
        assert len(cluster.rack_names) <= 2
        assert 5 <= len(world.jobs) <= 10
        for job in world.jobs:
            assert job.submit_s == round(job.submit_s)
            ends = {0, cluster.rack_spans[0][1] - 1, len(cluster.machines) - 1}
            for last in ends:
                machines = (0,) * (job.gpus - 1) + (last,)
                ran_s = (job.duration_s or 0.0) * isolated(job, communication(cluster, job, machines))
                assert ran_s == pytest.approx(round(ran_s), abs=1e-6)
            across += job.gpus > cluster.machines[0].gpus
    assert across > 20


def test_no_policy_is_below_what_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cranny_optimum, "JOBS", {6: 1.0})
    rng = np.random.default_rng(1)
    verdicts = [judge(random_world(rng)) for _ in range(6)]
    for name in cranny_optimum.compared():
        for verdict, ratio in zip(verdicts, ratios(verdicts, name), strict=True):
            assert verdict.took_s[name] >= verdict.bound_with_stops_s * (1 - 1e-9)
            if name not in STOPPING:
                assert ratio >= 1 - 1e-9
    assert all(verdict.bound_with_stops_s <= verdict.bound_s * (1 + 1e-9) for verdict in verdicts)


def test_a_bound_with_stops_is_reached_by_stopping_on_one_machine() -> None:
    cluster = Cluster.single_rack(1, 2)
    jobs = (
        Job("long", 2, "resnet50", submit_s=0.0, duration_s=100.0),
        Job("short", 2, "resnet50", submit_s=10.0, duration_s=20.0),
        Job("late", 2, "resnet50", submit_s=500.0, duration_s=5.0),
    )
    world = cranny_optimum.World(cluster, jobs)
    assert bound_with_stops_s(world) == pytest.approx((120 + 20 + 5) / 3)
    reached = simulate(cluster, jobs, "best-fit", order="srtf").summary["mean_jct_s"]
    assert reached == pytest.approx(bound_with_stops_s(world))
