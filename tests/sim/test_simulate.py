"""The simulator from end to end, on clusters small enough to check by hand."""

import dataclasses
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import cranny
from cranny.analysis.explain import explain
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError
from cranny.model.event import Event, MachineDrained, MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile
from cranny.policies import TABLE
from cranny.policies.best_fit import BestFit
from cranny.run import Result, compare, simulate
from cranny.scenario import Scenario
from cranny.traces.generate import generate_trace
from cranny.traces.trace import Trace

# What the front door promises.
SUMMARY = {
    "mean_used_machines",
    "time_mean_used_machines",
    "mean_fragmentation",
    "mean_jct_s",
    "p99_jct_s",
    "mean_wait_s",
    "machine_hours",
    "mean_cross_traffic_gb",
    "mean_profit_rate",
    "makespan_s",
    "jobs_done",
}
ONE = Cluster.single_rack(1, 4)
TWO = Cluster.single_rack(2, 4)
# 10 Gbit of gradients take 0.1 s over 100 Gbps; an iteration takes 1 s.
ROUND = ModelProfile("round", grad_bytes=1.25e9, iteration_ms=1000.0)


def job(name: str, gpus: int, submit_s: float, duration_s: float, collective: str = "ring") -> Job:
    return Job(id=name, gpus=gpus, model=ROUND, collective=collective, submit_s=submit_s, duration_s=duration_s)


def spans(result: Result) -> dict[str, tuple[float, float]]:
    """Return start and finish of each job that is done."""
    done = result.jobs.filter(pl.col("status") == "done")
    return {row["job_id"]: (row["start_s"], row["finish_s"]) for row in done.iter_rows(named=True)}


def statuses(result: Result) -> dict[str, tuple[str, str | None]]:
    return {row["job_id"]: (row["status"], row["reason"]) for row in result.jobs.iter_rows(named=True)}


# -- measures -------------------------------------------------------------------------------------------------


@pytest.fixture
def three_jobs() -> Result:
    """Three jobs on two machines of four GPUs.

    a holds 3 GPUs of machine 0 from 0 to 3600 s, b 3 GPUs of machine 1 from 1800 to 5400 s. c wants 5 GPUs at
    2700 s and waits until a ends; its server and three workers sit on machine 0, one worker on machine 1, which
    pushes and pulls a gradient in each iteration: 1.2 s instead of 1 s, so 1800 s become 2160 s.
    """
    jobs = [job("a", 3, 0, 3600), job("b", 3, 1800, 3600), job("c", 5, 2700, 1800, "parameter-server")]
    return simulate(TWO, jobs, "best-fit")


def test_jobs_start_and_finish_as_worked_out_by_hand(three_jobs: Result) -> None:
    assert spans(three_jobs) == {
        "a": (0.0, 3600.0),
        "b": (1800.0, 5400.0),
        "c": (3600.0, pytest.approx(5760.0)),
    }
    row = three_jobs.jobs.filter(pl.col("job_id") == "c").row(0, named=True)
    assert row["wait_s"] == 900.0
    assert row["jct_s"] == pytest.approx(3060.0)
    assert row["slowdown"] == pytest.approx(1.2)
    assert row["machines"] == 2
    assert row["cross_traffic_gb"] == pytest.approx(2.5)


def test_the_timeline_has_a_row_for_each_arrival(three_jobs: Result) -> None:
    columns = three_jobs.timeline.to_dict(as_series=False)
    assert columns["time_s"] == [0.0, 1800.0, 2700.0]
    assert columns["used_machines"] == [1, 2, 2]
    assert columns["fragmentation"] == pytest.approx([0.25, 0.25, 0.25])
    assert columns["cross_traffic_gb"] == [0.0, 0.0, 0.0]
    # Jobs pay 3 for an hour, and there is one a machine: 3 an hour and machine.
    assert columns["profit_rate"] == pytest.approx([3.0, 3.0, 3.0])
    assert columns["total_profit"] == pytest.approx([3.0, 6.0, 9.0])
    assert columns["machine_hours"] == pytest.approx([0.0, 0.5, 1.0])
    assert columns["held_gpus"] == [3, 6, 6]
    assert columns["running_jobs"] == [1, 2, 2]
    assert columns["waiting_jobs"] == [0, 0, 1]


def test_the_summary_is_as_worked_out_by_hand(three_jobs: Result) -> None:
    expected = {
        "jobs_done": 3,
        "jobs_skipped": 0,
        "jobs_unfinished": 0,
        "mean_used_machines": 5 / 3,  # at arrivals: 1, 2, 2
        "time_mean_used_machines": (1 * 1800 + 2 * 3960) / 5760,
        "mean_fragmentation": 0.25,
        "time_mean_fragmentation": (0.25 * 3600 + 0.0 * 1800 + 0.375 * 360) / 5760,
        "mean_cross_traffic_gb": 0.0,
        "time_mean_cross_traffic_gb": 2.5 * 2160 / 5760,
        "gpu_utilisation": (3 * 1800 + 6 * 1800 + 8 * 1800 + 5 * 360) / (8 * 5760),
        "mean_jct_s": (3600 + 3600 + 3060) / 3,
        "p50_jct_s": 3600.0,
        "p99_jct_s": 3600.0,
        "mean_wait_s": 300.0,
        "p99_wait_s": 882.0,
        "machine_hours": 2.7,
        "gpu_hours_delivered": 8.5,
        "cost_per_gpu_hour": 2.7 * 4 / 8.5,
        "mean_profit_rate": 3.0,
        "total_profit": 9.0,
        "makespan_s": 5760.0,
        "mean_comm_slowdown": 3.2 / 3,
        "restarts": 0,
        "moves": 0,
    }
    assert dict(three_jobs.summary) == pytest.approx(expected)


def test_the_summary_has_what_the_front_door_lists(three_jobs: Result) -> None:
    assert set(three_jobs.summary) >= SUMMARY


def test_runs_say_who_held_which_gpu_and_when(three_jobs: Result) -> None:
    rows = sorted(three_jobs.runs.rows())
    assert [(name, start_s, machine, f"{gpus:04b}") for name, start_s, _, machine, gpus in rows] == [
        ("a", 0.0, 0, "0111"),
        ("b", 1800.0, 1, "0111"),
        ("c", 3600.0, 0, "1111"),
        ("c", 3600.0, 1, "1000"),
    ]
    assert [end_s for _, _, end_s, _, _ in rows] == pytest.approx([3600.0, 5400.0, 5760.0, 5760.0])


def test_a_higher_price_raises_profit_in_step() -> None:
    jobs = [job("a", 3, 0, 3600), job("b", 2, 10, 600)]
    once, thrice = (simulate(TWO, jobs, "best-fit", price_per_gpu_hour=price) for price in (1.0, 3.0))
    assert thrice.summary["mean_profit_rate"] == pytest.approx(3 * once.summary["mean_profit_rate"])
    assert thrice.summary["cost_per_gpu_hour"] == pytest.approx(3 * once.summary["cost_per_gpu_hour"])


def test_jobs_of_no_duration_do_no_harm() -> None:
    result = simulate(TWO, [job("a", 4, 0, 0), job("b", 8, 0, 0), job("c", 8, 5, 0)], "titan")
    assert spans(result) == {"a": (0.0, 0.0), "b": (0.0, 0.0), "c": (5.0, 5.0)}
    assert result.summary["machine_hours"] == 0.0


# -- queue orders ---------------------------------------------------------------------------------------------


def started(order: str, jobs: Sequence[Job], cluster: Cluster = ONE) -> dict[str, float]:
    found = spans(simulate(cluster, jobs, "best-fit", order=order))
    return {name: start_s for name, (start_s, _) in found.items()}


def test_first_come_first_served() -> None:
    jobs = [job("a", 4, 0, 100), job("long", 4, 1, 1000), job("short", 4, 2, 10), job("tiny", 1, 3, 1)]
    assert started("fifo", jobs) == {"a": 0.0, "long": 100.0, "short": 1100.0, "tiny": 1110.0}


def test_shortest_job_first() -> None:
    jobs = [job("a", 4, 0, 100), job("long", 4, 1, 1000), job("short", 4, 2, 10)]
    assert started("sjf", jobs) == {"a": 0.0, "short": 100.0, "long": 110.0}


def test_backfill_passes_only_where_it_delays_no_job() -> None:
    jobs = [job("a", 3, 0, 100), job("b", 4, 1, 50), job("short", 1, 2, 50), job("long", 1, 3, 500)]
    assert started("backfill", jobs) == {"a": 0.0, "short": 2.0, "b": 100.0, "long": 150.0}
    assert started("fifo", jobs) == {"a": 0.0, "b": 100.0, "short": 150.0, "long": 150.0}


def test_least_attained_service_stops_a_job_that_had_much() -> None:
    # After 900 s on 4 GPUs a has had 3600 GPU-seconds and falls to the next level.
    result = simulate(ONE, [job("a", 4, 0, 10_000), job("b", 4, 1000, 100)], "best-fit", order="las")
    assert spans(result) == {"a": (0.0, 10_100.0), "b": (1000.0, 1100.0)}
    assert dict(result.jobs.select("job_id", "restarts").iter_rows()) == {"a": 1, "b": 0}
    stretches = [(s, e) for name, s, e, _, _ in result.runs.rows() if name == "a"]
    assert sorted(stretches) == [(0.0, 1000.0), (1100.0, 10_100.0)]


@pytest.mark.parametrize("name", TABLE)
def test_one_policy_object_serves_several_runs_alike(name: str) -> None:
    if name == "exact":
        pytest.importorskip("ortools", reason="the solver comes with the extra `exact`")
    made = cranny.policy(name)
    jobs = [
        replace(job(f"job-{number}", 3, 50 * number, 400 + 100 * number), least_gpus=1, most_gpus=8)
        for number in range(7)
    ]
    first, again = (simulate(Cluster.fat_tree(2, 2, 4), jobs, made) for _ in range(2))
    assert spans(first) == spans(again)


def test_a_policy_runs_in_the_order_of_its_paper_unless_told_otherwise() -> None:
    assert simulate(ONE, [job("a", 1, 0, 1)], "tiresias").settings["order"] == "las"
    assert simulate(ONE, [job("a", 1, 0, 1)], "tiresias", order="sjf").settings["order"] == "sjf"
    assert simulate(ONE, [job("a", 1, 0, 1)], "titan").settings["order"] == "fifo"


# -- machines fail --------------------------------------------------------------------------------------------


def test_a_job_restarts_elsewhere_and_loses_what_came_after_its_checkpoint() -> None:
    # Checkpoints at 1800 and 3600 s: of 4000 s on machine 0, 400 s are lost.
    events: list[tuple[float, Event]] = [(4000.0, MachineFailed(0))]
    result = simulate(TWO, [job("a", 4, 0, 10_000)], "best-fit", machine_events=events)
    assert spans(result) == {"a": (0.0, 10_400.0)}
    assert result.summary["restarts"] == 1
    assert sorted(result.runs.rows()) == [("a", 0.0, 4000.0, 0, 15), ("a", 4000.0, 10_400.0, 1, 15)]


@pytest.mark.parametrize(("second_s", "ends_s"), [(1010.0, 11_610.0), (1590.0, 12_190.0), (3410.0, 12_210.0)])
def test_a_failure_during_a_restart_costs_the_restart_again_and_no_checkpoint(
    second_s: float, ends_s: float
) -> None:
    # Nothing is saved at 1000 s. The restart takes 600 s; 1810 s later the first checkpoint is 10 s old.
    three = Cluster.single_rack(3, 4)
    events: list[tuple[float, Event]] = [(1000.0, MachineFailed(0)), (second_s, MachineFailed(1))]
    jobs = [replace(job("a", 4, 0, 10_000), restart_s=600.0)]
    assert spans(simulate(three, jobs, "best-fit", machine_events=events)) == {"a": (0.0, ends_s)}


def test_a_job_waits_for_the_repair_when_there_is_no_other_machine() -> None:
    events: list[tuple[float, Event]] = [(5000.0, MachineRepaired(0)), (4000.0, MachineFailed(0))]
    result = simulate(ONE, [job("a", 4, 0, 10_000)], "best-fit", machine_events=events)
    assert spans(result) == {"a": (0.0, 11_400.0)}
    assert result.summary["jobs_done"] == 1


def test_jobs_elsewhere_do_not_notice_a_failure() -> None:
    jobs = [job("a", 4, 0, 5000), job("b", 4, 0, 5000)]
    result = simulate(TWO, jobs, "best-fit", machine_events=[(100.0, MachineFailed(1))])
    assert spans(result)["a"] == (0.0, 5000.0)
    assert spans(result)["b"] == (0.0, 10_000.0)  # nothing was saved within 100 s


def test_a_slow_job_saves_work_not_time() -> None:
    # Every iteration takes 1.2 s, so 6000 s are 5000 s of work, of which 3600 s are saved; 6400 s are left.
    jobs = [job("a", 5, 0, 10_000, "parameter-server")]
    cluster = Cluster.single_rack(3, 4)
    result = simulate(cluster, jobs, "best-fit", machine_events=[(6000.0, MachineFailed(0))])
    assert spans(result)["a"][1] == pytest.approx(6000.0 + 6400.0 * 1.2)


def test_a_drained_machine_keeps_its_job_but_takes_no_other() -> None:
    events: list[tuple[float, Event]] = [(10.0, MachineDrained(0)), (500.0, MachineRepaired(0))]
    jobs = [job("a", 2, 0, 100), job("b", 2, 20, 100)]
    assert spans(simulate(ONE, jobs, "best-fit", machine_events=events)) == {
        "a": (0.0, 100.0),
        "b": (500.0, 600.0),
    }


def test_jobs_that_no_machine_is_left_for_stay_unfinished_with_a_reason() -> None:
    jobs = [job("early", 4, 0, 10), job("a", 4, 10, 100), job("b", 4, 20, 100)]
    result = simulate(ONE, jobs, "best-fit", machine_events=[(50.0, MachineFailed(0))])
    reason = "waits for machines that do not come back: needs 4 GPUs, 0 free"
    assert statuses(result) == {
        "early": ("done", None),
        "a": ("unfinished", reason),
        "b": ("unfinished", reason),
    }
    assert result.summary["jobs_unfinished"] == 2


def test_a_running_job_whose_machine_never_comes_back_is_unfinished_not_skipped() -> None:
    cluster = Cluster.single_rack(2, 4)
    result = simulate(cluster, [job("a", 8, 0, 10_000)], "best-fit", machine_events=[(5000.0, MachineFailed(0))])
    row = result.jobs.row(0, named=True)
    assert (row["status"], row["start_s"], row["restarts"]) == ("unfinished", 0.0, 1)


def test_backfill_delays_no_job_when_communication_is_instant() -> None:
    cluster = Cluster.single_rack(2, 4, link_gbps=1)
    jobs = [job("long", 6, 0, 1000), job("first", 8, 1, 10), job("short", 2, 2, 5000)]
    fifo = simulate(cluster, jobs, "best-fit", "instant", order="fifo")
    backfill = simulate(cluster, jobs, "best-fit", "instant", order="backfill")
    assert spans(fifo)["first"] == spans(backfill)["first"] == (1000.0, 1010.0)


@pytest.mark.parametrize(("policy", "duration_s"), [("random", 7.0), ("themis", 2_000.0)])
def test_explaining_a_job_does_not_change_its_run(policy: str, duration_s: float) -> None:
    cluster = Cluster.single_rack(2, 4)
    trace = Trace.from_frame(
        pl.DataFrame(
            {"job_id": [f"j{i}" for i in range(30)], "submit_s": [float(i) for i in range(30)]}
        ).with_columns(gpus=pl.lit(3), duration_s=pl.lit(duration_s))
    )
    result = simulate(cluster, trace, policy, seed=5)
    for job_id, start_s in result.jobs.select("job_id", "start_s").iter_rows():
        assert explain(Scenario(cluster, trace, policy, seed=5), job_id).start_s == start_s


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"checkpoint_s": -1.0}, "checkpoint_s must be"),
        ({"machine_events": [(float("nan"), MachineFailed(0))]}, "time of a machine event must be"),
        (
            {"policy": QueuePolicy(BestFit()), "options": {"a": 1}},
            "options are for a policy that is given by name",
        ),
        ({"policy": QueuePolicy(BestFit(), "sjf"), "order": "fifo"}, "has its own order, 'sjf'"),
        ({"policy": "random", "options": {"rng": 3}}, "rng is set by the run's seed"),
    ],
)
def test_refuses_what_it_cannot_keep(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        simulate(ONE, [job("a", 1, 0, 1)], **wrong)


def test_an_id_may_not_come_back_even_after_its_job_is_done() -> None:
    with pytest.raises(InputError, match="job id 'a' occurs twice"):
        simulate(ONE, [job("a", 1, 0, 1), job("a", 1, 50, 1)])


def test_a_job_that_gives_way_after_a_failure_elsewhere_saves_its_work_first() -> None:
    # When machine 1 fails at 1000 s, a goes back to the queue, and b, which has had more, gives way to it.
    jobs = [job("b", 4, 0, 5000), job("a", 4, 500, 600)]
    result = simulate(TWO, jobs, "best-fit", order="las", machine_events=[(1000.0, MachineFailed(1))])
    assert spans(result)["a"][1] == 1600.0
    assert spans(result)["b"][1] == 1600.0 + 4000.0


# -- jobs that cannot run -------------------------------------------------------------------------------------


def test_jobs_larger_than_the_cluster_are_skipped_and_reported() -> None:
    result = simulate(TWO, [job("a", 2, 0, 100), job("huge", 9, 1, 100), job("b", 8, 2, 100)], "titan")
    assert statuses(result)["huge"] == ("skipped", "needs 9 GPUs, the cluster has 8")
    start_s, finish_s = spans(result)["b"]
    assert start_s == 100.0
    assert finish_s == pytest.approx(100 + 100 * 1.175)  # a ring of 8 takes 14 steps of K/8
    assert result.summary["jobs_skipped"] == 1
    assert result.summary["jobs_done"] == 2


def test_a_cluster_that_names_no_types_runs_jobs_that_ask_for_one() -> None:
    frame = generate_trace("philly", jobs=5).frame.with_columns(gpu_type=pl.lit("h100"))
    result = simulate(Cluster.single_rack(4, 8), Trace("typed", frame))
    assert result.summary["jobs_done"] == 5
    assert any("types of GPU" in note for note in result.settings["trace_notes"])
    named = Cluster.fat_tree(1, 4, 8, gpu_type="t4")
    with pytest.raises(InputError, match="gpu_type: 'h100' is not in the cluster, which has t4"):
        simulate(named, Trace("typed", frame))


def test_jobs_that_want_more_of_a_type_than_there_is_are_skipped() -> None:
    cluster = Cluster.of(Switch("top", (Machine("a", 4, "t4"), Machine("b", 4, "h200")), (100.0, 100.0)))
    jobs = [
        Job(id="a", gpus=5, gpu_type="t4", duration_s=1.0),
        Job(id="b", gpus=1, gpu_type="tpu", duration_s=1.0),
        Job(id="c", gpus=4, gpu_type="t4", duration_s=1.0),
        Job(id="d", gpus=6, least_gpus=5, speeds={"t4": 1.0}, duration_s=1.0),
        Job(id="e", gpus=9, speeds={"t4": 1.0, "h200": 2.0}, duration_s=1.0),
        Job(id="f", gpus=5, speeds={"t4": 1.0, "h200": 2.0}, gpu_type="t4", duration_s=1.0),
    ]
    result = simulate(cluster, jobs, "best-fit")
    assert statuses(result) == {
        "a": ("skipped", "needs 5 t4 GPUs, the cluster has 4"),
        "b": ("skipped", "needs 1 tpu GPU, the cluster has 0"),
        "d": ("skipped", "needs 5 t4 GPUs, the cluster has 4"),
        "e": ("skipped", "needs 9 h200 or t4 GPUs, the cluster has 8"),
        "f": ("skipped", "needs 5 t4 GPUs, the cluster has 4"),
        "c": ("done", None),
    }


def test_a_job_that_no_type_can_run_says_nothing_of_one_of_its_size_that_any_can() -> None:
    machines = (Machine("old", 4, "t4"), Machine("new", 4, "h200"))
    cluster = Cluster.of(Switch("top", machines, (100.0, 100.0)))
    picky = Job("b", 6, ROUND, submit_s=1.0, duration_s=10.0, speeds={"t4": 1.0})
    jobs = [job("a", 8, 0.0, 100.0), picky, job("c", 6, 2.0, 10.0, "halving-doubling")]
    found = statuses(simulate(cluster, jobs, "titan"))
    assert {name: status for name, (status, _) in found.items()} == {"a": "done", "b": "skipped", "c": "done"}


class Unspread(BestFit):
    """Best fit on single machines only."""

    other_reason = "no machine is large enough"

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        placement = super().place(job, view)
        return placement if placement is not None and len(placement.counts) == 1 else None


def test_a_job_that_the_policy_can_never_place_is_skipped_and_blocks_no_other() -> None:
    jobs = [job("a", 4, 0, 100), job("never", 8, 1, 100), job("b", 4, 2, 100), job("c", 4, 500, 1)]
    result = simulate(Cluster.single_rack(2, 4), jobs, Unspread())
    assert statuses(result)["never"] == ("skipped", "does not fit the empty cluster: no machine is large enough")
    assert spans(result) == {"a": (0.0, 100.0), "b": (2.0, 102.0), "c": (500.0, 501.0)}


def test_says_so_when_no_job_can_run() -> None:
    with pytest.raises(InputError, match="no job of jobs given in Python can run: job 'a' needs 9 GPUs"):
        simulate(TWO, [job("a", 9, 0, 1)])
    with pytest.raises(InputError, match="no jobs"):
        simulate(TWO, [])


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([Job(id="a", gpus=1)], "job 'a' has no duration to replay"),
        ([job("a", 1, 5, 1), job("b", 1, 4, 1)], "job 'b' was submitted before"),
        ([job("a", 1, 0, 9), job("a", 1, 1, 9)], "job id 'a'"),
    ],
)
def test_refuses_jobs_that_cannot_be_replayed(jobs: list[Job], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(TWO, jobs)


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_refuses_a_price_that_is_none(price: float) -> None:
    with pytest.raises(InputError, match="price_per_gpu_hour"):
        simulate(TWO, [job("a", 1, 0, 1)], price_per_gpu_hour=price)


def test_suggests_the_nearest_name() -> None:
    jobs = [job("a", 1, 0, 1)]
    with pytest.raises(InputError, match=r"unknown policy 'titan2'; did you mean 'titan'\?"):
        simulate(TWO, jobs, "titan2")
    with pytest.raises(InputError, match=r"unknown network model 'isolate'; did you mean 'isolated'\?"):
        simulate(TWO, jobs, network="isolate")
    with pytest.raises(InputError, match=r"unknown queue order 'fifi'; did you mean 'fifo'\?"):
        simulate(TWO, jobs, order="fifi")


# -- nothing is lost, nothing is given twice ------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[Job]:
    """Jobs of all sizes, in bursts."""
    jobs, now_s = [], 0.0
    for number in range(draw(st.integers(1, 20))):
        now_s += draw(st.sampled_from([0.0, 0.0, 10.0, 500.0]))
        jobs.append(
            Job(
                id=f"j{number}",
                gpus=draw(st.integers(1, 20)),
                model=draw(st.sampled_from(["resnet50", "vgg16", "gpt2"])),
                submit_s=now_s,
                duration_s=draw(st.sampled_from([0.0, 5.0, 100.0, 3000.0, 20_000.0])),
                tenant=draw(st.sampled_from(["", "red"])),
            )
        )
    return jobs


@st.composite
def mishaps(draw: st.DrawFn) -> list[tuple[float, Event]]:
    """Machines that fail, drain and are repaired at any time."""
    times_s = st.sampled_from([0.0, 10.0, 200.0, 2500.0])
    events: list[tuple[float, Event]] = []
    for _ in range(draw(st.integers(0, 5))):
        time_s, machine, kind = draw(times_s), draw(st.integers(0, 3)), draw(st.integers(0, 2))
        event: Event = MachineRepaired(machine)
        if kind:
            event = MachineFailed(machine) if kind == 1 else MachineDrained(machine)
        events.append((time_s, event))
    return events


FOUR = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4, link_gbps=25.0, oversubscription=2.0)


def check_conservation(result: Result, jobs: Sequence[Job]) -> None:
    """See that every job ends up somewhere, and every GPU with one job at a time."""
    assert sorted(result.jobs["job_id"]) == sorted(job.id for job in jobs)
    counts = [result.summary[f"jobs_{status}"] for status in ("done", "skipped", "unfinished")]
    assert sum(counts) == len(jobs)
    assert (result.jobs["wait_s"].drop_nulls() >= 0).all()
    done = result.jobs.filter(pl.col("status") == "done")
    assert (done["jct_s"] >= done["wait_s"] + done["duration_s"] * (1 - 1e-9)).all()
    assert (result.timeline["fragmentation"].is_between(0, 1)).all()
    held: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for _, start_s, end_s, machine, gpus in result.runs.rows():
        assert end_s >= start_s
        for gpu in range(4):
            if gpus >> gpu & 1:
                held[machine, gpu].append((start_s, end_s))
    for stretches in held.values():
        stretches.sort()
        for (_, end_s), (start_s, _) in pairwise(stretches):
            assert start_s >= end_s
    gpu_s = sum(end_s - start_s for stretches in held.values() for start_s, end_s in stretches)
    noted_s = result.summary["gpu_utilisation"] * result.cluster.gpus * _span_s(result)
    assert gpu_s == pytest.approx(noted_s, rel=1e-6, abs=1e-6)


def _span_s(result: Result) -> float:
    """Return the time from the first event to the last; runs and arrivals know both."""
    times = [*result.timeline["time_s"], *result.runs["start_s"], *result.runs["end_s"]]
    return float(max(times) - min(times)) if times else 0.0


def check_run(jobs: Sequence[Job], name: str, order: str) -> None:
    """See that nothing is lost, and that jobs held GPUs for as long as they should."""
    # How good the policy is is tested elsewhere.
    options = {"population": 20, "generations": 10} if name.startswith("pollux") else {}
    try:
        result = simulate(FOUR, jobs, name, order=order, options=options)
    except InputError as error:
        assert "can run" in str(error)  # noqa: PT017 - all jobs were skipped
        return
    check_conservation(result, jobs)
    # Jobs that were never stopped or moved held their GPUs for what they asked for, communication on top.
    done = result.jobs.filter(pl.col("status") == "done", pl.col("restarts") + pl.col("moves") == 0)
    asked = {
        row["job_id"]: (row["gpus"], row["duration_s"] * row["slowdown"]) for row in done.iter_rows(named=True)
    }
    got: dict[str, float] = defaultdict(float)
    for job_id, start_s, end_s, _, gpus in result.runs.rows():
        got[job_id] += (end_s - start_s) * gpus.bit_count()
    for job_id, (gpus, lasted_s) in asked.items():
        least = gpus * lasted_s * (1 - 1e-9)
        assert got[job_id] >= least - 1e-6  # some policies hold spare GPUs
        if name not in {"elasticflow", "hived"}:
            assert got[job_id] == pytest.approx(gpus * lasted_s, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in TABLE if name != "exact"])
def test_every_job_ends_up_somewhere_and_every_gpu_with_one_job_at_a_time(name: str) -> None:
    def run(jobs: list[Job]) -> None:
        if any(each.gpus <= FOUR.gpus for each in jobs):
            for order in ("fifo", "sjf", "srtf", "las", "backfill"):
                check_run(jobs, name, order)

    # What is drawn depends on the name: each policy gets logs of its own.
    run.__name__ = re.sub(r"\W", "_", f"run_{name}")
    settings(max_examples=examples(8))(given(logs())(run))()


@pytest.mark.parametrize("name", ["titan", "best-fit", "tiresias"])
def test_nothing_is_lost_when_machines_come_and_go(name: str) -> None:
    @settings(max_examples=examples(40))
    @given(logs(), mishaps(), st.sampled_from(["fifo", "srtf", "las", "backfill"]))
    def run(jobs: list[Job], events: list[tuple[float, Event]], order: str) -> None:
        try:
            result = simulate(FOUR, jobs, name, order=order, machine_events=events)
        except InputError as error:
            assert "can run" in str(error)  # noqa: PT017 - all jobs were skipped
            return
        assert sorted(result.jobs["job_id"]) == sorted(job.id for job in jobs)
        failed = {(time_s, event.machine) for time_s, event in events if isinstance(event, MachineFailed)}
        for _, start_s, end_s, machine, _ in result.runs.rows():
            assert not any(start_s < time_s < end_s for time_s, broken in failed if broken == machine)

    run()


# -- the same again -------------------------------------------------------------------------------------------


def trace(jobs: int = 200, seed: int = 0) -> Trace:
    return generate_trace("philly", jobs=jobs, seed=seed, load=0.9, gpus=FOUR.gpus)


@pytest.mark.parametrize("name", ["titan", "random"])
def test_the_same_seed_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    for folder in ("once", "again"):
        simulate(FOUR, trace(), name, seed=5).save(tmp_path / folder)
    simulate(FOUR, trace(), name, seed=6).save(tmp_path / "other")
    for file in ("jobs.parquet", "timeline.parquet", "runs.parquet", "result.json"):
        once, again, other = ((tmp_path / folder / file).read_bytes() for folder in ("once", "again", "other"))
        assert once == again
        assert once != other


def test_a_result_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    result = simulate(FOUR, trace(), "titan", seed=5)
    assert result.save(tmp_path / "deep" / "folder") == tmp_path / "deep" / "folder"
    loaded = cranny.Result.load(tmp_path / "deep" / "folder")
    assert isinstance(loaded, cranny.Result)
    for name in ("jobs", "timeline", "runs"):
        assert getattr(loaded, name).equals(getattr(result, name))
    assert loaded.summary == result.summary
    assert loaded.settings == result.settings
    for name in ("name", "machines", "parent", "uplink_gbps", "node_names", "spans", "pat_gbps"):
        assert getattr(loaded.cluster, name) == getattr(result.cluster, name)
    loaded.save(tmp_path / "again")
    for file in ("jobs.parquet", "timeline.parquet", "runs.parquet", "result.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "deep/folder" / file).read_bytes()


def test_a_saved_result_keeps_the_partitions_of_its_cluster(tmp_path: Path) -> None:
    cluster = dataclasses.replace(FOUR, partitions={"gpu": (0, 2), "none": ()})
    loaded = cranny.Result.load(simulate(cluster, trace(), "titan").save(tmp_path))
    assert loaded.cluster.partitions == cluster.partitions
    told = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    del told["cluster"]["partitions"]  # as before version 0.3
    (tmp_path / "result.json").write_text(json.dumps(told), encoding="utf-8")
    assert cranny.Result.load(tmp_path).cluster.partitions == {}


def test_a_result_saved_before_jobs_were_called_skipped_can_be_read(tmp_path: Path) -> None:
    result = simulate(FOUR, [Job("huge", 99, duration_s=1.0), Job("a", 1, duration_s=1.0)], "titan")
    result.save(tmp_path)
    told = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    told["summary"]["jobs_left_out"] = told["summary"].pop("jobs_skipped")
    (tmp_path / "result.json").write_text(json.dumps(told), encoding="utf-8")
    result.jobs.with_columns(pl.col("status").replace("skipped", "left out")).write_parquet(
        tmp_path / "jobs.parquet"
    )
    loaded = cranny.Result.load(tmp_path)
    assert loaded.summary == result.summary
    assert loaded.jobs.equals(result.jobs)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("result.json", None),
        ("result.json", b""),
        ("result.json", b"{"),
        ("result.json", b"[]"),
        ("result.json", b"{}"),
        ("result.json", b"\xff\xfe\x00"),
        ("result.json", b'{"settings": {}, "summary": {}, "cluster": {"name": "x", "machines": [[1, 2]]}}'),
        ("jobs.parquet", None),
        ("runs.parquet", b""),
        ("timeline.parquet", b"PAR1 and nothing else"),
    ],
)
def test_a_broken_folder_is_refused_in_one_line(tmp_path: Path, file: str, content: bytes | None) -> None:
    folder = simulate(TWO, [job("a", 1, 0, 1)]).save(tmp_path / "result")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(InputError) as refused:
        cranny.Result.load(folder)
    message = str(refused.value)
    assert message.startswith(f"{folder}: not a saved result: ")
    assert "\n" not in message


def test_a_folder_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a saved result: No such file or directory"):
        cranny.Result.load(tmp_path / "nowhere")


def test_a_result_writes_a_page_about_itself(tmp_path: Path) -> None:
    page = simulate(FOUR, trace(50), "titan").report(tmp_path / "page.html")
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert "titan" in text
    assert not re.search(r"""(src|href)\s*=\s*["']?https?:|url\(["']?https?:""", text)  # self-contained


def test_comparing_in_processes_gives_what_each_policy_gives_alone() -> None:
    names = ["best-fit", "titan", "random"]
    ticks: list[int] = []
    results = compare(FOUR, trace(60), names, processes=2, progress=ticks.append, seed=4)
    assert [result.settings["policy"] for result in results] == names
    assert ticks == [1, 2, 3]
    for name, result in zip(names, results, strict=True):
        alone = simulate(FOUR, trace(60), name, seed=4)
        assert result.summary == alone.summary
        assert result.settings == alone.settings
        for frame in ("jobs", "timeline", "runs"):
            assert getattr(result, frame).equals(getattr(alone, frame))


def test_comparing_one_after_the_other_gives_the_same() -> None:
    names = ["best-fit", "titan"]
    results = compare(FOUR, trace(60), names, processes=1, seed=4)
    assert [result.summary for result in results] == [
        simulate(FOUR, trace(60), name, seed=4).summary for name in names
    ]


# -- the story of one job -------------------------------------------------------------------------------------


def story_trace() -> Trace:
    rows = {
        "job_id": ["a", "b", "c", "huge"],
        "submit_s": [0.0, 10.0, 20.0, 30.0],
        "gpus": [6, 4, 2, 99],
        "duration_s": [100.0, 50.0, 5.0, 1.0],
        "model": ["resnet50"] * 4,
    }
    return Trace.from_frame(pl.DataFrame(rows))


def test_tells_why_a_job_waited_and_why_it_was_placed_there() -> None:
    story = explain(Scenario(TWO, story_trace(), "best-fit"), "b")
    assert story.submit_s == 10.0
    assert story.waits == [(10.0, "needs 4 GPUs, 2 free")]
    assert story.start_s is not None
    assert story.start_s > 100.0  # a runs a little longer, across two machines
    assert story.placement is not None
    assert set(story.placement.machines) == {0}
    lines = story.text().splitlines()
    assert lines[0] == "best-fit: job b was submitted at 10 s"
    assert lines[1] == "from 10 s it waited: needs 4 GPUs, 2 free"
    assert lines[2].startswith("it started at ")
    assert lines[3].startswith("job b: 4 workers on 1 machine")


def test_tells_that_a_job_stood_behind_another() -> None:
    story = explain(Scenario(TWO, story_trace(), "best-fit"), "c")
    assert story.waits[0] == (20.0, "behind job 'b', which is first in the queue")
    assert story.facts()["waits"][0]["since_s"] == 20.0
    assert story.facts()["placement"]["machines_used"] == 1


def test_tells_that_a_job_was_skipped() -> None:
    story = explain(Scenario(TWO, story_trace(), "titan"), "huge")
    assert story.start_s is None
    assert story.text().endswith("it was skipped: needs 99 GPUs, the cluster has 8")


def test_tells_what_the_simulation_does() -> None:
    jobs = trace(100)
    result = spans(simulate(FOUR, jobs, "titan", seed=2))
    for job_id in list(result)[::17]:
        story = explain(Scenario(FOUR, jobs, "titan", seed=2), job_id)
        assert story.start_s == result[job_id][0]
        assert bool(story.waits) == (story.start_s > story.submit_s)


def test_a_job_that_is_not_in_the_trace_has_no_story() -> None:
    with pytest.raises(InputError, match="there is no job 'zzz' in trace"):
        explain(Scenario(TWO, story_trace()), "zzz")
