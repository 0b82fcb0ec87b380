"""A run is ended at its time limit: no job is expected to run longer, whatever others ran."""

import pytest

from cranny.core.engine import Engine
from cranny.core.protocol import JobRules
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.plan import Start
from cranny.policies.cranny import Cranny
from cranny.service.engines import JointByPriority
from cranny.service.event_chain import EventRow
from cranny.service.job_records import JobRecords

LIMITED = Cranny().with_rules(JobRules(limit_s_of={"limited": 60.0}.get))


def test_no_estimate_is_above_the_limit() -> None:
    unknown = [Job(name, 4) for name in ("limited", "other")]
    assert LIMITED.length_s(unknown[0]) == 60.0
    assert LIMITED.length_s(unknown[1]) > 60.0
    assert LIMITED.left_s(Waiting(unknown[0], attained_gpu_s=4e6)) == 60.0  # long jobs run on for long


@pytest.mark.parametrize(("duration_s", "expected_s"), [(500.0, 60.0), (30.0, 30.0)])
def test_a_stated_duration_ends_at_the_limit_as_well(duration_s: float, expected_s: float) -> None:
    assert LIMITED.length_s(Job("limited", 4, duration_s=duration_s)) == expected_s


@pytest.mark.parametrize(("name", "starts"), [("limited", True), ("other", False)])
def test_a_job_whose_limit_is_short_enough_passes_one_that_waits(name: str, starts: bool) -> None:  # noqa: FBT001
    cluster = Cluster.single_rack(2, 4)
    engine = Engine(ClusterState(cluster), Cranny(preempt=False).with_rules(LIMITED.rules))
    engine.submit(Job("first", 4, duration_s=100.0), 0.0)
    engine.submit(Job("large", 8, submit_s=1.0, duration_s=10.0), 1.0)  # is promised to start at 100
    found = engine.submit(Job(name, 4, submit_s=2.0), 2.0)
    assert [action.job.id for action in found if isinstance(action, Start)] == [name] * starts


def test_a_service_lets_it_know_the_limits_of_job_files() -> None:
    records = JobRecords(Cluster.single_rack(2, 4))
    policy = JointByPriority(Cranny(), records)
    for number, spec in enumerate(({"time_limit_s": 60}, {})):
        body = {"user": "ann", "spec": {"command": ["true"], "gpus": 4, **spec}}
        records.apply(EventRow(number + 1, 0.0, "submitted", f"job-{number}", body))
    limited, other = (policy.key(Waiting(records.jobs[f"job-{number}"].job)) for number in range(2))
    assert limited < other
