"""A policy that decides periodically: jobs wait for the next time it is asked."""

import pytest

import cranny
from cranny.core.snapshot import Snapshot
from cranny.model.errors import InputError
from cranny.model.event import MachineFailed


def test_jobs_start_at_multiples_of_the_period() -> None:
    cluster = cranny.Cluster.single_rack(1, 2)
    jobs = [
        cranny.Job("a", 1, submit_s=5.0, duration_s=30.0),
        cranny.Job("b", 2, submit_s=60.0, duration_s=10.0),
        cranny.Job("c", 1, submit_s=200.0, duration_s=10.0),
    ]
    result = cranny.simulate(cluster, jobs, policy="best-fit", period_s=60.0)
    starts = dict(zip(result.jobs["job_id"], result.jobs["start_s"], strict=True))
    # `b` comes just when `a` starts, and finds it ended at the next time.
    assert starts == {"a": 60.0, "b": 120.0, "c": 240.0}
    assert result.settings["period_s"] == 60.0


def test_a_job_waits_for_the_next_time_if_the_last_one_ends_exactly_then() -> None:
    cluster = cranny.Cluster.single_rack(1, 8)
    jobs = [
        cranny.Job("a", 8, submit_s=0.0, duration_s=60.0),
        cranny.Job("b", 1, submit_s=1.0, duration_s=5.0),
    ]
    result = cranny.simulate(cluster, jobs, policy="best-fit", network="instant", period_s=60.0)
    assert dict(zip(result.jobs["job_id"], result.jobs["status"], strict=True)) == {"a": "done", "b": "done"}
    assert dict(zip(result.jobs["job_id"], result.jobs["start_s"], strict=True)) == {"a": 60.0, "b": 120.0}


def test_a_job_that_can_never_start_is_skipped_all_the_same() -> None:
    cluster = cranny.Cluster.single_rack(2, 2)
    jobs = [
        cranny.Job("never", 3, submit_s=0.0, duration_s=1.0),
        cranny.Job("a", 1, submit_s=1.0, duration_s=1.0),
    ]
    result = cranny.simulate(cluster, jobs, policy=_OneMachine(), period_s=10.0)
    status = dict(zip(result.jobs["job_id"], result.jobs["status"], strict=True))
    assert status == {"never": "skipped", "a": "done"}


def test_a_job_that_waits_for_machines_gone_for_good_blocks_no_other() -> None:
    jobs = [
        cranny.Job("all", 4, submit_s=2.0, duration_s=1.0),
        cranny.Job("one", 1, submit_s=3.0, duration_s=1.0),
    ]
    result = cranny.simulate(
        cranny.Cluster.single_rack(2, 2), jobs, "best-fit", machine_events=[(1.0, MachineFailed(0))], period_s=10.0
    )
    status = dict(zip(result.jobs["job_id"], result.jobs["status"], strict=True))
    assert status == {"all": "unfinished", "one": "done"}


def test_a_period_cannot_be_negative() -> None:
    cluster = cranny.Cluster.single_rack(1, 1)
    with pytest.raises(InputError, match="period_s"):
        cranny.simulate(cluster, [cranny.Job("a", 1, duration_s=1.0)], period_s=-1.0)


class _OneMachine:
    """Place jobs on single machines only."""

    def place(self, job: cranny.Job, view: Snapshot) -> cranny.Placement | None:
        found = [machine for machine, free in enumerate(view.free.tolist()) if free >= job.gpus]
        return cranny.Placement((found[0],) * job.gpus) if found else None

    def why_wait(self, job: cranny.Job, view: Snapshot) -> str:  # noqa: ARG002
        return "no machine is large enough"
