"""Real processes on a logical cluster of 4 machines with 8 GPUs each."""

from pathlib import Path

from tests.backends.local_harness import zombies
from tests.service.conftest import Start, until
from tests.service.reports import left_over, lines, reporting

from cranny.model.cluster import Cluster

JOBS = 200


def kind_of(number: int) -> str:
    return {3: "fails", 5: "fails once more", 7: "is cancelled"}.get(number % 10, "ends well")


def test_200_jobs_end_in_the_right_state_and_no_gpu_is_used_twice(start: Start, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    before = zombies()  # supervisors of jobs that other tests have left running
    running = start(Cluster.fat_tree(2, 2, 8), real=True)
    service = running.service
    asked = []
    for number in range(JOBS):
        kind = kind_of(number)
        sleep_s = 60.0 if kind == "is cancelled" else 0.02
        retries = 1 if kind == "fails once more" else 0
        gpus = 12 if number % 50 == 1 else 1 + number % 3
        spec = reporting(reports, gpus, sleep_s, 3 * kind.startswith("fails"), max_retries=retries)
        asked.append(service.submit("ann", spec))
    ids = [future.result(60)[0].id for future in asked]
    for number, job_id in enumerate(ids):
        if kind_of(number) == "is cancelled":
            service.call(lambda now_s, it=job_id: service.scheduler.cancel(it, "ann", now_s)).result(60)  # type: ignore[misc]
    until(lambda: all(record.over for record in service.scheduler.records.jobs.values()), 120)

    wanted = {"fails": "failed", "fails once more": "failed", "is cancelled": "cancelled", "ends well": "done"}
    for number, job_id in enumerate(ids):
        record = service.scheduler.find(job_id)
        assert record.status == wanted[kind_of(number)], f"{job_id}: {record.reason}"
        if kind_of(number) == "fails once more":
            assert len(record.attempts) == 2
    assert sorted(lines(reports / "finished")) == sorted(
        job_id for number, job_id in enumerate(ids) if kind_of(number) == "ends well"
    )
    assert lines(reports / "conflicts") == []
    service.close()
    assert left_over(reports) == []
    assert zombies() - before == set()
    assert service.scheduler.engine.state.held_gpus == 0


def test_a_job_that_cannot_start_fails_with_the_reason(start: Start) -> None:
    running = start(real=True)
    job_id = running.submit(command=["no-such-command-anywhere"])
    running.until(job_id, "failed")
    assert running.service.scheduler.find(job_id).reason == "there is no command 'no-such-command-anywhere'"


def test_a_job_over_its_time_limit_fails(start: Start) -> None:
    running = start(real=True)
    job_id = running.submit(command=["sleep", "60"], time_limit_s=0.2, max_retries=3)
    running.until(job_id, "failed")
    record = running.service.scheduler.find(job_id)
    assert record.reason.startswith("timed out")
    assert len(record.attempts) == 1
