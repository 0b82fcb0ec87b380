"""Why a job waits: one reason, and a step that would help."""

from typing import Any

from tests.service.conftest import Start

from cranny.model.cluster import Cluster
from cranny.service.why import Explanation, foresee, largest_startable, why_here, why_wait

SCATTER = {"name": "consolidate-idle"}


def why(running: Any, job_id: str) -> Explanation:
    service = running.service
    return why_wait(service.desk.find(job_id), service.stand(), service.now_s(), service.desk.engine.period_s)


def test_gpus_that_are_free_in_the_wrong_places(start: Start) -> None:
    running = start(policy={"name": "consolidate-idle"})
    for machine in range(4):
        others = [f"rack{m // 2}-machine{m % 2}" for m in range(4) if m != machine]
        running.submit(gpus=2, wishes={"exclude": others})
    told = why(running, running.submit(gpus=4))
    assert told.kind == "scattered"
    assert (
        told.evidence[1]
        == "8 GPUs free on 4 machines: most 2 on rack0-machine0, 2 on rack0-machine1, 2 on rack1-machine0"
    )
    assert largest_startable(running.service.stand(), running.service.now_s()) == 2


def test_a_wish_that_binds(start: Start) -> None:
    running = start()
    for machine in ("rack0-machine0", "rack1-machine0"):
        others = [f"rack{m // 2}-machine{m % 2}" for m in range(4)]
        others.remove(machine)
        running.submit(gpus=2, wishes={"exclude": others})
    told = why(running, running.submit(gpus=8, wishes={"same_rack": "required"}))
    assert told.kind == "wishes"
    assert told.reason == "must have all its 8 GPUs in one rack, 6 are free in the emptiest"
    assert "wishes.same_rack" in told.next_step


def test_a_period_that_is_not_over(start: Start) -> None:
    running = start(policy={"name": "titan", "period_s": 3600})
    told = why(running, running.submit())
    assert (told.kind, told.reason) == (
        "period",
        "starts when the policy decides next, which it does every 60 min",
    )


def test_a_deadline_in_danger(start: Start) -> None:
    running = start()
    running.submit(gpus=16, duration_s=7200)
    told = why(running, running.submit(duration_s=60, deadline_s=600))
    assert "its deadline is in 10 min and will be missed" in told.evidence


def test_starts_are_foreseen_in_the_order_of_the_queue(start: Start) -> None:
    running = start(Cluster.fat_tree(1, 1, 4))
    running.submit(gpus=4, duration_s=100)
    ids = [running.submit(gpus=4, duration_s=50), running.submit(gpus=2, duration_s=10), running.submit(gpus=2)]
    after = running.submit(gpus=4)
    stand = running.service.stand()
    begin = running.service.desk.find("job-1").attempts[0].placed_s
    starts = foresee(stand, stand.state.snapshot(running.service.now_s()))
    assert [round(starts[job_id] - begin) for job_id in ids] == [100, 150, 150]
    assert after not in starts  # the one before it does not say how long it takes


def test_a_job_that_failed_points_to_its_log(start: Start) -> None:
    running = start(real=True)
    job_id = running.submit(command=["false"])
    running.until(job_id, "failed")
    told = why_here(running.service.desk.find(job_id))
    assert told.reason == "it has failed: failed with exit code 1"
    assert told.next_step == f"read its log: cranny logs {job_id}"
