"""How many workers jobs have that can be resized, in order of the queue."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.policies.cranny import Cranny
from cranny.policies.cranny.dividing import suited_sizes
from cranny.policies.cranny.followed import Followed
from cranny.policies.cranny.sizes_in_order import DividedJob, critical_jobs, sizes_in_order

GPUS = 24
PATIENCE = 10.0


def divided_job(name: str, gpus: int, left_s: float, held: int = 0, restart_s: float = 0.0) -> DividedJob:
    """A job that may have half of the workers that it asks for, and wants all of them."""
    job = Job(name, gpus, duration_s=left_s, least_gpus=-(-gpus // 2), restart_s=restart_s)
    return DividedJob(job, left_s, gpus, gpus, held)


def sizes(*jobs: DividedJob, now_s: float = 0.0) -> dict[str, int]:
    return sizes_in_order(jobs, GPUS, critical_jobs(jobs, GPUS), PATIENCE, now_s)


def test_the_first_have_what_they_ask_for_and_the_next_what_is_left() -> None:
    found = sizes(divided_job("c", 10, 120.0), divided_job("a", 10, 100.0), divided_job("b", 8, 110.0))
    assert found == {"a": 10, "b": 8, "c": 6}


def test_gpus_that_are_too_few_for_a_job_are_no_reason_to_take_some_from_others() -> None:
    """Four idle GPUs and one of the second job would be enough for the third: all three would train slowly."""
    jobs = [divided_job("a", 10, 100.0), divided_job("b", 10, 110.0)]
    assert sizes(*jobs, divided_job("c", 10, 120.0)) == {"a": 10, "b": 10, "c": 0}
    more = jobs[0]._replace(most=13)
    assert sizes(more, jobs[1], divided_job("c", 10, 120.0)) == {"a": 13, "b": 10, "c": 0}


def test_a_job_on_which_the_end_of_all_depends_comes_first() -> None:
    short = [divided_job(f"short-{number}", 12, 100.0) for number in range(4)]  # 200 s together
    assert sizes(*short, divided_job("long", 12, 1000.0))["long"] == 12
    assert sizes(*short, divided_job("long", 12, 300.0))["long"] == 0  # together with these all take 350 s


def test_it_no_longer_does_once_another_has_waited_for_as_long_as_it_may() -> None:
    short = [divided_job(f"short-{number}", 24, 10.0) for number in range(2)]
    long = divided_job("long", 12, 5000.0)
    key_s = PATIENCE * 10.0 * 24**0.5
    assert sizes(*short, long, now_s=key_s - 1.0)["long"] == 12
    assert sizes(*short, long, now_s=key_s + 1.0) == {"short-0": 24, "short-1": 0, "long": 0}


def test_no_job_starts_after_one_that_may_no_longer_be_passed() -> None:
    """It waits for a job that is not worth stopping; of more GPUs than there are it is not waited for."""
    running = divided_job("running", 12, 100.0, held=12, restart_s=100.0)
    other = divided_job("other", 6, 10_000.0)
    large = DividedJob(Job("large", 24, duration_s=100.0), 100.0, 24, 24)
    assert sizes(running, large, other)["other"] == 6
    late_s = PATIENCE * 100.0 * 24**0.5 + 1.0
    assert sizes(running, large, other, now_s=late_s) == {"running": 12, "large": 0, "other": 0}
    larger = DividedJob(Job("larger", 30, duration_s=100.0), 100.0, 30, 30)
    assert sizes(running, larger, other, now_s=2.0 * late_s)["other"] == 6


@pytest.mark.parametrize(("restart_s", "held"), [(0.0, 0), (10.0, 0), (60.0, 24)])
def test_a_running_job_is_stopped_only_if_that_is_worth_two_restarts(restart_s: float, held: int) -> None:
    """It has 200 s left, and the other one needs 100."""
    running = divided_job("running", 24, 200.0, held=24, restart_s=restart_s)
    rigid = DividedJob(Job("rigid", 24, duration_s=100.0), 100.0, 24, 24)
    assert sizes(running, rigid)["running"] == held


@pytest.mark.parametrize(("restart_s", "workers"), [(10.0, 12), (60.0, 6)])
def test_a_running_job_grows_only_if_that_is_worth_two_restarts(restart_s: float, workers: int) -> None:
    """With six workers it takes 200 s more, with twelve 100."""
    assert sizes(divided_job("running", 12, 100.0, held=6, restart_s=restart_s)) == {"running": workers}


def test_a_job_of_higher_priority_comes_first() -> None:
    first = divided_job("first", 24, 100.0)
    urgent = first._replace(job=replace(first.job, id="urgent", priority=1.0, duration_s=900.0), left_s=900.0)
    assert sizes(first, urgent) == {"first": 0, "urgent": 24}


@st.composite
def queues(draw: st.DrawFn) -> list[DividedJob]:
    """Jobs that run on GPUs which are enough for them, and jobs that wait."""
    free, jobs = GPUS, list[DividedJob]()
    for number in range(draw(st.integers(1, 12))):
        gpus = draw(st.integers(1, 30))
        least = draw(st.integers(1, gpus))
        most = draw(st.integers(gpus, 40))
        held = draw(st.sampled_from([0, least, gpus, most]))
        held = held if held <= free else 0
        free -= held
        left_s = draw(st.floats(1.0, 1e5))
        restart_s = draw(st.sampled_from([0.0, 60.0, 600.0]))
        job = Job(
            f"job-{number}",
            gpus,
            submit_s=draw(st.floats(0.0, 1e4)),
            duration_s=left_s,
            least_gpus=least,
            most_gpus=most,
            restart_s=restart_s,
        )
        wanted = draw(st.integers(least, gpus))
        jobs.append(DividedJob(job, left_s, wanted, draw(st.integers(wanted, most)), held, draw(st.booleans())))
    return jobs


@settings(max_examples=examples(200))
@given(queues(), st.floats(1e4, 1e6))
def test_no_gpu_is_given_twice_and_every_job_has_a_number_that_it_can_have(
    jobs: list[DividedJob], now_s: float
) -> None:
    found = sizes(*jobs, now_s=now_s)
    assert found.keys() == {each.job.id for each in jobs}
    assert sum(found.values()) <= GPUS
    for each in jobs:
        size = found[each.job.id]
        assert size in (0, each.held) or each.job.least_gpus <= size <= each.most  # type: ignore[operator]
        if each.held and each.job.restart_s and not each.settled:
            assert size == each.held
    assert sizes(*reversed(jobs), now_s=now_s) == found


@settings(max_examples=examples(200))
@given(queues(), st.floats(1e4, 1e6))
def test_idle_gpus_are_too_few_for_all_that_wait_unless_one_may_no_longer_be_passed(
    jobs: list[DividedJob], now_s: float
) -> None:
    found = sizes(*jobs, now_s=now_s)
    idle = GPUS - sum(found.values())
    waiting = [each for each in jobs if not found[each.job.id]]
    keys = {each.job.id: each.job.submit_s + PATIENCE * each.left_s * each.job.gpus**0.5 for each in waiting}
    if not any(keys[each.job.id] <= now_s and each.job.least_gpus <= GPUS for each in waiting):  # type: ignore[operator]
        assert all(each.job.least_gpus > idle for each in waiting)  # type: ignore[operator]


def suited(job: Job, cluster: Cluster) -> tuple[int, int]:
    view = ClusterState(cluster).snapshot()
    at = Followed(cluster, Cranny())
    at.follow(view)
    return suited_sizes(job, view, at.placing)


def test_workers_are_worth_having_as_long_as_they_make_a_job_faster() -> None:
    job = Job("job", 8, "vgg16", "ring", duration_s=1000.0, least_gpus=2, most_gpus=16)
    assert suited(job, Cluster.fat_tree(1, 1, 16, 100.0)) == (8, 16)  # all on one machine
    wanted, most = suited(job, Cluster.fat_tree(1, 16, 1, 10.0))  # gradients take longer than computing
    assert wanted < 8
    assert wanted <= most
    assert suited(replace(job, least_gpus=None, most_gpus=None), Cluster.fat_tree(1, 16, 1, 10.0)) == (8, 8)


def test_a_tiny_job_is_no_reason_to_stop_others_for_long_ones() -> None:
    """There is a GPU for it anyway; the others gain too little by taking the place of those that run."""
    running = [
        DividedJob(Job(f"running-{number}", 4, duration_s=1000.0, restart_s=100.0), 1000.0, 4, 4, 4)
        for number in range(5)
    ]
    waiting = [DividedJob(Job(f"waiting-{number}", 4, duration_s=900.0), 900.0, 4, 4) for number in range(5)]
    tiny = DividedJob(Job("tiny", 1, duration_s=1.0), 1.0, 1, 1)
    found = sizes(*running, *waiting, tiny)
    assert found["tiny"] == 1
    assert all(found[each.job.id] == 4 for each in running)
    # Of a job that is much shorter one gives its GPUs to it.
    short = DividedJob(Job("short", 4, duration_s=100.0), 100.0, 4, 4)
    found = sizes(*running, *waiting, tiny, short)
    assert found["short"] == 4
    assert sum(found[each.job.id] for each in running) == 20 - 4
