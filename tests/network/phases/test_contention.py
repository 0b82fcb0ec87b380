"""Times of iterations, unmet demand and contention on links: in a log, a summary and a file."""

from pathlib import Path

import numpy as np
import pytest

import cranny
from cranny.model.circle import Circle
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.profile import ModelProfile
from cranny.network.phases import iteration_log
from cranny.network.phases.contention import ContendingJob, Contention, ContentionLog
from cranny.network.phases.iteration_log import IterationInterval, IterationStats, WeightedValues
from cranny.network.phases.outcome import JobOutcome
from cranny.report.circles import section
from cranny.report.page import render
from cranny.sim.result import Result

RACK = Cluster.single_rack(machines=3, gpus_per_machine=2, link_gbps=100.0)
EVEN = ModelProfile("even", grad_bytes=1e9, iteration_ms=80.0)  # a ring of two talks for 80 ms, too
HALF = Circle.half_up(0.2, 50.0)
ALONE = JobOutcome(np.array([0.2]), np.ones(1, np.int64), 0.2, 0.0, 0)
# Three iterations of 0.2 s and one of 0.4 s; 2 Gbit in vain, and an adjustment.
TOGETHER = JobOutcome(np.array([0.2, 0.4]), np.array([3, 1]), 1.0, 2.0, 1)


@pytest.fixture(scope="module")
def result() -> Result:
    """Replay two jobs that each span two of three machines: they meet on the link of the one in the middle."""
    jobs = [Job(name, 3, EVEN, "ring", duration_s=80.0) for name in "ab"]
    return cranny.simulate(RACK, jobs, "best-fit", "phases")


def test_measures_follow_from_stretches_by_hand() -> None:
    found = IterationStats(
        [IterationInterval("a", 0.0, 30.0, TOGETHER, 0.2), IterationInterval("b", 0.0, 30.0, ALONE, 0.2)]
    )
    assert found.count == pytest.approx(120 + 150)
    assert found.mean_s == pytest.approx(60 / 270)
    assert found.over_alone == pytest.approx(300 / 270)
    assert found.above_gbit == pytest.approx(120 * 0.5 / 270)
    assert found.adjustments_per_min == pytest.approx(30.0)
    assert found.quantiles_s([0.5, 0.88, 0.9]) == [0.2, 0.2, 0.4]  # 30 of 270 iterations took longer
    assert found.quantiles_over_alone([0.9]) == [2.0]


def test_many_values_are_taken_together_where_they_are_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iteration_log, "MOST", 1000)
    monkeypatch.setattr(iteration_log, "PARTS", 16)
    rng = np.random.default_rng(0)
    spread, values = WeightedValues(), rng.lognormal(0.0, 1.0, 20_000)
    for part in np.split(values, 200):
        spread.add(part, np.ones(100))
    shares = [0.01, 0.5, 0.99]
    assert spread.quantiles(shares) == pytest.approx(np.quantile(values, shares).tolist(), rel=2e-3)


def test_a_run_in_phases_tells_of_iterations_and_others_do_not(result: Result) -> None:
    summary = result.summary
    # A ring of three talks for 4/3 of 80 ms alone; both start together, so each gets half of the link meanwhile.
    talks_s = 0.08 * 4 / 3
    assert summary["mean_iteration_s"] == pytest.approx(0.08 + 2 * talks_s)
    assert summary["p99_iteration_s"] == pytest.approx(0.08 + 2 * talks_s)
    assert summary["mean_above_gbit"] == pytest.approx(2 * talks_s * 50.0)
    assert summary["adjustments_per_min"] == 0.0
    jobs = [Job("a", 3, EVEN, "ring", duration_s=80.0)]
    assert "mean_iteration_s" not in cranny.simulate(RACK, jobs, "best-fit", "steady").summary


def test_the_costliest_meeting_says_who_met_where_and_for_how_long(result: Result) -> None:
    (contention,) = result.contentions
    assert [job.job_id for job in contention.jobs] == ["a", "b"]
    assert contention.gbps == 100.0
    assert contention.seconds == pytest.approx(result.summary["makespan_s"])
    assert contention.above_gbit == pytest.approx(result.summary["mean_above_gbit"] * 2000, rel=1e-6)


def test_meetings_survive_saving(result: Result, tmp_path: Path) -> None:
    again = Result.load(result.save(tmp_path / "saved"))
    assert again.contentions == result.contentions
    assert again.summary == result.summary


def test_meetings_of_the_same_jobs_add_up_until_they_part() -> None:
    jobs = (ContendingJob("a", HALF, 0.0), ContendingJob("b", HALF, 1000.05))
    kept = ContentionLog()
    for at_s, above_gbps in ((0.0, 2.0), (10.0, 5.0)):  # others came on another link
        kept.begin(0, jobs, above_gbps)
        kept.note(at_s)
    kept.end(0)
    kept.note(14.0)
    kept.begin(1, jobs, 0.0)  # they shift to where all demand is met
    kept.note(15.0)
    kept.end(1)
    kept.note(16.0)
    (found,) = kept.costliest(RACK)
    assert (found.seconds, found.above_gbit) == pytest.approx((14.0, 40.0))
    assert found.shifts_s == pytest.approx({"a": 0.0, "b": 0.05})


def test_the_report_of_a_run_in_phases_shows_its_costliest_links(result: Result) -> None:
    page = render([result])
    assert "Costliest shared links" in page
    assert "2 jobs for" in page
    assert "iteration, p99" in page


def test_several_runs_show_one_link_each_and_runs_without_meetings_none() -> None:
    contention = Contention(
        "x", 50.0, (ContendingJob("<a>", HALF, 0.0), ContendingJob("b", HALF, 0.0)), 3600.0, 7200.0
    )
    shown = section({"one": (contention, contention), "other": (contention,), "third": ()})
    assert shown.count("<figure") == 2
    assert "other: x, 50 Gbps" in shown
    assert "2 Gbps demanded above capacity on average" in shown
    assert "<a>" not in shown
    assert section({"one": ()}) == ""
    assert section({"one": (contention,) * 4}).count("<figure") == 3
