"""Queues of partitions, priorities and limits, against a reference that goes through everything each time."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import queues

from cranny.core.feasibility import Feasibility
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError, PlacementError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies import TABLE
from cranny.run import Result, simulate

SLOW = frozenset({"exact"})
# They divide GPUs by type alone, and refuse jobs that are kept to a partition.
BY_TYPE = frozenset({"gavel", "has", "has-exact", "has-resets", "jps", "las", "optimus-lb", "optimus-shares"})


def cluster_of(partitions: dict[str, tuple[int, ...]], machines: int = 4, gpus: int = 4) -> Cluster:
    made = [Machine(f"m{index}", gpus, "v100" if index < machines // 2 else "a100") for index in range(machines)]
    switch = Switch("rack", tuple(made), (100.0,) * machines)
    return replace(Cluster.of(switch), partitions=partitions)


APART = cluster_of({"old": (0, 1), "new": (2, 3)})
LINKED = cluster_of({"old": (0, 1), "both": (1, 2), "new": (2, 3)})


def starts(result: Result) -> dict[str, float]:
    return dict(result.jobs.filter(result.jobs["start_s"].is_not_null()).select("job_id", "start_s").iter_rows())


def replayed(cluster: Cluster, jobs: Sequence[Job], order: str, policy: str = "best-fit") -> dict[str, float]:
    return starts(simulate(cluster, jobs, policy, "instant", order=order))


def test_a_job_of_one_partition_does_not_wait_behind_one_of_another() -> None:
    jobs = [
        Job("a", 8, duration_s=36_000.0, partition="new"),
        Job("blocked", 8, submit_s=1.0, duration_s=10.0, partition="new"),
        Job("free", 4, submit_s=2.0, duration_s=10.0, partition="old"),
    ]
    for order in ("fifo", "sjf", "priority", "backfill", "conservative"):
        assert replayed(APART, jobs, order) == {"a": 0.0, "blocked": 36_000.0, "free": 2.0}, order


def test_a_job_that_waits_blocks_those_that_share_a_machine_with_it_or_with_one_that_it_blocks() -> None:
    jobs = [
        Job("runs", 5, duration_s=100.0, partition="old"),
        Job("first", 4, submit_s=1.0, duration_s=10.0, partition="old"),
        Job("second", 4, submit_s=2.0, duration_s=10.0, partition="both"),
        Job("third", 8, submit_s=3.0, duration_s=10.0, partition="new"),
    ]
    assert replayed(LINKED, jobs, "fifo") == {"runs": 0.0, "first": 100.0, "second": 100.0, "third": 100.0}


def test_higher_priorities_come_first_and_then_submission() -> None:
    one = Cluster.single_rack(1, 4)
    jobs = [
        Job("a", 4, duration_s=10.0),
        Job("low", 4, submit_s=1.0, duration_s=10.0),
        Job("high", 4, submit_s=2.0, duration_s=10.0, priority=5.0),
        Job("as low", 4, submit_s=3.0, duration_s=10.0),
    ]
    for order in ("priority", "backfill", "conservative"):
        assert replayed(one, jobs, order) == {"a": 0.0, "high": 10.0, "low": 20.0, "as low": 30.0}
    assert replayed(one, jobs, "fifo") == {"a": 0.0, "low": 10.0, "high": 20.0, "as low": 30.0}


def test_backfill_goes_by_limits_and_jobs_run_for_their_duration() -> None:
    one = Cluster.single_rack(1, 4)
    jobs = [
        Job("a", 3, duration_s=100.0, limit_s=200.0),
        Job("first", 4, submit_s=1.0, duration_s=10.0, limit_s=50.0),
        Job("in time", 1, submit_s=2.0, duration_s=150.0, limit_s=198.0),  # and yet it outlasts what ends early
        Job("too long", 1, submit_s=3.0, duration_s=5.0, limit_s=1000.0),
    ]
    assert replayed(one, jobs, "backfill") == {"a": 0.0, "in time": 2.0, "first": 152.0, "too long": 162.0}
    frame = simulate(one, jobs, "best-fit", "instant", order="backfill").jobs
    assert sorted(frame["duration_s"]) == [5.0, 10.0, 100.0, 150.0]


def test_a_reservation_is_for_the_next_end_on_machines_that_the_job_can_use() -> None:
    jobs = [
        Job("a", 2, duration_s=100.0, partition="old"),
        Job("b", 2, duration_s=200.0, partition="old"),
        Job("elsewhere", 4, duration_s=10.0, partition="new"),
        Job("first", 4, submit_s=1.0, duration_s=10.0, partition="old"),  # lacks no GPUs, but a whole machine
        Job("in time", 2, submit_s=3.0, duration_s=50.0, partition="old"),
    ]
    found = replayed(APART, jobs, "backfill", "consolidate-idle")
    assert found == {"a": 0.0, "b": 0.0, "elsewhere": 0.0, "in time": 3.0, "first": 100.0}


def test_conservative_keeps_the_second_in_its_turn_where_easy_does_not() -> None:
    one = Cluster.single_rack(1, 4)
    jobs = [
        Job("a", 3, duration_s=100.0),
        Job("first", 2, submit_s=1.0, duration_s=100.0),
        Job("second", 4, submit_s=2.0, duration_s=10.0),
        Job("long", 1, submit_s=3.0, duration_s=300.0),  # leaves the first enough, but not the second
    ]
    assert replayed(one, jobs, "backfill")["second"] == 303.0
    assert replayed(one, jobs, "conservative") == {"a": 0.0, "first": 100.0, "second": 200.0, "long": 210.0}


def test_a_job_larger_than_its_partition_is_skipped_with_the_reason() -> None:
    job = Job("a", 9, duration_s=1.0, partition="old")
    assert Feasibility(APART).why_too_large(job) == "needs 9 GPUs, partition 'old' has 8"
    assert Feasibility(APART).why_too_large(replace(job, partition="unlisted")) is None
    with pytest.raises(InputError, match="partition 'old' has 8"):
        simulate(APART, [job], "best-fit")


def test_a_placement_outside_the_partition_is_refused() -> None:
    state = ClusterState(APART)
    with pytest.raises(PlacementError, match="is of partition 'old'; m2 is not"):
        state.place(Job("a", 1, partition="old"), Placement((2,)))


@pytest.mark.parametrize("value", [{"partition": 3}, {"priority": float("nan")}, {"limit_s": -1.0}])
def test_what_a_scheduler_is_told_is_checked(value: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(value))):
        Job("a", 1, **value)  # type: ignore[arg-type]


@st.composite
def logs(draw: st.DrawFn, partitions: Sequence[str | None], most: int = 14) -> list[Job]:
    """Draw jobs whose limits are never below their durations, in whole seconds so that much happens at once."""
    seconds = st.integers(1, 40)
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 15), st.integers(1, 8), seconds, st.integers(0, 30), st.sampled_from(partitions)
            ),
            min_size=1,
            max_size=most,
        )
    )
    submit_s = accumulate(row[0] for row in rows)
    return [
        Job(
            str(number),
            gpus,
            submit_s=float(at_s),
            duration_s=float(ran_s),
            limit_s=float(ran_s + more_s),
            priority=float(more_s % 3),
            partition=partition,
        )
        for number, ((_, gpus, ran_s, more_s, partition), at_s) in enumerate(zip(rows, submit_s, strict=True))
    ]


@settings(max_examples=examples(35))
@given(logs(["old", "new", "both", None, "unlisted"]), st.sampled_from(["fifo", "priority", "backfill"]))
def test_orders_do_as_the_reference(jobs: list[Job], order: str) -> None:
    decide = queues.easy if order == "backfill" else queues.blocking
    expected = queues.starts(LINKED, jobs, decide, by_priority=order != "fifo")
    assert replayed(LINKED, jobs, order) == expected


@settings(max_examples=examples(35))
@given(logs([None]))
def test_conservative_does_as_the_reference(jobs: list[Job]) -> None:
    cluster = Cluster.single_rack(3, 4)
    assert replayed(cluster, jobs, "conservative") == queues.starts(cluster, jobs, queues.conservative)


@settings(max_examples=examples(20))
@given(
    logs(["old", "new"]), st.sampled_from(["fifo", "sjf", "las", "srtf", "priority", "backfill", "conservative"])
)
def test_partitions_that_share_no_machine_never_delay_each_other(jobs: list[Job], order: str) -> None:
    together = replayed(APART, jobs, order)
    for name in ("old", "new"):
        alone = [job for job in jobs if job.partition == name]
        if alone and order not in ("las", "srtf"):  # which stop jobs, and count GPUs of the whole cluster
            found = replayed(APART, alone, order)
            assert {job_id: together[job_id] for job_id in found} == found


@settings(max_examples=examples(20))
@given(
    logs(["old", "new", "both", None], most=10),
    st.sampled_from(["fifo", "las", "srtf", "backfill", "conservative", "knapsack"]),
    st.sampled_from(["best-fit", "titan", "consolidate-idle", "gpu-balance", "tetris", "netpack", "hived"]),
)
def test_no_job_starts_outside_its_partition_or_before_it_arrives(
    jobs: list[Job], order: str, policy: str
) -> None:
    result = simulate(LINKED, jobs, policy, "instant", order=order)
    again = simulate(LINKED, jobs, policy, "instant", order=order)
    assert result.runs.equals(again.runs)
    of = {job.id: job for job in jobs}
    for job_id, start_s, machine in result.runs.select("job_id", "start_s", "machine").iter_rows():
        assert start_s >= of[job_id].submit_s
        assert machine in queues.machines_of(LINKED, of[job_id])


@pytest.mark.parametrize("policy", sorted(set(TABLE) - SLOW))
def test_every_policy_keeps_jobs_in_their_partitions_or_refuses_them(policy: str) -> None:
    sizes = [8, 3, 5, 1, 8, 2, 4, 6, 7, 1, 2, 8]
    names = ["old", "new", "both"]
    jobs = [
        Job(str(at), gpus, submit_s=5.0 * at, duration_s=60.0, partition=names[at % 3])
        for at, gpus in enumerate(sizes)
    ]
    if policy in BY_TYPE:
        with pytest.raises(InputError, match="cannot keep jobs in partitions"):
            simulate(LINKED, jobs, policy, "instant")
        return
    result = simulate(LINKED, jobs, policy, "instant")
    of = {job.id: job for job in jobs}
    for job_id, machine in result.runs.select("job_id", "machine").iter_rows():
        assert machine in LINKED.partitions[of[job_id].partition or ""]
