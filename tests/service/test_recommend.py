"""Recommending only: the service notes what it would do and what that would have saved, and starts nothing."""

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.service.conftest import CLUSTER, Serve, Start

from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies.best_fit import BestFit
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler

JOB: dict[str, Any] = {"command": ["true"], "gpus": 4, "duration_s": 60}


def test_it_recommends_and_counts_what_was_lost(serve: Serve) -> None:
    site = serve(recommend=True)
    with site.client("root") as root:
        spec = {"command": ["true"], "gpus": 4, "model": "vgg16"}
        job = root.post("/api/v1/jobs", json=spec).json()
        assert job["status"] == "waiting"
        told = root.get("/api/v1/recommendations").json()
        assert told["recommendations"][0]["placement"]["names"] == ["rack0-machine0"] * 4
        assert "1 machine" in told["recommendations"][0]["text"]
        # Another scheduler spreads it over two racks.
        where = ["rack0-machine0", "rack0-machine0", "rack1-machine0", "rack1-machine0"]
        seen = root.post("/api/v1/jobs/job-1/observed", json={"machines": where}).json()
        assert (seen["status"], seen["machines"]) == ("running", ["rack0-machine0", "rack1-machine0"])
        saved = root.get("/api/v1/recommendations").json()["saved"]
        assert (saved["jobs"], saved["machines"], saved["idle_machines"]) == (1, 1, 1)
        assert saved["cross_bytes"] > 0
        assert saved["wait_s"] >= 0
        root.post("/api/v1/jobs", json={**spec, "gpus": 13})
        assert len(root.get("/api/v1/recommendations").json()["recommendations"]) == 1
        assert root.post("/api/v1/jobs/job-1/cancel").status_code == 409
        ended = root.post("/api/v1/jobs/job-1/observed", json={"ended": True}).json()
        assert (ended["status"], ended["started_s"]) == ("done", seen["started_s"])
        assert ended["submitted_s"] <= ended["started_s"] <= ended["ended_s"]
        assert len(root.get("/api/v1/recommendations").json()["recommendations"]) == 2
        assert root.post("/api/v1/jobs/job-2/observed", json={"machines": ["nowhere"]}).status_code == 404
        assert root.post("/api/v1/jobs/job-2/observed", json={"machines": [0]}).status_code == 422
        assert root.post("/api/v1/jobs/job-2/observed", json={"machines": [0] * 13}).status_code == 409
    assert site.running.processes.by_attempt == {}


def test_what_others_run_is_shown_with_its_ranks_and_its_start(serve: Serve) -> None:
    site = serve(recommend=True)
    with site.client("root") as root:
        root.post("/api/v1/jobs", json=JOB)
        before = root.get("/api/v1/jobs/job-1").json()
        assert (before["reason_kind"], before["machines"], before["started_s"]) == ("recommended", [], None)
        assert before["reason"] == ("has a recommended placement, and is not started yet: 4 on rack0-machine0")
        why = root.get("/api/v1/jobs/job-1/explain").json()
        assert (why["kind"], why["reason"]) == ("recommended", before["reason"])
        assert why["next_step"] == "start it as recommended, and report that to the service"
        root.post("/api/v1/jobs/job-1/observed", json={"machines": ["rack1-machine0"] * 4})
        seen = root.get("/api/v1/jobs/job-1").json()
        assert seen["placement"]["names"] == ["rack1-machine0"] * 4
        assert seen["expected_end_s"] == seen["started_s"] + 60
        why = root.get("/api/v1/jobs/job-1/explain").json()
        assert (why["kind"], why["reason"]) == ("placed", "run by another scheduler, with 4 ranks on 1 machine")


def test_jobs_behind_those_with_a_place_and_cancelled_ones_are_told_apart(serve: Serve) -> None:
    site = serve(recommend=True)  # 4 machines of 4 GPUs
    with site.client("root") as root:
        for gpus in (12, 8, 4):
            root.post("/api/v1/jobs", json={**JOB, "gpus": gpus})
        lines = {each["id"]: each for each in root.get("/api/v1/jobs").json()["jobs"]}
        assert [lines[f"job-{number}"]["reason_kind"] for number in (1, 2, 3)] == [
            "recommended",
            "behind-others",
            "recommended",
        ]
        meant = "the free GPUs are recommended for others, such as job-1"
        assert lines["job-2"]["reason"] == meant
        assert root.get("/api/v1/jobs/job-2/explain").json()["reason"] == meant
        assert 'cranny_pending_jobs{reason="recommended"} 2.0' in root.get("/metrics").text
        root.post("/api/v1/jobs/job-1/cancel")
        told = root.get("/api/v1/recommendations").json()["recommendations"]
        assert {each["job"] for each in told} == {"job-2", "job-3"}


def test_a_log_of_recommendations_is_not_for_running(start: Start) -> None:
    start(recommend=True).service.close()
    with pytest.raises(CrannyError, match="in 'recommend' mode"):
        start()


def scheduler_of(cluster: Cluster = CLUSTER, **policy: Any) -> Scheduler:
    """Return a scheduler that only recommends."""
    scheduler = Scheduler(cluster, "recommend", Limits())
    scheduler.open(0.0)
    scheduler.set_policy({"name": "best-fit", **policy}, "root", 0.0)
    return scheduler


def told(scheduler: Scheduler) -> dict[str, list[int]]:
    """Return where each job should go, as last recommended."""
    return {job: each["placement"]["machines"] for job, each in scheduler.records.recommended.items()}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often the policy looks for a place."""
    right, count = BestFit.place, Counter[str]()

    def counting(self: BestFit, job: Job, view: Snapshot) -> Placement | None:
        count["places"] += 1
        return right(self, job, view)

    monkeypatch.setattr(BestFit, "place", counting)
    return count


@pytest.mark.parametrize("order", ["fifo", "sjf", "backfill"])
def test_a_job_that_comes_is_decided_once_however_many_wait(asked: Counter[str], order: str) -> None:
    scheduler = scheduler_of(Cluster.fat_tree(4, 8, 8), order=order)  # 64 jobs of 4 GPUs fit
    for number in range(200):
        scheduler.submit("ann", {**JOB, "duration_s": 60 + number}, None, float(number))
    assert len(told(scheduler)) == 64
    first = asked["places"]
    assert first < 2 * 200
    # Where jobs are started as recommended, and end, nothing of it is decided again either.
    for number in range(1, 65):
        scheduler.observe(f"job-{number}", {"machines": told(scheduler)[f"job-{number}"]}, 300.0)
    assert asked["places"] == first
    for number in range(1, 33):
        scheduler.observe(f"job-{number}", {"ended": True}, 400.0)
    assert len(told(scheduler)) == 64 + 32
    assert asked["places"] < first + 3 * 32


sizes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 90), st.integers(0, 1)), max_size=25)


@settings(max_examples=examples(40))
@given(sizes, st.sampled_from(["fifo", "sjf", "backfill"]))
def test_what_is_not_decided_again_comes_out_the_same(jobs: list[tuple[int, int, int]], order: str) -> None:
    quick, slow = scheduler_of(order=order), scheduler_of(order=order)
    for gpus, duration_s, priority in jobs:
        job = {**JOB, "gpus": gpus, "duration_s": duration_s, "priority": priority}
        quick.submit("ann", job, None, 1.0)
        slow.submit("ann", job, None, 1.0)
        slow.tick(1.0)
    assert told(quick) == told(slow)


def test_all_is_decided_anew_when_the_cluster_does_otherwise() -> None:
    scheduler = scheduler_of()  # 2 racks of 2 machines with 4 GPUs each
    for number in range(5):
        scheduler.submit("ann", JOB, None, float(number))
    assert told(scheduler) == {f"job-{number + 1}": [number] * 4 for number in range(4)}
    scheduler.observe("job-1", {"machines": [1] * 4}, 10.0)  # where job-2 should go
    assert told(scheduler)["job-2"] == [0] * 4
    scheduler.drain(3, "root", 11.0)
    assert set(told(scheduler)) == {"job-1", "job-2", "job-3"}  # what was recommended to job-4 is withdrawn
    scheduler.observe("job-1", {"ended": True}, 12.0)
    scheduler.cancel("job-2", "ann", 13.0)
    scheduler.submit("ann", {**JOB, "gpus": 8, "priority": 5}, None, 14.0)  # passes those that were recommended
    assert sorted(set(told(scheduler)["job-6"])) == [0, 1]


courses = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.tuples(st.integers(1, 9), st.integers(1, 90), st.integers(0, 1))),
        st.tuples(st.just("submit"), st.tuples(st.integers(1, 9), st.integers(1, 90), st.integers(0, 1))),
        st.tuples(st.just("start"), st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 1))),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("drain"), st.integers(0, 3)),
    ),
    max_size=25,
)


def happen(scheduler: Scheduler, what: str, value: Any, now_s: float) -> None:
    """Let something happen, if it can."""
    jobs = scheduler.records.jobs.values()
    wanted = {"start": "waiting", "cancel": "waiting", "end": "running"}.get(what)
    there = [record for record in jobs if record.status == wanted]
    if what == "submit":
        gpus, duration_s, priority = value
        scheduler.submit("ann", {**JOB, "gpus": gpus, "duration_s": duration_s, "priority": priority}, None, now_s)
    elif what == "drain":
        scheduler.drain(value, "root", now_s)
    elif there and what == "start":
        record = there[value[0] % len(there)]
        at = (
            scheduler.records.recommended[record.id]["placement"]["machines"]
            if record.id in told(scheduler)
            else []
        )
        where = at if value[2] and at else [value[1]] * record.job.gpus  # as recommended, or elsewhere
        with suppress(CrannyError):  # where it has no room
            scheduler.observe(record.id, {"machines": where}, now_s)
    elif there and what == "end":
        scheduler.observe(there[value % len(there)].id, {"ended": True}, now_s)
    elif there:
        scheduler.cancel(there[value % len(there)].id, "ann", now_s)


@settings(max_examples=examples(40))
@given(courses, st.sampled_from(["best-fit", "cranny"]))
def test_recommendations_of_waiting_jobs_can_be_followed_together(
    course: list[tuple[str, Any]], name: str
) -> None:
    scheduler = scheduler_of(name=name)
    for number, (what, value) in enumerate(course):
        happen(scheduler, what, value, 10.0 * number)
        left = Counter(dict(enumerate(scheduler.engine.state.snapshot().free.tolist())))
        for job_id in scheduler.records.reserved:
            assert scheduler.find(job_id).status == "waiting"
            left.subtract(told(scheduler)[job_id])
        assert min(left.values()) >= 0


def test_a_policy_with_a_period_recommends_when_it_is_due(asked: Counter[str]) -> None:
    scheduler = scheduler_of(period_s=60)
    scheduler.submit("ann", JOB, None, 1.0)
    assert told(scheduler) == {}
    scheduler.tick(60.0)
    assert told(scheduler) == {"job-1": [0] * 4}
    assert asked["places"] > 0


@pytest.mark.parametrize("name", ["themis", "tiresias", "netpack"])
def test_policies_that_stop_move_or_batch_recommend_too(name: str) -> None:
    scheduler = scheduler_of()
    scheduler.set_policy({"name": name, "period_s": 0}, "root", 0.0)
    for number in range(6):
        scheduler.submit("ann", {**JOB, "model": "vgg16"}, None, 10_000.0 * number)
        scheduler.tick(10_000.0 * number + 1)
    assert len(told(scheduler)) >= 4
