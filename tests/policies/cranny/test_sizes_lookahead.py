"""Playing out what becomes of jobs on GPUs of several types."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.policies.cranny.test_shortest_first import mixed, workers

from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Start
from cranny.policies.cranny.shortest_first import ShortestFirst
from cranny.policies.cranny.sizes_lookahead import GPUS, MOST, Arrivals, Outcome, Run, SizesLookahead
from cranny.policies.cranny.worker_sets import JobsSeen
from cranny.run import run
from cranny.scenario import Scenario
from cranny.sim.metrics import SECONDS_PER_HOUR
from cranny.sim.result import Result


def job(name: str, hours: float, on_a: float = 1.0, on_b: float = 1.0, submit_s: float = 0.0) -> Job:
    """Return a job that asks for four GPUs, can have one to eight, and restarts within a minute."""
    return Job(
        name, 4, submit_s=submit_s, duration_s=hours * 3600.0, least_gpus=1, most_gpus=8,
        speeds={"A": on_a, "B": on_b}, restart_s=60.0,
    )  # fmt: skip


def replayed(cluster: Cluster, jobs: list[Job], *, lookahead: bool) -> Result:
    """Replay jobs with the policy."""
    return run(Scenario(cluster, jobs, "cranny", "isolated", options={"lookahead": lookahead}))


def played_out(cluster: Cluster, jobs: list[Job]) -> Outcome:
    """Return what is expected to become of jobs that come at once, in the order of the queue."""
    view = ClusterState(cluster).snapshot(0.0, [Waiting(each) for each in jobs])
    return SizesLookahead(view, JobsSeen().follow(view)).played_out(jobs, {}, view.free)


def outcome(result: Result) -> Outcome:
    """Return what became of jobs that came at once."""
    jct_s = result.jobs["jct_s"].to_numpy()
    machine_s = result.summary["machine_hours"] * SECONDS_PER_HOUR * 4
    return Outcome(machine_s, jct_s.max(), jct_s.sum(), float((jct_s / result.jobs["duration_s"]).sum()))


jobs_at_once = st.lists(
    st.tuples(st.floats(1.0, 9.0), st.floats(0.2, 2.0), st.floats(0.2, 2.0)), min_size=2, max_size=6
).map(lambda drawn: [job(f"job-{at}", hours, on_a, on_b) for at, (hours, on_a, on_b) in enumerate(sorted(drawn))])


@given(jobs_at_once)
def test_what_is_played_out_is_what_a_replay_without_looking_ahead_gives(jobs: list[Job]) -> None:
    """With all jobs there from the start, both have the same starts, moves and ends.

    They differ where a job has less than 1 % left, since the policy takes it to have that.
    """
    cluster = mixed("A", "B", "B", gbps=100.0)
    result = replayed(cluster, jobs, lookahead=False)
    assume(not result.jobs["restarts"].sum())  # stops are not played out
    assert tuple(outcome(result)) == pytest.approx(tuple(played_out(cluster, jobs)), rel=0.01)


@given(jobs_at_once)
def test_all_jobs_end_although_some_move_as_played_out(jobs: list[Job]) -> None:
    """A job only moves if it gains, so a replay ends; also where a restart costs nothing."""
    jobs = [replace(each, restart_s=0.0) for each in jobs]
    result = replayed(mixed("A", "B", "B", gbps=100.0), jobs, lookahead=True)
    assert result.summary["jobs_done"] == len(jobs)


def test_free_gpus_are_shared_so_that_the_last_job_is_not_left_alone() -> None:
    """Two equal jobs have a machine each and a third becomes free: split, both end first together, and sooner."""
    cluster = mixed("A", "A", "B", gbps=1000.0)
    jobs = [job("a", 10.0), job("b", 10.0)]
    state = ClusterState(cluster)
    for at, each in enumerate(jobs):
        state.place(each, Placement((at,) * 4), 0.0)
    moves = ShortestFirst(10.0).plan(state.snapshot(3600.0), sharing=True).actions
    assert [(each.job_id, each.placement.counts) for each in moves if isinstance(each, Move)] == [
        ("a", {0: 4, 2: 2}),
        ("b", {1: 4, 2: 2}),
    ]
    (usual,) = ShortestFirst(10.0, lookahead=False).plan(state.snapshot(3600.0), sharing=True).actions
    assert isinstance(usual, Move)
    assert usual.placement.counts == {0: 4, 2: 4}


def test_no_job_leaves_a_machine_that_is_drained() -> None:
    """Of the two jobs above only the other one grows: the GPUs of the first would be lost."""
    cluster = mixed("A", "A", "B", gbps=1000.0)
    state = ClusterState(cluster)
    for at, name in enumerate("ab"):
        state.place(job(name, 10.0), Placement((at,) * 4), 0.0)
    state.drain(0)
    (move,) = ShortestFirst(10.0).plan(state.snapshot(3600.0), sharing=True).actions
    assert isinstance(move, Move)
    assert move.job_id == "b"


@given(jobs_at_once)
def test_the_first_starts_no_worse_than_in_the_usual_way(jobs: list[Job]) -> None:
    """As played out anew from the start that was chosen; completion times count from the submission on."""
    waited_s = 600.0
    view = ClusterState(mixed("A", "B", "B", gbps=100.0)).snapshot(waited_s, [Waiting(each) for each in jobs])
    sets = JobsSeen().follow(view)
    lookahead = SizesLookahead(view, sets)
    usual = lookahead.played_out(jobs, {}, view.free)
    assert usual.longest_s <= (usual.ends_s + waited_s) * (1 + 1e-9)
    assert usual.longest_s >= (usual.ends_s / len(jobs) + waited_s) * (1 - 1e-9)
    for action in lookahead.better(view.waiting, Arrivals()):
        assert isinstance(action, Start)
        assert action.job is jobs[0]
        workers = np.array([action.placement.counts.get(at, 0) for at in range(3)])
        run = Run(jobs[0], workers, sets.left_s(jobs[0]))
        chosen = lookahead.played_out(jobs[1:], {run.job.id: run}, view.free - workers)
        assert chosen.over(usual) < usual.over(usual)


def test_nothing_is_played_out_where_more_jobs_are_expected_to_come() -> None:
    """Of three jobs, one came after an hour: as many are expected in each hour from now on."""
    arrivals, state = Arrivals(), ClusterState(mixed("A", "B", gbps=100.0))
    first, later = [job("a", 1.0), job("b", 1.0)], job("c", 1.0, submit_s=3600.0)
    arrivals.see(state.snapshot(0.0, [Waiting(each) for each in first]))
    assert arrivals.expected(1e9, 0.0) == 0.0  # all came at once
    arrivals.see(state.snapshot(3600.0, [Waiting(first[1]), Waiting(later)]))
    assert arrivals.expected(7200.0, 3600.0) == 2.0
    state.place(later, Placement((0,) * 4), 3600.0)
    arrivals.see(state.snapshot(7200.0, [Waiting(first[1])]))
    assert arrivals.expected(7200.0, 7200.0) == 1.0  # none came meanwhile


def test_jobs_that_keep_coming_start_as_without_looking_ahead() -> None:
    """The same jobs start in another way if all came at once than if others are expected."""
    cluster = mixed("A", "B", "B", gbps=100.0)
    differ = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        drawn = rng.uniform(0.2, 5.0, (4, 3))
        ways = []
        for gap_s, lookahead in ((0.0, True), (1.0, True), (1.0, False)):
            jobs = [
                job(f"job-{at}", hours, on_a, on_b, submit_s=at * gap_s)
                for at, (hours, on_a, on_b) in enumerate(drawn.tolist())
            ]
            jobs.sort(key=lambda each: each.duration_s or math.inf)
            view = ClusterState(cluster).snapshot(4.0, [Waiting(each) for each in jobs])
            ways.append(workers(ShortestFirst(10.0, lookahead=lookahead), view))
        assert ways[1] == ways[2]
        differ += ways[0] != ways[1]
    assert differ


@pytest.mark.parametrize(("count", "machines"), [(MOST + 1, 3), (4, GPUS // 4 + 1)])
def test_nothing_is_played_out_where_that_would_take_long(count: int, machines: int) -> None:
    """With fewer jobs or GPUs some start in another way than without looking ahead."""

    def differ(count: int, machines: int) -> bool:
        cluster = mixed("A", *("B",) * (machines - 1), gbps=100.0)
        found = []
        for seed in range(10):
            drawn = np.random.default_rng(seed).uniform(0.2, 5.0, (count, 3)).tolist()
            jobs = [job(f"job-{at}", *each) for at, each in enumerate(sorted(drawn))]
            view = ClusterState(cluster).snapshot(0.0, [Waiting(each) for each in jobs])
            ahead, usual = (workers(ShortestFirst(10.0, lookahead=lookahead), view) for lookahead in (True, False))
            found.append(ahead != usual)
        return any(found)

    assert differ(4, 3)
    assert not differ(count, machines)
