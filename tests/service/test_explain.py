"""Why a job waits: one reason, and a step that would help."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.service.conftest import Serve, Start

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.service.explain import (
    MAX_QUEUE,
    PLACED,
    Explanation,
    Suggestions,
    explain_placement,
    explain_wait,
    plain_job_ids,
    plain_times,
)
from cranny.service.metrics import largest_startable
from cranny.service.predict import KINDS, expected_end_s, predict_starts
from cranny.service.present import explain_running

IN_ORDER = {"name": "titan"}  # first come, first served, one job at a time


def why(running: Any, job_id: str) -> Explanation:
    service = running.service
    return explain_wait(
        service.scheduler.find(job_id), service.fork(), service.now_s(), service.scheduler.engine.period_s
    )


def test_gpus_that_are_free_in_the_wrong_places(start: Start) -> None:
    running = start(policy={"name": "consolidate-idle"})
    for machine in range(4):
        others = [f"rack{m // 2}-machine{m % 2}" for m in range(4) if m != machine]
        running.submit(gpus=2, constraints={"exclude": others})
    told = why(running, running.submit(gpus=4))
    assert told.kind == "scattered"
    assert (
        told.evidence[1]
        == "8 GPUs free on 4 machines, such as 2 on rack0-machine0, 2 on rack0-machine1, 2 on rack1-machine0"
    )
    assert told.next_step == "request 2 GPUs or fewer: it would start now"
    assert largest_startable(running.service.fork(), running.service.now_s()) == 2


def test_a_constraint_that_binds(start: Start) -> None:
    running = start()
    for machine in ("rack0-machine0", "rack1-machine0"):
        others = [f"rack{m // 2}-machine{m % 2}" for m in range(4)]
        others.remove(machine)
        running.submit(gpus=2, constraints={"exclude": others})
    told = why(running, running.submit(gpus=8, constraints={"same_rack": "required"}))
    assert told.kind == "constraints"
    lacks = "must have all its 8 GPUs in one rack; the emptiest has 6 free"
    assert re.fullmatch(f"{lacks}; is expected to start in .*, by estimates of how long .*", told.reason)
    assert told.next_step == "drop constraints.same_rack: it would start now"


def test_a_period_that_is_not_over(start: Start) -> None:
    running = start(policy={"name": "titan", "period_s": 3600})
    told = why(running, running.submit())
    assert (told.kind, told.reason) == (
        "period",
        "starts when the policy decides next; it decides every 60 min",
    )


def test_a_deadline_in_danger(start: Start) -> None:
    running = start()
    running.submit(gpus=16, duration_s=7200)
    told = why(running, running.submit(duration_s=60, deadline_s=600))
    assert "its deadline is in 10 min and will be missed" in told.evidence
    service, record = running.service, running.service.scheduler.find("job-2")
    late = explain_wait(record, service.fork(), service.now_s() + 3600, 0.0)
    assert "its deadline passed 50 min ago" in late.evidence


def test_starts_are_foreseen_in_the_order_of_the_queue(start: Start) -> None:
    running = start(Cluster.fat_tree(1, 1, 4), policy=IN_ORDER)
    running.submit(gpus=4, duration_s=100)
    ids = [running.submit(gpus=4, duration_s=50), running.submit(gpus=2, duration_s=10), running.submit(gpus=2)]
    after = running.submit(gpus=4)
    fork = running.service.fork()
    begin = running.service.scheduler.find("job-1").attempts[0].placed_s
    starts = predict_starts(fork, fork.state.snapshot(running.service.now_s()))
    assert [round(starts[job_id] - begin) for job_id in ids] == [100, 150, 150]
    assert after not in starts  # the one before it does not say how long it takes


TWO_TYPES = Cluster.of(Switch("top", (Machine("old", 8, "t4"), Machine("new", 8, "h200")), (100.0, 100.0)))


def foreseen(running: Any, *ids: str) -> list[int | None]:
    """Return in how many seconds jobs are expected to start, counted from the first placement."""
    fork = running.service.fork()
    begin = running.service.scheduler.find("job-1").attempts[0].placed_s
    starts = predict_starts(fork, fork.state.snapshot(running.service.now_s()))
    return [round(starts[job_id] - begin) if job_id in starts else None for job_id in ids]


def test_only_gpus_of_a_type_that_a_job_can_use_count(start: Start) -> None:
    running = start(TWO_TYPES, policy=IN_ORDER)
    old, new = {"gpu_type": "t4"}, {"gpu_type": "h200"}
    running.submit(gpus=8, duration_s=100, constraints=old)
    running.submit(gpus=8, duration_s=300, constraints=new)
    picky = running.submit(gpus=4, duration_s=50, constraints=new)
    assert foreseen(running, picky) == [300]  # not 100, when GPUs of the other type come back
    told = why(running, picky)
    assert told.reason == "needs 4 h200 GPUs, 0 free; job-2 ends in about 5 min and frees 8"
    assert told.predicted_start_s is not None
    # In the order of the queue, and what one takes, the next one of its type must do without.
    other, same, any_type = (running.submit(gpus=8, duration_s=10, constraints=each) for each in (old, new, {}))
    assert foreseen(running, other, same, any_type) == [300, 350, 350]


def test_advice_names_only_machines_whose_gpus_can_run_the_job(start: Start) -> None:
    running = start(TWO_TYPES)
    running.submit(gpus=8, constraints={"gpu_type": "h200"})
    drain(running, 0)
    record = running.service.scheduler.find(running.submit(gpus=16))
    fork, view = running.service.fork(), running.service.fork().state.snapshot()
    assert Suggestions(record, fork, view, 0).step("too-few-gpus").startswith("resume old")
    for field in ({"gpu_type": "h200"}, {"speeds": {"h200": 1.0}}):
        picky = replace(record, job=replace(record.job, **field))
        assert "resume" not in Suggestions(picky, fork, view, 0).step("too-few-gpus")


def test_excluded_machines_do_not_count(start: Start) -> None:
    running = start(policy=IN_ORDER)  # 4 machines of 4 GPUs
    names = [machine.name for machine in running.service.scheduler.cluster.machines]
    for number, duration_s in enumerate((100, 200, 300)):
        running.submit(
            gpus=4, duration_s=duration_s, constraints={"exclude": names[:number] + names[number + 1 :]}
        )
    running.submit(gpus=4, duration_s=400)
    waiting = running.submit(gpus=8, duration_s=50, constraints={"exclude": names[:2]})
    after = running.submit(gpus=4, duration_s=50, constraints={"exclude": names[2:]})
    assert foreseen(running, waiting, after) == [400, 400]
    never = running.submit(gpus=4, constraints={"exclude": names[1:]})
    drain(running, 0)
    assert foreseen(running, waiting, after, never) == [400, 400, None]


@pytest.mark.parametrize("constraint", [{"same_rack": "required"}, {"spread": 2}])
def test_no_start_is_predicted_where_constraints_cannot_be_met(start: Start, constraint: dict[str, Any]) -> None:
    running = start(policy={"name": "cranny"})
    service = running.service
    for machine in (1, 3) if "same_rack" in constraint else (0, 1):
        service.call(partial(service.scheduler.drain, machine, "root")).result(60)
    running.submit(gpus=8, duration_s=100)
    never, other = (running.submit(gpus=6, duration_s=50, constraints=each) for each in (constraint, {}))
    told = why(running, never)
    assert told.predicted_start_s is None
    assert "is promised" in why(running, other).reason
    assert not re.match(r".*; is promised", told.reason)  # another is


def test_a_question_about_a_job_counts_with_its_constraints(serve: Serve) -> None:
    site = serve()
    names = [machine.name for machine in site.running.service.scheduler.cluster.machines]
    for number, duration_s in enumerate((100, 300, 400, 400)):
        others = names[:number] + names[number + 1 :]
        site.running.submit(gpus=4, duration_s=duration_s, constraints={"exclude": others})
    with site.client() as client:
        told = client.post(
            "/api/v1/plan", json={"command": ["a"], "gpus": 4, "constraints": {"exclude": names[:1]}}
        )
    begin = site.running.service.scheduler.find("job-2").attempts[0].placed_s
    assert round(told.json()["explanation"]["predicted_start_s"] - begin) == 300


def test_only_so_many_kinds_of_jobs_are_foreseen(start: Start) -> None:
    cluster = Cluster.fat_tree(1, KINDS + 10, 1)
    names = [machine.name for machine in cluster.machines]
    running = start(cluster)
    running.submit(gpus=KINDS + 10, duration_s=100)
    ids = [running.submit(duration_s=10, constraints={"exclude": [name]}) for name in names]
    assert [start_s is not None for start_s in foreseen(running, *ids)] == [True] * (KINDS - 1) + [False] * 11


def test_the_end_of_a_running_job_is_foreseen_where_it_can_be(start: Start) -> None:
    running = start()
    asked: list[dict[str, Any]] = [
        {"duration_s": 100},
        {"time_limit_s": 50},
        {"duration_s": 100, "time_limit_s": 50},
        {},
    ]
    ids = [running.submit(gpus=4, **more) for more in asked]
    waiting = running.submit(gpus=4, time_limit_s=70)
    after = running.submit(gpus=4)
    for job_id in ids:
        running.until(job_id, "running")
    service = running.service
    fork = service.fork()
    view = fork.state.snapshot(service.now_s())
    records = [service.scheduler.find(job_id) for job_id in ids]
    begin = [(record.attempts[0].placed_s, record.attempts[0].started_s) for record in records]
    assert [expected_end_s(record, view) for record in records] == [
        begin[0][0] + 100,
        (begin[1][1] or 0) + 50,
        (begin[2][1] or 0) + 50,
        None,
    ]
    assert expected_end_s(service.scheduler.find(waiting), view) is None
    starts = predict_starts(fork, view)
    assert starts[waiting] == expected_end_s(records[1], view)
    assert starts[after] == expected_end_s(records[2], view)
    told = why(running, waiting)
    assert told.evidence[2] == "job-2 ends in about 50 s and frees 4"
    service.call(lambda now_s: service.scheduler.cancel(ids[0], "ann", now_s)).result(60)
    assert expected_end_s(records[0], view) is None


def test_one_of_something_is_not_called_many(start: Start) -> None:
    running = start(Cluster.fat_tree(1, 1, 1))
    running.submit(gpus=1)
    told = why(running, running.submit(gpus=1))
    assert told.reason.startswith("needs 1 GPU, 0 free; is expected to start in ")
    assert told.evidence == ["no other job waits", "no GPU is free", "the ends of the running jobs are unknown"]
    assert running.service.scheduler.cluster.describe() == "1 rack, 1 machine x 1 GPU, 1 GPU"
    placed = explain_placement(running.service.scheduler.find("job-1"))
    assert placed.reason.startswith("1 worker on 1 machine")  # not "job job-1: ..."


def test_a_job_that_failed_points_to_its_log(start: Start) -> None:
    running = start(real=True)
    job_id = running.submit(command=["false"])
    running.until(job_id, "failed")
    told = explain_placement(running.service.scheduler.find(job_id))
    assert told.reason == "it has failed with exit code 1"
    assert told.next_step == f"read its log: cranny logs {job_id}"


def drain(running: Any, *machines: int) -> None:
    for machine in machines:
        running.service.call(partial(running.service.scheduler.drain, machine, "root")).result(60)


def test_gpus_of_drained_machines_do_not_come_back(start: Start) -> None:
    running = start(Cluster.fat_tree(1, 2, 4))
    running.submit(gpus=4, duration_s=100)  # on the first machine
    drain(running, 0)
    waiting = running.submit(gpus=8)
    told = why(running, waiting)
    assert told.predicted_start_s is None
    assert all("ends in about" not in line for line in told.evidence)
    assert told.next_step == (
        "resume rack0-machine0, which is drained: cranny resume rack0-machine0; the others have 4 GPUs"
    )


def test_machines_are_resumed_only_where_that_helps(start: Start) -> None:
    running = start(policy=IN_ORDER)  # 2 racks of 2 machines with 4 GPUs each
    drain(running, 2, 3)
    running.submit(gpus=8, duration_s=100)
    assert why(running, running.submit(gpus=6)).next_step == (
        "resume rack1-machine0 and rack1-machine1, which are drained: cranny resume rack1-machine0, and so on"
    )
    assert why(running, running.submit(gpus=2)).next_step == (
        "wait until job-2, which is first in the queue, has started"  # it would take the machines
    )


def test_fewer_gpus_are_advised_only_where_they_would_start(start: Start) -> None:
    running = start(Cluster.fat_tree(1, 1, 8), policy=IN_ORDER)
    running.submit(gpus=6, duration_s=100)
    first, third = running.submit(gpus=8, duration_s=50), running.submit(gpus=4, duration_s=500)
    assert why(running, first).next_step == "request 2 GPUs or fewer: it would start now"
    assert why(running, third).next_step == "wait until job-2, which is first in the queue, has started"
    after = running.submit(gpus=2, duration_s=10)
    told = why(running, after)
    assert told.kind == "behind-others"
    assert told.next_step == (
        "submit it with a priority above 0, if you may, "
        "or enable backfill: cranny policy set titan --order backfill"
    )
    assert told.evidence[0] == "number 3 of 3 waiting jobs"
    ends_late = running.submit(gpus=2, duration_s=5000)  # would delay the first: backfilling does not help it
    assert why(running, ends_late).next_step == "submit it with a priority above 0, if you may"


def test_a_command_that_is_advised_keeps_the_policy_as_it_is(start: Start) -> None:
    running = start(Cluster.fat_tree(1, 1, 8), policy={"name": "best-fit", "period_s": 30})
    running.submit(gpus=6, duration_s=1000)
    running.service.call(running.service.scheduler.tick).result(60)
    running.submit(gpus=8)
    job_id = running.submit(gpus=2, duration_s=10)
    assert "cranny policy set best-fit --order backfill --period 30" in why(running, job_id).next_step


def test_an_end_that_is_overdue_is_called_so(start: Start) -> None:
    running = start(Cluster.fat_tree(1, 1, 4))
    running.submit(gpus=4, duration_s=10)
    service, record = running.service, running.service.scheduler.find(running.submit(gpus=4))
    told = explain_wait(record, service.fork(), service.now_s() + 610, 0.0)
    assert told.evidence[2] == "job-1 was expected to end 10 min ago and frees 4"


def test_jobs_are_named_as_everywhere_else(start: Start) -> None:
    assert plain_job_ids("behind job 'job-2', which came first") == "behind job-2, which came first"
    running = start(Cluster.fat_tree(1, 1, 4), policy={"name": "has"})
    for gpus in (2, 4, 1):
        last = running.submit(gpus=gpus, model="resnet50", duration_s=1000)
    told = why(running, last)
    assert (told.kind, told.reason) == ("behind-others", "behind job-2, which was submitted first")
    assert told.evidence[1] == "2 GPUs free on rack0-machine0"


def test_advice_for_a_long_queue_is_quick_and_not_made_up(start: Start) -> None:
    running = start(Cluster.fat_tree(1, 1, 8), policy={"name": "titan", "period_s": 86_400})
    service = running.service
    asked = [service.submit("ann", {"command": ["true"], "gpus": 8}) for _ in range(MAX_QUEUE + 1)]
    for future in asked:
        future.result(60)
    drain(running, 0)
    told = why(running, "job-2")
    assert told.next_step.startswith("resume rack0-machine0")
    assert why(running, "job-1").kind == "too-few-gpus"


def test_the_policy_cranny_says_what_its_placements_cost_and_what_waiting_jobs_were_promised(start: Start) -> None:
    running = start()
    first = running.submit(gpus=10, duration_s=600.0)
    placed = explain_placement(running.service.scheduler.find(first))
    assert any(line.startswith(f"{PLACED}price: ") for line in placed.evidence)
    assert placed.facts["price"]["idle_machines_opened"] == 3
    told = why(running, running.submit(gpus=8, duration_s=6000.0))
    assert told.kind == "too-few-gpus"
    assert re.fullmatch(r"needs 8 GPUs, 6 free; is promised a start in \d+ min at the latest", told.reason)
    assert told.predicted_start_s == pytest.approx(end_of(running, first))


def end_of(running: Any, job_id: str) -> float:
    service = running.service
    end_s = expected_end_s(
        service.scheduler.find(job_id), service.scheduler.engine.state.snapshot(service.now_s())
    )
    assert end_s is not None
    return end_s


def test_a_start_that_hangs_on_unknown_durations_is_called_an_estimate(start: Start) -> None:
    running = start()
    first = running.submit(gpus=10)
    assert "as estimated" in running.service.scheduler.find(first).attempts[0].why
    told = why(running, running.submit(gpus=8, duration_s=60))
    by = "by estimates of how long running jobs still take"
    assert re.fullmatch(f"needs 8 GPUs, 6 free; is expected to start in .* min, {by}", told.reason)
    assert told.predicted_start_s is None


def test_a_job_that_runs_longer_than_it_said_makes_the_next_start_an_estimate(
    start: Start, turned_clock: list[float]
) -> None:
    turned_clock[0] = 1_000.0
    running = start(Cluster.fat_tree(1, 1, 4), clock=lambda: turned_clock[0])
    running.submit(gpus=4, duration_s=600)
    waits = running.submit(gpus=4, duration_s=600)
    assert why(running, waits).reason == "needs 4 GPUs, 0 free; is promised a start in 10 min at the latest"
    turned_clock[0] = 1_900.0
    late = "needs 4 GPUs, 0 free; should have started 5 min ago, but running jobs take longer than expected"
    assert why(running, waits).reason == late
    running.service.call(running.service.scheduler.tick).result(60)
    assert "is expected to start in 5 min, by estimates" in why(running, waits).reason


def test_a_higher_priority_is_not_advised_where_another_job_was_promised_a_start(start: Start) -> None:
    running = start()
    running.submit(gpus=12, duration_s=1_000)
    first = running.submit(gpus=16, duration_s=100)
    told = why(running, running.submit(gpus=2, duration_s=5_000))
    assert told.kind == "behind-others"
    assert re.fullmatch(f"behind {first}, which is promised a start in .*; it might delay that", told.reason)
    assert told.next_step == f"wait until {first}, which is first in the queue, has started"
    urgent = why(running, running.submit(gpus=2, duration_s=5_000, priority=5))  # it would have been wrong
    assert urgent.next_step == "wait until the job that it might delay has started"
    assert urgent.predicted_start_s is None  # and not now, although enough GPUs are free


def test_a_job_that_waits_for_one_rack_says_which_and_what_that_saves(start: Start) -> None:
    running = start(Cluster.fat_tree(2, 2, 4, oversubscription=16))
    names = [machine.name for machine in running.service.scheduler.cluster.machines]
    for number, duration_s in enumerate((90_000, 90_000, 900, 90_000)):
        others = names[:number] + names[number + 1 :]
        running.submit(gpus=2, duration_s=duration_s, constraints={"exclude": others})
    told = why(running, running.submit(gpus=6, model="vgg16", duration_s=40_000))
    where = "rack1-machine0, rack1-machine1, with room expected in 15 min"
    assert re.fullmatch(rf"waits for {where}: in one rack it takes [\d.]+ h less", told.reason)
    assert told.predicted_start_s == pytest.approx(end_of(running, "job-3"))


def test_a_question_about_a_job_tells_what_it_would_be_promised(serve: Serve) -> None:
    site = serve()
    site.running.submit(gpus=12, duration_s=1_000)
    with site.client() as client:
        told = client.post("/api/v1/plan", json={"command": ["a"], "gpus": 8, "duration_s": 60}).json()
    assert re.fullmatch(
        r"needs 8 GPUs, 4 free; is promised a start in \d+ min at the latest", told["explanation"]["reason"]
    )


def test_who_is_stopped_and_who_runs_instead_are_told_so(start: Start, turned_clock: list[float]) -> None:
    turned_clock[0] = 1_000.0
    running = start(Cluster.fat_tree(1, 1, 4), clock=lambda: turned_clock[0])
    long = running.submit(gpus=4, duration_s=50_000, movable=True)
    turned_clock[0] = 2_000.0
    short = running.submit(gpus=4, duration_s=60)
    told = why(running, long)
    assert told.reason == (
        "needs 4 GPUs, 0 free; was stopped for another job, and is promised a start in 55.5 h at the latest"
    )
    assert told.predicted_start_s == pytest.approx(2_060.0)
    placed = explain_placement(running.service.scheduler.find(short))
    assert placed.evidence[-1] == f"{PLACED}in place of {long}, which goes on later"
    assert not any("None" in line for line in placed.evidence)


def test_times_of_policies_are_told_as_durations() -> None:
    assert (
        plain_times("a start at 1,700,000,300 s at the latest", 1_700_000_000.0)
        == "a start in 5 min at the latest"
    )
    assert plain_times("should have started at 900 s", 1000.0) == "should have started 2 min ago"
    waits = "waits for a, with room expected at 1,090 s: on one machine it takes 7,200 s less"
    assert (
        plain_times(waits, 1000.0)
        == "waits for a, with room expected in 2 min: on one machine it takes 2.0 h less"
    )


def test_processes_that_are_left_of_a_job_are_named(start: Start) -> None:
    """By `cranny explain` and on its page."""
    running = start()
    job = running.submit()
    record = running.service.scheduler.find(job)
    view = running.service.scheduler.engine.state.snapshot(running.service.now_s())
    assert not running.service.reports.left
    told = explain_running(record, view, ["process 4711 (sleep 600)"])
    assert told.reason == "processes of it are left"
    assert told.evidence[0] == "its GPUs stay held until they have ended: process 4711 (sleep 600)"
