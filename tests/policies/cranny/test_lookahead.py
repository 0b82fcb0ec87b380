"""Orders of the first waiting jobs: played out as the reference does, and none is passed that may not be."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import lookahead as reference

from cranny.core.engine import Engine
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.event import Submitted
from cranny.model.job import Job
from cranny.model.plan import Start
from cranny.policies.cranny import Cranny
from cranny.policies.cranny import lookahead_kernel as kernel
from cranny.policies.cranny.followed import Followed
from cranny.policies.cranny.lookahead import MOST
from cranny.policies.cranny.tail import WEIGHT, CompletionTimes

CLUSTER = Cluster.fat_tree(1, 3, 8, 100_000.0)  # communication takes next to no time
times_s = st.sampled_from([1.0, 2.0, 5.0, 7.0, 30.0])
some_jobs = st.lists(
    st.builds(
        reference.Job,
        st.integers(1, 6),
        times_s,
        times_s,
        st.sampled_from([0.0, 4.0]),
        st.sampled_from([6.0, math.inf]),
    ),
    min_size=1,
    max_size=6,
)


def found(
    jobs: list[reference.Job], release_s: list[float], longest_s: float | None
) -> tuple[list[int], list[float], float]:
    """Return what the kernel finds: the best order, the starts in the last that it played out, and the cost."""
    queue = kernel.FirstJobs(
        np.array([each.gpus for each in jobs]),
        np.array([each.run_s for each in jobs]),
        np.array([each.length_s for each in jobs]),
        np.array([each.waited_s for each in jobs]),
        np.array([each.tail_s for each in jobs]),
    )
    busy = sorted(each for each in release_s if 0.0 < each < math.inf)
    more = [0.0] * len(jobs)
    known = kernel.ReleaseArrays(np.array(busy + more), np.array([1] * len(busy) + [0] * len(jobs)))
    room = kernel.Playing(
        np.zeros(len(jobs), np.int64),
        np.zeros(len(jobs), np.int64),
        np.zeros(len(jobs)),
        kernel.ReleaseArrays(np.zeros(len(known.gpus)), np.zeros(len(known.gpus), np.int64)),
    )
    free = sum(each <= 0.0 for each in release_s)
    least = kernel.best_order(
        queue, known, len(busy), free, 0.0, WEIGHT, -1.0 if longest_s is None else longest_s, room
    )
    return room.best.tolist(), room.start_s.tolist(), least


@settings(max_examples=examples(300))
@given(
    some_jobs,
    st.lists(st.sampled_from([-math.inf, 2.0, 3.0, 11.0, math.inf]), min_size=1, max_size=8),
    st.sampled_from([None, 0.0, 20.0]),
)
def test_the_best_order_is_that_of_the_reference(
    jobs: list[reference.Job], release_s: list[float], longest_s: float | None
) -> None:
    order, _, least = found(jobs, release_s, longest_s)
    expected, cost = reference.best_order(jobs, release_s, WEIGHT, longest_s, kernel.GAIN)
    assert least == pytest.approx(cost, rel=1e-9)
    assert reference.cost(order, jobs, release_s, WEIGHT, longest_s) == pytest.approx(cost, rel=1e-9)
    assert sorted(order) == list(range(len(jobs)))
    if order != expected:  # only among equals, by rounding
        assert reference.cost(expected, jobs, release_s, WEIGHT, longest_s) == pytest.approx(least, rel=1e-9)


def test_one_job_alone_starts_when_enough_gpus_are_free() -> None:
    assert found([reference.Job(3, 10.0)], [-math.inf, 2.0, 5.0, 9.0], None) == ([0], [5.0], 2.0)
    assert found([reference.Job(5, 10.0)], [-math.inf, 2.0, 5.0, 9.0], None) == ([0], [math.inf], 2.0)


# Of 24 GPUs `short` and `middle` leave `long` too few. If they go first, as by their keys, completion times are
# 190, 1,000 and 2,190 s; if `long` does, 190, 1,190 and 2,000 s: as much in all, and 1.03 times the slowdowns.
SHORT = Job("short", 10, duration_s=190.0)
MIDDLE = Job("middle", 10, duration_s=1000.0)
LONG = Job("long", 6, duration_s=2000.0)
ALL = (SHORT, MIDDLE, LONG)


def started(policy: Cranny, *jobs: Job, cluster: Cluster = CLUSTER) -> list[str]:
    """Return which of some jobs start that come at once."""
    engine = Engine(ClusterState(cluster), policy)
    done = engine.handle_all([Submitted(job) for job in jobs], 0.0)
    return sorted(each.job.id for each in done if isinstance(each, Start))


def knowing(tail_s: float) -> Cranny:
    """Return the policy that knows where the tail begins."""
    policy = Cranny()
    policy.completion_times = CompletionTimes(tail_s)
    return policy


def test_a_long_job_goes_before_one_that_would_leave_it_alone_in_the_end() -> None:
    assert started(Cranny(lookahead=False), *ALL) == ["middle", "short"]
    assert started(Cranny(), *ALL) == ["long", "short"]


def test_the_longest_completion_time_counts_only_until_the_tail_is_known() -> None:
    assert started(knowing(1e9), *ALL) == ["middle", "short"]
    assert started(knowing(250.0), *ALL) == ["long", "short"]  # seconds of `long` count four times
    assert started(Cranny(tail=False), *ALL) == ["middle", "short"]


def test_it_looks_at_all_jobs_and_not_at_the_longest_alone() -> None:
    many = [Job(f"one-{at}", 24, duration_s=10.0) for at in range(4)]
    assert started(Cranny(), *many, LONG) == ["one-0"]


def test_a_job_whose_key_has_passed_keeps_its_place() -> None:
    assert started(Cranny(patience=0.0), *ALL) == ["middle", "short"]


def test_jobs_of_a_higher_priority_keep_theirs() -> None:
    at, view = followed(*ALL)

    def tried(*queue: Job) -> list[str]:
        assert at._lookahead is not None
        found = at._lookahead.in_best_order([Waiting(job) for job in queue], view, lambda _: True)
        return [each.job.id for each in found]

    assert tried(*ALL) == ["long", "short", "middle"]
    assert tried(replace(SHORT, priority=1.0), replace(MIDDLE, priority=1.0), LONG) == ["short", "middle", "long"]


def test_only_the_first_jobs_are_looked_at() -> None:
    at, view = followed(*ALL)
    more = [Job(f"one-{at}", 24, duration_s=1.0) for at in range(MOST)]
    queue = [Waiting(job) for job in (*more, *ALL)]
    assert at._lookahead is not None
    assert list(at._lookahead.in_best_order(queue, view, lambda _: True)[MOST:]) == queue[MOST:]


def followed(*jobs: Job, cluster: Cluster = CLUSTER) -> tuple[Followed, Snapshot]:
    """Return what a policy knows of jobs that came, on a cluster where none runs, and the view of it."""
    policy = Cranny()
    view = ClusterState(cluster).snapshot(0.0, [Waiting(job) for job in jobs])
    policy.follow(view)
    assert policy._at is not None
    return policy._at, view


def test_jobs_that_need_different_types_of_gpus_stay_in_order() -> None:
    mixed = Cluster.of(Switch("core", (Machine("a", 24, "A"), Machine("b", 24, "B")), (1e5, 1e5)))
    of_a = [replace(job, gpu_type="A") for job in ALL]
    assert started(Cranny(), *of_a, cluster=mixed) == ["long", "short"]
    at, view = followed(*of_a, Job("other", 20, gpu_type="B", duration_s=180.0), cluster=mixed)
    assert at._lookahead is not None
    assert at._lookahead.in_best_order(view.waiting, view, lambda _: True) == view.waiting
