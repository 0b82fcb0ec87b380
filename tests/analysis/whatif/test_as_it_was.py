"""The log itself: where its jobs ran, and what a policy saves against that."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import as_it_was as reference

import cranny
from cranny.analysis.whatif import what_if
from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.as_it_was import (
    ELSEWHERE,
    NO_MACHINES,
    NO_ROOM,
    NO_START,
    OTHER_COUNT,
    as_it_was,
    machines_by_name,
)
from cranny.analysis.whatif.baseline import logged_jobs
from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.headroom import HOLD_S, idle_stretches, switched_off
from cranny.analysis.whatif.held_slots import held_gpus
from cranny.analysis.whatif.logged_result import LoggedRun, logged_result
from cranny.analysis.whatif.tables import answer_tables
from cranny.model.cluster import Machine
from cranny.traces.trace import Trace
from cranny.traces.trace_jobs import Jobs

CLUSTER = cranny.Cluster.fat_tree(2, 2, 4)  # machines rack0-machine0 to rack1-machine1
A, B, C, D = (machine.name for machine in CLUSTER.machines)
REASONS = {
    NO_START: "no start",
    NO_MACHINES: "no machines",
    ELSEWHERE: "elsewhere",
    OTHER_COUNT: "another number",
    NO_ROOM: "no room",
}
# Four jobs of one GPU, spread over all machines for two hours; packed they would need one machine.
SPREAD: dict[str, list[Any]] = {
    "job_id": ["a", "b", "c", "d", "last"],
    "submit_s": [0.0, 0.0, 0.0, 0.0, 7200.0],
    "gpus": [1, 1, 1, 1, 1],
    "duration_s": [7200.0, 7200.0, 3600.0, 7200.0, 60.0],
    "start_s": [0.0, 0.0, 0.0, 0.0, 7200.0],
    "ran_on": [f"{A}:1", f"{B}:1", f"{C}:1", f"{D}:1", f"{A}:1"],
}


def log(**columns: list[Any]) -> Trace:
    rows = SPREAD | columns
    types: dict[str, Any] = {"gpus": pl.Int32, "start_s": pl.Float64, "ran_on": pl.String}
    return Trace("log", pl.DataFrame(rows, schema_overrides={name: types[name] for name in rows if name in types}))


def asked(trace: Trace, policies: tuple[str, ...] = ("best-fit",), **given: Any) -> WhatIfAnswer:
    return what_if(trace, CLUSTER, policies, processes=1, search=False, price_per_gpu_hour=2.0, **given)


def test_a_saving_is_what_is_off_beyond_what_was_idle_anyway() -> None:
    answer = asked(log())
    was, best_fit = answer.cases
    assert was.machines is not None
    assert best_fit.machines is not None
    # As it was, machine c was idle for the second hour. Packed, three machines are idle for two hours.
    assert was.machines.off_hours == pytest.approx(1.0)
    assert best_fit.machines.off_hours == pytest.approx(6.0)
    savings = answer.details.savings
    assert list(savings.of_case) == ["best-fit"]
    saving = savings.of_case["best-fit"]
    assert saving.credited is None
    assert saving.shown.a_day == pytest.approx(5 * 4 * 2.0 * 12)
    said = " ".join(findings(answer))
    assert "As it was, 0.5 of 4 machines could have been off (idle for 15 min or longer)." in said
    assert "With best-fit it would have been 3.0, which saves $480 a day at $2.00 per GPU-hour." in said
    assert "That is the whole difference to the log" in said
    assert "since 5 jobs are too few to find out how a scheduler works" in said
    money = answer.facts()["cases"][1]["money"]
    assert (money["saved_a_day"], money["credited_a_day"]) == (pytest.approx(480.0), None)
    assert money["off_a_day"] == pytest.approx(6 * 4 * 2.0 * 12)
    tables = {sheet.title: sheet for sheet in answer_tables(answer)}
    assert tables["Machines, and what could have been off"].rows[1][-2:] == ["6.0", "3.0"]
    assert tables["What policies save"].rows == [["best-fit", "$480", "$175,200"]]
    assert was.fragmentation == pytest.approx(0.75)


@pytest.mark.parametrize("ran_on", [[None] * 5, [f"{A}:1", None, None, f"{D}:1", None], ["x"] * 5])
def test_without_machines_in_the_log_no_saving_is_shown(ran_on: list[str | None]) -> None:
    answer = asked(log(ran_on=ran_on))
    assert answer.was.machines is None
    assert not answer.savings()
    said = " ".join(findings(answer))
    assert "could have been off" in said
    assert "no saving" in said
    assert "$" not in said
    assert answer.facts()["cases"][1]["money"]["saved"] is None
    tables = {sheet.title: sheet for sheet in answer_tables(answer)}
    assert "What policies save" not in tables
    assert "not a saving" in tables["Machines, and what could have been off"].note
    assert "interval" not in tables["What machines cost a day"].note


def test_jobs_that_cannot_be_placed_are_counted_by_reason() -> None:
    trace = log(start_s=[0.0, 0.0, None, 0.0, 7200.0], ran_on=[f"{A}:1", "gone:1", f"{C}:1", f"{D}:2", None])
    found = as_it_was(trace, CLUSTER)
    assert found is not None
    assert {reason: each.jobs for reason, each in found.unplaced.items()} == {
        ELSEWHERE: 1,
        NO_START: 1,
        OTHER_COUNT: 1,
        NO_MACHINES: 1,
    }
    assert found.unknown_machines == ("gone",)
    assert found.share == pytest.approx(7200 / (3 * 7200 + 3600 + 60))
    told = " ".join(asked(trace).warnings)
    assert "1 job on machines that are not in the cluster" in told
    assert "no saving is shown" in told
    assert "not in the cluster: gone" in told


def test_a_job_without_room_is_reported_and_holds_nothing() -> None:
    columns: dict[str, list[Any]] = {"gpus": [4, 1, 8, 2, 1]}
    columns["ran_on"] = [A, A, f"{B}:4 {C}:4", f"{C}:2", f"{A}:1"]
    found = as_it_was(log(**columns), CLUSTER)
    assert found is not None
    assert {reason: each.jobs for reason, each in found.unplaced.items()} == {NO_ROOM: 2}
    assert found.runs["job_id"].to_list() == ["a", "c", "c", "last"]
    assert found.runs["gpus"].to_list() == [0b1111, 0b1111, 0b1111, 0b1]


def test_gpus_are_divided_evenly_where_the_log_does_not_count_them() -> None:
    found = as_it_was(log(gpus=[5, 1, 1, 1, 1], ran_on=[f"{A} {B}", f"{A} {C}", C, D, A]), CLUSTER)
    assert found is not None
    held = found.runs.select("job_id", "machine", pl.col("gpus").bitwise_count_ones()).rows()
    assert held == [("a", 0, 3), ("a", 1, 2), ("b", 0, 1), ("c", 2, 1), ("d", 3, 1), ("last", 0, 1)]


def test_gpus_are_divided_by_what_was_free_where_evenly_there_is_no_room() -> None:
    columns: dict[str, list[Any]] = {"gpus": [3, 5, 1, 1, 1], "start_s": [0.0, 1.0, 0.0, 0.0, 7200.0]}
    found = as_it_was(log(**columns, ran_on=[f"{A}:3", f"{A}:3 {B}:2", C, D, A]), CLUSTER)
    assert found is not None
    held = found.runs.select("job_id", "machine", pl.col("gpus").bitwise_count_ones()).rows()
    assert held == [("a", 0, 3), ("b", 0, 1), ("b", 1, 4), ("c", 2, 1), ("d", 3, 1), ("last", 0, 1)]
    assert not found.unplaced
    assert found.divided_otherwise == 1


def test_a_wrong_guess_of_a_division_does_not_hide_the_jobs_that_came_later() -> None:
    """Job a had one GPU on A and four on B; the guess, three and two, leaves too few on A for b."""
    columns: dict[str, list[Any]] = {"gpus": [5, 3, 1, 1, 1], "start_s": [0.0, 1.0, 0.0, 0.0, 7200.0]}
    found = as_it_was(log(**columns, ran_on=[f"{A} {B}", A, C, D, A]), CLUSTER)
    assert found is not None
    assert not found.unplaced
    assert found.held_twice == 1
    held = found.runs.select("job_id", "machine", "gpus").rows()
    assert held[:3] == [("a", 0, 0b111), ("a", 1, 0b11), ("b", 0, 0b1011)]
    told = " ".join(asked(log(**columns, ran_on=[f"{A} {B}", A, C, D, A])).warnings)
    assert "1 job found no free GPUs" in told


def test_names_are_matched_without_case_and_domain_but_never_by_guess() -> None:
    machines = [Machine(name, 4) for name in ("N1", "n2.example.com", "twin.a", "twin.b", "10.0.0.1", "10.0.0.2")]
    names = ["N1", "n1.example.com", "n2", "N2.EXAMPLE.COM", "n2.other.org", "twin", "10.0.0.2", "10.0.0.3"]
    assert machines_by_name(names, machines) == {
        "N1": 0,
        "n1.example.com": 0,
        "n2": 1,
        "N2.EXAMPLE.COM": 1,
        "10.0.0.2": 5,
    }


def test_machines_and_racks_of_wide_jobs_are_in_every_row() -> None:
    columns: dict[str, list[Any]] = {"gpus": [2, 2, 1, 1, 1]}
    columns["ran_on"] = [f"{A}:1 {C}:1", f"{C}:2", f"{B}:1", f"{D}:1", f"{A}:1"]
    was, best_fit = asked(log(**columns)).cases
    assert was.spread is not None
    assert best_fit.spread is not None
    assert (was.spread.jobs, was.spread.machines, was.spread.racks) == (2, 1.5, 1.5)
    assert (best_fit.spread.machines, best_fit.spread.racks) == (1.0, 1.0)


def test_work_that_is_put_off_is_no_saving() -> None:
    """In the log d ran beside a; by the order of submission it waits behind c, for which there is no room."""
    columns: dict[str, list[Any]] = {"job_id": ["a", "c", "d", "last"], "gpus": [12, 16, 4, 1]}
    columns["submit_s"] = [0.0, 1.0, 2.0, 7200.0]
    columns["start_s"] = [0.0, 7200.0, 2.0, 7300.0]
    columns["duration_s"] = [7200.0, 100.0, 6300.0, 60.0]
    columns["ran_on"] = [f"{A}:4 {B}:4 {C}:4", f"{A}:4 {B}:4 {C}:4 {D}:4", f"{D}:4", f"{A}:1"]
    answer = asked(log(**columns), order="fifo")
    details = answer.details
    # a holds 24 GPU-hours in both, d holds 7 more in the log.
    held = {name: float(cost.held_gpu_hours.sum()) for name, cost in details.costs.items()}
    assert held == pytest.approx({"as it was": 31.0, "best-fit": 24.0})
    assert details.off_a_day("best-fit") > details.off_a_day("as it was")  # which would look like a saving
    assert details.savings.late == ["best-fit"]
    assert not answer.savings()
    assert any("fewer GPU-hours run" in line and "best-fit" in line for line in answer.warnings)
    assert "No policy did the same work in that time" in " ".join(findings(answer))
    assert answer.facts()["cases"][1]["money"]["saved_a_day"] is None
    backfilled = asked(log(**columns), order="backfill")
    assert not backfilled.details.savings.late
    assert not any("fewer GPU-hours run" in line for line in backfilled.warnings)


def test_equal_waits_are_no_merit_of_one_policy() -> None:
    said = findings(asked(log(), ("titan", "best-fit", "gpu-balance")))[0]
    assert "with every policy they would have waited 0 s" in said
    assert "which is the same" in said
    for name in ("titan", "best-fit", "gpu-balance"):
        assert name not in said


def test_only_jobs_that_count_are_in_the_waits() -> None:
    trace = log(start_s=[0.0, 0.0, 600.0, 0.0, 7200.0])
    counted = Trace("log", trace.frame.with_columns(counted=pl.col("job_id") != "c"))
    was, best_fit = asked(counted).cases
    assert was.waits is not None
    assert best_fit.waits is not None
    assert was.waits.jobs == best_fit.waits.jobs == 4
    assert was.waits.wait.mean_s == 0.0


def test_what_inspect_finds_is_a_warning() -> None:
    late = log(submit_s=[0.0, 0.0, 0.0, 0.0, 4e6], start_s=[0.0, 0.0, 0.0, 0.0, 4e6])
    frame = pl.concat([late.frame, *([late.frame.head(1)] * 40)]).with_columns(
        job_id=pl.int_range(pl.len()).cast(pl.String)
    )
    answer = asked(Trace("log", frame.with_columns(ran_on=None).cast({"ran_on": pl.String})))
    assert any("nothing is submitted for" in line for line in answer.warnings)
    assert any("nothing is submitted for" in line for line in answer.facts()["warnings"])


@st.composite
def logs(draw: st.DrawFn) -> tuple[cranny.Cluster, list[reference.LogRow]]:
    """Draw a small cluster and a log, in which a few things are wrong."""
    cluster = cranny.Cluster.fat_tree(draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    names = [*(machine.name for machine in cluster.machines), "gone"]
    rows = []
    for index in range(draw(st.integers(1, 9))):
        on = draw(st.lists(st.sampled_from(names), max_size=3))
        counts = [draw(st.integers(1, 2)) for _ in on]
        said = draw(st.booleans())
        words = [f"{name.upper()}:{count}" if said else name for name, count in zip(on, counts, strict=True)]
        gpus = max(1, sum(counts) + draw(st.sampled_from([0, 0, 0, 1])))
        start_s = draw(st.sampled_from([None, 0.0, 1.0, 2.0, 3.0, 5.0]))
        duration_s = float(draw(st.integers(0, 5)))
        job = cranny.Job(str(index), gpus, "vgg16", submit_s=0.0, duration_s=duration_s)
        rows.append(
            reference.LogRow(job, start_s, None if start_s is None else start_s + duration_s, " ".join(words))
        )
    return cluster, rows


def as_trace(rows: list[reference.LogRow]) -> Trace:
    return Trace(
        "log",
        pl.DataFrame(
            {
                "job_id": [row.job.id for row in rows],
                "submit_s": [row.job.submit_s for row in rows],
                "gpus": pl.Series([row.job.gpus for row in rows], dtype=pl.Int32),
                "duration_s": [row.job.duration_s for row in rows],
                "model": [row.job.profile.name for row in rows],
                "start_s": pl.Series([row.start_s for row in rows], dtype=pl.Float64),
                "ran_on": pl.Series([row.ran_on or None for row in rows], dtype=pl.String),
            }
        ),
    )


@settings(max_examples=examples(150), deadline=None)
@given(logs())
def test_runs_are_those_of_the_literal_reference(drawn: tuple[cranny.Cluster, list[reference.LogRow]]) -> None:
    cluster, rows = drawn
    trace = as_trace(rows)
    found = as_it_was(trace, cluster)
    placed, others = reference.placed_jobs(cluster, rows)
    if found is None:
        assert not any(row.ran_on for row in rows)
        return
    literal = {
        (each.job.id, machine): (each.start_s, each.end_s, gpus)
        for each in placed
        for machine, gpus in each.gpus.items()
    }
    assert {
        (job, machine): (start_s, end_s, [gpu for gpu in range(64) if gpus >> gpu & 1])
        for job, start_s, end_s, machine, gpus in found.runs.rows()
    } == literal
    assert {REASONS[reason]: each.jobs for reason, each in found.unplaced.items()} == {
        reason: len(ids) for reason, ids in others.items()
    }
    window = (0.0, 12.0)
    hours = switched_off(idle_stretches(found.runs, len(cluster.machines), window), cluster.machines, window, 2.0)
    for name, value in reference.machine_hours(cluster, placed, window, 2.0).items():
        assert {"used_hours": hours.used_hours, "idle_hours": hours.idle_hours}.get(name, value) == pytest.approx(
            value
        )
    assert hours.off_hours == pytest.approx(reference.machine_hours(cluster, placed, window, 2.0)["off_hours"])


@settings(max_examples=examples(100), deadline=None)
@given(logs())
def test_the_timeline_is_that_of_the_literal_reference(
    drawn: tuple[cranny.Cluster, list[reference.LogRow]],
) -> None:
    cluster, rows = drawn
    trace = as_trace(rows)
    was, logged = as_it_was(trace, cluster), logged_jobs(trace)
    if was is None or logged is None or not was.is_known:
        return
    like = cranny.simulate(cluster, [cranny.Job("any", 1, "vgg16", duration_s=1.0)], "best-fit")
    jobs = trace.jobs()
    assert isinstance(jobs, Jobs)
    result = logged_result(LoggedRun(trace, jobs, logged, was), cluster, like, 1.0)
    placed, _ = reference.placed_jobs(cluster, rows)
    expected = reference.moment(cluster, placed, 0.0)  # all jobs arrive at once
    for name, value in expected.items():
        assert result.timeline[name].to_list() == pytest.approx([value] * len(rows))
    first_s = min(0.0, *(each.start_s for each in placed)) if placed else 0.0
    window = (first_s, max([first_s + 1.0, *(each.end_s for each in placed)]))
    hours = reference.machine_hours(cluster, placed, window, HOLD_S)
    assert result.summary["machine_hours"] == pytest.approx(hours["used_hours"])


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["best-fit", "titan", "gpu-balance"]))
def test_a_log_written_by_a_policy_is_measured_like_its_replay(seed: int, policy: str) -> None:
    """What a replay did, written as a log, is as it was to the last number."""
    rng = np.random.default_rng(seed)
    jobs = [
        cranny.Job(str(index), int(gpus), "vgg16", submit_s=float(at_s), duration_s=float(duration_s))
        for index, (gpus, at_s, duration_s) in enumerate(
            zip(rng.integers(1, 9, 20), np.sort(rng.integers(0, 5000, 20)), rng.integers(1, 4000, 20), strict=True)
        )
    ]
    replayed = cranny.simulate(CLUSTER, jobs, policy, "instant", order="backfill")  # as what-if replays logs
    names = pl.Series([machine.name for machine in CLUSTER.machines])
    lists = replayed.runs.select(
        "job_id",
        on=names.gather(replayed.runs["machine"])
        + ":"
        + replayed.runs["gpus"].bitwise_count_ones().cast(pl.String),
    )
    on = lists.group_by("job_id", maintain_order=True).agg(ran_on=pl.col("on").str.join(" "))
    frame = replayed.jobs.select("job_id", "submit_s", "gpus", "duration_s", "model", "start_s", end_s="finish_s")
    answer = asked(Trace("log", frame.join(on, on="job_id").sort("submit_s", maintain_order=True)), (policy,))
    was, again = answer.facts()["cases"]
    for key in ("waits", "machines", "largest_job", "spread"):
        assert was[key] == again[key]
    assert was["mean_fragmentation"] == pytest.approx(again["mean_fragmentation"])
    if policy != "titan":  # which maps ranks in another order than the log's list says
        assert was["mean_cross_traffic_gb"] == pytest.approx(again["mean_cross_traffic_gb"])
    assert answer.details.savings.of_case[policy].whole.a_day == 0.0


def test_gpus_are_held_alike_in_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    machines = [Machine(f"m{at}", gpus) for at, gpus in enumerate((4, 4, 8, 8, 64))]
    parts = rng.integers(1, 4, 400)
    job = np.repeat(np.arange(400), parts)
    machine = np.concatenate([rng.permutation(5)[:count] for count in parts])
    count = rng.integers(1, 5, len(job))
    start_s = np.floor(rng.uniform(0.0, 400.0, 400))
    end_s = start_s + np.floor(rng.exponential(8.0, 400))
    plain, twice = held_gpus(machines, start_s, end_s, job, machine, count)
    monkeypatch.setattr("cranny.analysis.whatif.held_slots.COMPILE_FROM", 0)
    compiled, compiled_twice = held_gpus(machines, start_s, end_s, job, machine, count)
    assert compiled.tolist() == plain.tolist()
    assert compiled_twice == twice > 0
    assert (plain == 0).any()
