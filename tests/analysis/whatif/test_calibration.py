"""The row of the log's own scheduler, on logs that a known scheduler made."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import cranny.run as runs
from cranny.analysis.whatif import calibration
from cranny.analysis.whatif.baseline import AS_IT_WAS, LoggedJobs, logged_jobs
from cranny.analysis.whatif.calibration import REPLAYED, Prediction, calibrated, scheduler_models
from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.unexplained import free_while_waiting
from cranny.analysis.whatif.what_if import CALIBRATED_FROM, answer
from cranny.model.cluster import Cluster
from cranny.run import run
from cranny.scenario import Scenario
from cranny.traces.trace import Trace

CLUSTER = replace(Cluster.single_rack(6, 8), partitions={"small": (0, 1), "large": (2, 3, 4, 5)})
JOBS = 160


def log(seed: int = 0) -> Trace:
    """A crowded log with partitions, limits that are too long, and priorities, without starts."""
    rng = np.random.default_rng(seed)
    ran_s = rng.integers(60, 7200, JOBS).astype(float)
    return Trace.from_frame(
        pl.DataFrame(
            {
                "job_id": [f"j{at}" for at in range(JOBS)],
                "submit_s": np.cumsum(rng.integers(0, 450, JOBS)).astype(float),
                "gpus": rng.choice([1, 2, 4, 8, 16], JOBS),
                "duration_s": ran_s,
                "limit_s": np.ceil(ran_s * rng.uniform(1, 5, JOBS) / 600) * 600,
                "priority": rng.integers(0, 3, JOBS).astype(float),
                "partition": rng.choice(["small", "large"], JOBS, p=[0.3, 0.7]),
                "user": rng.choice(["ann", "bob"], JOBS),
            }
        )
    )


def logged_by(trace: Trace, order: str, *, priorities: bool, delay_s: float = 0.0) -> tuple[Scenario, LoggedJobs]:
    """Return the log as a scheduler would have written it that starts jobs in an order, each after a delay."""
    scenario = Scenario(CLUSTER, trace, "best-fit", "instant", order=order, limits=True)
    known = trace if priorities else replace(trace, frame=trace.frame.drop("priority"))
    starts = run(replace(scenario, trace=known)).jobs.select("job_id", pl.col("start_s") + delay_s)
    frame = trace.frame.join(starts, on="job_id", maintain_order="left")
    logged = logged_jobs(replace(trace, frame=frame))
    assert logged is not None
    return replace(scenario, trace=replace(trace, frame=frame)), logged


@pytest.mark.parametrize(
    ("order", "priorities"), [("fifo", False), ("backfill", False), ("backfill", True), ("conservative", True)]
)
def test_the_scheduler_that_made_the_log_is_found_and_predicts_it(order: str, priorities: bool) -> None:  # noqa: FBT001
    found = calibrated(*logged_by(log(), order, priorities=priorities), processes=1)
    assert found is not None
    assert (found.model.order, found.model.priorities) == (order, priorities)
    assert found.second_half.error == pytest.approx(0.0, abs=0.01)
    assert found.second_half.within_factor > 0.95
    assert found.close
    assert found.result.settings["policy"] == REPLAYED
    assert set(found.by_partition) == {"small", "large"}
    assert sum(each.jobs for each in found.by_size.values()) == found.second_half.jobs
    assert found.second_half.logged_mean_s > 600


def test_what_is_not_tried_on_long_logs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.analysis.whatif.calibration.LONG", 100)
    found = calibrated(*logged_by(log(), "fifo", priorities=False), processes=1)
    assert found is not None
    assert not any("conservative" in about for about in found.tried)
    assert "The log has 100 jobs or more, so that only models with compiled replays" in " ".join(found.sentences())


def test_a_delay_at_every_start_is_learned_on_the_first_half() -> None:
    found = calibrated(*logged_by(log(), "backfill", priorities=False, delay_s=90.0), processes=1)
    assert found is not None
    assert found.start_delay_s == pytest.approx(90.0)
    assert found.close
    assert found.verdict.endswith(": within 15 %.")


def test_waits_that_no_queue_explains_are_said() -> None:
    scenario, _ = logged_by(log(), "backfill", priorities=False)
    trace = scenario.whole_trace
    held = (pl.col("start_s") + 20_000.0 * (pl.col("user") == "ann")).alias("start_s")  # the limits of a user
    trace = replace(trace, frame=trace.frame.with_columns(held))
    logged = logged_jobs(trace)
    assert logged is not None
    found = calibrated(replace(scenario, trace=trace), logged, processes=1)
    assert found is not None
    assert not found.close
    text = " ".join(found.sentences())
    assert "That is not within 15 %." in text
    assert "of the log's waiting passed while as many GPUs were free" in text
    assert "41 % more than the 8.8 h that it has: not within 15 %" in found.verdict
    of_starts = replace(found, free_share=0.99).verdict
    assert "not within 15 %, since 99 % of that waiting passed while enough GPUs were free" in of_starts


def test_reservations_and_jobs_outside_the_window_are_not_compared() -> None:
    scenario, logged = logged_by(log(), "backfill", priorities=False)
    trace = scenario.whole_trace
    frame = trace.frame.with_columns(
        reservation=pl.when(pl.int_range(pl.len()) % 10 == 0).then(pl.lit("maintenance")),
        counted=pl.int_range(pl.len()) >= 30,
    )
    found = calibrated(replace(scenario, trace=replace(trace, frame=frame)), logged, processes=1)
    assert found is not None
    compared = [at for at in range(JOBS) if at >= 30 and at % 10 != 0]
    submit_s = trace.frame["submit_s"].gather(compared).to_list()
    assert found.second_half.jobs == sum(at_s >= submit_s[len(submit_s) // 2] for at_s in submit_s)


def test_the_share_of_waiting_with_enough_free_is_right() -> None:
    trace = Trace.from_frame(
        pl.DataFrame(
            {
                "job_id": ["a", "b"],
                "submit_s": [0.0, 10.0],
                "gpus": [6, 4],
                "duration_s": [100.0, 10.0],
                "start_s": [0.0, 160.0],
            }
        )
    )
    logged = logged_jobs(trace)
    assert logged is not None
    # Of the 150 s that b waits, a holds 6 of 8 GPUs for 90.
    assert free_while_waiting(Cluster.single_rack(1, 8), trace, logged, logged.jobs) == pytest.approx(60 / 150)
    assert free_while_waiting(Cluster.single_rack(1, 16), trace, logged, logged.jobs) == pytest.approx(1.0)


def test_models_are_those_that_the_log_tells_of() -> None:
    trace = log()
    assert len(scheduler_models(trace)) == 6
    plain = replace(trace, frame=trace.frame.drop("priority", "limit_s"))
    assert [(model.order, model.limits) for model in scheduler_models(plain)] == [
        ("fifo", False),
        ("backfill", False),
        ("conservative", False),
    ]
    assert "by submission, without backfill" in {model.about for model in scheduler_models(trace)}


def test_short_waits_are_equal() -> None:
    made = Prediction.of(np.array([0.0, 100.0, 100.0]), np.array([50.0, 199.0, 201.0]))
    assert made.within_factor == pytest.approx(2 / 3)
    assert made.miss_s == pytest.approx((50 + 99 + 101) / 3)


def test_what_if_shows_the_row_before_the_policies_and_judges_them_against_it() -> None:
    scenario, _ = logged_by(log(), "backfill", priorities=False)
    found = answer(scenario, ["best-fit", "titan"], search=False, processes=1)
    assert [case.name for case in found.cases] == [AS_IT_WAS, REPLAYED, "best-fit", "titan"]
    assert found.scheduler is not None
    assert found.scheduler.waits is not None
    assert found.was.waits is not None
    assert found.scheduler.waits.wait.mean_s == pytest.approx(found.was.waits.wait.mean_s, rel=0.01)
    assert any(line.startswith("Replayed like the log's own scheduler") for line in findings(found))
    assert any("In the second half it predicts a mean wait" in line for line in found.assumptions)
    assert found.details.against == REPLAYED


def test_a_few_jobs_tell_nothing_of_a_scheduler() -> None:
    scenario, _ = logged_by(log(), "backfill", priorities=False)
    few = scenario.whole_trace.slice(count=CALIBRATED_FROM - 1)
    found = answer(replace(scenario, trace=few), ["best-fit"], search=False, processes=1)
    assert found.scheduler is None
    assert found.calibration is None
    assert found.why_not_calibrated == "99 jobs are too few to find out how a scheduler works (100)"
    assert found.facts()["why_not_calibrated"] == found.why_not_calibrated


def test_a_long_log_is_replayed_in_compiled_code_with_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, _ = logged_by(log(), "backfill", priorities=True)
    plain = answer(scenario, ["best-fit", "titan"], search=False, processes=1)
    monkeypatch.setattr(runs, "COMPILE_FROM", JOBS)
    monkeypatch.setattr(runs, "LONG", JOBS)
    found = answer(scenario, ["best-fit", "titan"], search=False, processes=1)
    assert found.facts() == plain.facts()
    assert found.calibration is not None
    assert [each.settings["order"] for each in found.results[:2]] == ["backfill", "backfill"]


def test_a_long_log_that_cannot_be_compiled_says_why_there_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, _ = logged_by(log(), "backfill", priorities=False)
    trace = scenario.whole_trace
    elastic = replace(trace, frame=trace.frame.with_columns(least_gpus=pl.lit(1, dtype=pl.Int32)))
    monkeypatch.setattr(runs, "COMPILE_FROM", JOBS)
    monkeypatch.setattr(runs, "LONG", JOBS)
    found = answer(replace(scenario, trace=elastic), ["best-fit"], search=False, processes=1)
    assert found.calibration is None
    assert "such replays are not compiled" in found.why_not_calibrated


def test_it_is_said_on_which_jobs_models_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = logged_by(log(), "backfill", priorities=False)
    found = calibrated(*logged, processes=1)
    assert found is not None
    assert found.tried_on == "the log's first half"
    monkeypatch.setattr(calibration, "CHOSEN_ON", 50)
    found = calibrated(*logged, processes=1)
    assert found is not None
    assert found.tried_on == "the last 50 jobs of the log's first half"
    assert any(found.tried_on in line for line in found.sentences())
