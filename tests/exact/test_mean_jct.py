"""The least mean completion time without stops, against trying everything on tiny worlds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.reference.schedule import least_mean_jct_s

from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.profile import ModelProfile

pytest.importorskip("ortools", reason="CP-SAT comes with the extra `exact`")
from cranny.exact.mean_jct import MeanJctOptimum, RunTimes, least_mean_jct, run_times

# On links of 100 Gbps a ring of two takes half a second more for each second of computing.
HALF = ModelProfile("half", grad_bytes=0.5 * 100 * GIGA / BITS_PER_BYTE, iteration_ms=1000.0)


def two_racks(machines: int = 1, gpus: int = 2, slower: float = 2.0) -> Cluster:
    """Return racks between which a ring takes so many times longer to communicate than inside."""
    return Cluster.fat_tree(2, machines, gpus, oversubscription=slower * machines)


def job_of(name: str, gpus: int, duration_s: float, submit_s: float = 0.0) -> Job:
    """Return a job that takes 1.5 times as long across machines."""
    volume = 1.0 if gpus <= 2 else 2 * (gpus - 1) / gpus
    model = replace(HALF, grad_bytes=HALF.grad_bytes / volume)
    return Job(name, gpus, model, "ring", submit_s=submit_s, duration_s=duration_s)


def check(cluster: Cluster, jobs: Sequence[Job], found: MeanJctOptimum) -> None:
    """See that the schedule keeps to the machines and takes as long as it says."""
    ends_s = []
    for job, start_s, gpus_on in zip(jobs, found.starts_s, found.gpus_on, strict=True):
        assert start_s >= job.submit_s
        assert sum(gpus_on) == job.gpus
        times = run_times(cluster, job)
        used = [machine for machine, gpus in enumerate(gpus_on) if gpus]
        racks = {cluster.rack_of[machine] for machine in used}
        ran_s = times.on_machine_s if len(used) == 1 else times.in_rack_s if len(racks) == 1 else times.across_s
        assert ran_s is not None
        ends_s.append(start_s + ran_s)
    submits_s = [job.submit_s for job in jobs]
    assert sum(ends_s) - sum(submits_s) == pytest.approx(found.mean_jct_s * len(jobs))
    for now_s in found.starts_s:
        for machine, spec in enumerate(cluster.machines):
            held = [
                gpus_on[machine]
                for start_s, end_s, gpus_on in zip(found.starts_s, ends_s, found.gpus_on, strict=True)
                if start_s <= now_s < end_s
            ]
            assert sum(held) <= spec.gpus


def test_how_long_a_job_runs_depends_on_machines_and_racks() -> None:
    cluster = two_racks(machines=2, gpus=4, slower=2.0)
    assert run_times(cluster, job_of("a", 1, 100.0)) == RunTimes(100, None, None)
    assert run_times(cluster, job_of("a", 4, 100.0)) == RunTimes(100, 150, 200)
    assert run_times(cluster, job_of("a", 5, 100.0)) == RunTimes(None, 150, 200)
    assert run_times(cluster, job_of("a", 9, 100.0)) == RunTimes(None, None, 200)
    assert run_times(two_racks(), job_of("a", 2, 100.0)) == RunTimes(100, None, 200)


def test_a_job_waits_where_that_is_better_than_crossing_racks() -> None:
    cluster = two_racks(gpus=3, slower=2.0)  # two jobs leave one GPU of each machine
    jobs = [job_of("short", 2, 20.0), job_of("long", 2, 1000.0), job_of("late", 2, 100.0, submit_s=10.0)]
    found = least_mean_jct(cluster, jobs)
    assert found.proven
    assert found.mean_jct_s * 3 == 20 + 1000 + 110  # it starts at 20; at once it would end at 210
    assert found.mean_jct_s == pytest.approx(least_mean_jct_s(cluster, jobs))
    check(cluster, jobs, found)


def test_knowing_what_comes_a_short_job_is_let_first() -> None:
    cluster = Cluster.single_rack(1, 2)
    jobs = [job_of("long", 2, 1000.0), job_of("short", 2, 10.0, submit_s=5.0)]
    assert least_mean_jct(cluster, jobs).starts_s == (15, 5)


def test_tiny_worlds_agree_with_trying_everything() -> None:
    rng = np.random.default_rng(0)
    waited = 0
    for _ in range(10):
        racks, machines = ((1, 2), (1, 3), (2, 1), (2, 2), (2, 1))[rng.integers(5)]
        cluster = Cluster.fat_tree(racks, machines, 2, oversubscription=float(rng.choice([1, 2, 4])) * machines)
        jobs = [
            job_of(f"job-{number}", int(rng.integers(1, 4)), 20.0 * int(rng.integers(1, 8)), 10.0 * number)
            for number in range(4 if racks * machines == 2 else 3)
        ]
        found = least_mean_jct(cluster, jobs)
        assert found.proven
        assert found.mean_jct_s == found.bound_s == pytest.approx(least_mean_jct_s(cluster, jobs))
        check(cluster, jobs, found)
        waited += any(start_s > job.submit_s for start_s, job in zip(found.starts_s, jobs, strict=True))
    assert waited > 3


def test_a_bound_is_given_where_the_time_ends_first() -> None:
    rng = np.random.default_rng(3)
    jobs = [job_of(f"{i}", int(rng.integers(1, 9)), 20.0 * int(rng.integers(1, 90)), 60.0 * i) for i in range(10)]
    found = least_mean_jct(two_racks(machines=3, gpus=4), jobs, time_limit_s=0.05)
    assert not found.proven
    assert 0 < found.bound_s < found.mean_jct_s
    check(two_racks(machines=3, gpus=4), jobs, found)


@pytest.mark.parametrize(
    ("cluster", "job", "message"),
    [
        (two_racks(), Job("a", 2, "vgg16", "tree", duration_s=1.0), "must be a ring"),
        (two_racks(), Job("a", 2, "vgg16"), "must be a ring with a duration"),
        (two_racks(), job_of("a", 5, 10.0), "needs 5 GPUs of 4"),
        (
            Cluster.of(Switch("top", (Machine("a", 2), Machine("b", 3)), (10.0, 10.0))),
            job_of("a", 2, 10.0),
            "must be equal",
        ),
        (Cluster.fat_tree(2, 1, 2, racks_per_pod=1), job_of("a", 2, 10.0), "two levels"),
    ],
)
def test_what_it_cannot_solve_is_refused(cluster: Cluster, job: Job, message: str) -> None:
    with pytest.raises(CrannyError, match=message):
        least_mean_jct(cluster, [job])
