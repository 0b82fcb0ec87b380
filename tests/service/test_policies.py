"""Any policy serves: those that place one job at a time, and those that plan, resize, stop, move and shift."""

import time
from pathlib import Path

import pytest
from tests.service.conftest import CLUSTER, Start, until
from tests.service.standing import standing

from cranny.backends.fake import FakeProcesses, FakeRun
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.topology_spec import Machine, Switch
from cranny.policies import DEFAULT_POLICY
from cranny.service.limits import ConflictError, Limits
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore

KINDS = ["cranny", "elasticflow", "hived", "gavel", "has", "pollux", "themis+cassini", "titan+cassini"]


@pytest.mark.parametrize("name", KINDS)
def test_all_jobs_end_under_any_kind_of_policy(start: Start, name: str) -> None:
    running = start(course=lambda _: FakeRun(run_s=0.05), policy={"name": name, "period_s": 0.1})
    service = running.service
    for number in range(12):
        running.submit(gpus=1 + number % 5, duration_s=5, model="vgg16", priority=number % 2)
    until(lambda: all(record.over for record in service.scheduler.records.jobs.values()))
    assert service.scheduler.records.counts["done"] == 12
    service.close()
    again = Scheduler(service.scheduler.cluster, "run", Limits())
    store = EventStore(str(service.folder / "log.db"))
    again.restore(store)
    assert standing(again) == standing(service.scheduler)
    store.close()


@pytest.mark.parametrize("back_s", [1_999.9, 2_500.0])
def test_a_policy_with_a_period_is_asked_after_a_restart(start: Start, back_s: float) -> None:
    processes = FakeProcesses()
    before = start(policy={"name": "titan", "period_s": 1_000.0}, clock=lambda: 1_000.5, processes=processes)
    job_id = before.submit()
    assert before.status(job_id) == "waiting"
    before.service.close()
    begin_s = time.monotonic()
    after = start(clock=lambda: back_s + time.monotonic() - begin_s, processes=processes)
    after.until(job_id, "running")


def test_a_policy_that_plans_for_all_takes_no_constraints(start: Start) -> None:
    running = start()
    service = running.service
    running.submit(gpus=16)
    constrained = running.submit(gpus=2, constraints={"same_rack": "required"})
    with pytest.raises(ConflictError, match=f"does not support constraints; {constrained} has some"):
        service.call(lambda now_s: service.scheduler.set_policy({"name": "pollux"}, "root", now_s)).result(60)
    assert service.scheduler.records.policy["name"] == "cranny"
    service.call(lambda now_s: service.scheduler.cancel(constrained, "root", now_s)).result(60)
    service.call(lambda now_s: service.scheduler.set_policy({"name": "pollux"}, "root", now_s)).result(60)
    with pytest.raises(
        InputError, match="constraints: not supported by policy 'pollux', which plans for all jobs jointly"
    ):
        running.submit(gpus=2, constraints={"same_rack": "required"})


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"resources": {"cpus": 2}}, "^resources: not supported by policy 'has'"),
        (
            {"resources": {"cpus": 2}, "constraints": {"per_machine": 1}},
            "^constraints and resources: not supported",
        ),
    ],
)
def test_a_policy_that_plans_for_all_names_what_it_does_not_support(needs: dict[str, object], said: str) -> None:
    scheduler = Scheduler(
        Cluster.of(Switch("top", (Machine("m", 4, "", {"cpus": 8}),), (100.0,))), "run", Limits()
    )
    scheduler.open(0.0)
    scheduler.switch({"name": "has"}, "root", 0.0)
    with pytest.raises(InputError, match=said):
        scheduler.submit("ann", {"command": ["x"], "gpus": 2, **needs}, None, 1.0)


def test_constraints_are_kept_and_priority_goes_first(start: Start) -> None:
    running = start()
    first = running.submit(gpus=2, constraints={"exclude": ["rack0-machine0", "rack1-machine0"]})
    record = running.service.scheduler.find(first)
    assert record.attempt is not None
    assert set(record.attempt.placement.machines) == {1}
    running.submit(gpus=14)
    low, high = running.submit(gpus=1), running.submit(gpus=1, priority=1)
    assert [waiting.job.id for waiting in running.service.scheduler.engine.queue] == [high, low]


def test_a_log_keeps_the_policy_that_it_was_last_used_with(start: Start) -> None:
    first = start()
    assert first.service.scheduler.records.policy["name"] == DEFAULT_POLICY
    first.service.close()
    start(policy={"name": "titan", "order": "sjf"}).service.close()
    again = start()
    assert (again.service.scheduler.records.policy["name"], again.service.scheduler.records.policy["order"]) == (
        "titan",
        "sjf",
    )


def test_a_log_in_which_no_policy_was_set_opens_with_the_first_one(start: Start, tmp_path: Path) -> None:
    before = Scheduler(CLUSTER, "run", Limits())
    before.open(0.0)
    for _ in range(2):
        before.submit("ann", {"command": ["true"], "gpus": 16}, None, 1.0)
    assert "policy" not in {row.kind for row in before.rows}
    store = EventStore(str(tmp_path / "log.db"))
    store.acquire()
    store.append(before.rows)
    store.close()
    running = start()
    assert running.service.scheduler.records.policy["name"] == DEFAULT_POLICY
    until(lambda: {running.status(job_id) for job_id in ("job-1", "job-2")} == {"running", "waiting"})
