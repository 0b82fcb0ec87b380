"""How sure differences of waits are: paired weeks, or days, drawn again and again."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.whatif.test_what_if import CLUSTER
from tests.examples import examples
from tests.reference.block_waits import sums_by_block

from cranny.analysis.whatif import what_if
from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.resampling import DAY_S, WEEK_S, interval_of_mean, resampled_from, too_short
from cranny.analysis.whatif.tables import answer_tables
from cranny.analysis.whatif.wait_differences import BlockWaits, block_waits
from cranny.traces.trace import Trace


def frames(submit_s: list[float], **waits: list[float]) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    ids = [f"j{at}" for at in range(len(submit_s))]
    submitted = pl.DataFrame({"job_id": ids, "submit_s": submit_s})
    rows = range(len(ids))
    return {name: pl.DataFrame({"row": rows, "wait_s": each}) for name, each in waits.items()}, submitted


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.integers(-5, 45), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30),
    st.sampled_from([28.0, 30.5, 9.0, 3.0]),
)
def test_sums_are_those_of_the_literal_reference(drawn: list[tuple[int, int, int]], days: float) -> None:
    window = (0.0, days * DAY_S)
    submit_s = [day * DAY_S for day, _, _ in drawn]
    jobs, submitted = frames(submit_s, a=[float(one) for _, one, _ in drawn], b=[float(two) for *_, two in drawn])
    jobs["b"] = jobs["b"].sample(fraction=1.0, shuffle=True, seed=0)  # rows of cases are in any order
    found = block_waits(jobs, submitted, window, 0)
    length_s = WEEK_S if days >= 28 else DAY_S if days >= 7 else window[1]
    times = dict(zip(submitted["job_id"], submit_s, strict=True))
    for name in ("a", "b"):
        waits = {f"j{row}": wait_s for row, wait_s in jobs[name].rows()}
        expected = sums_by_block(times, waits, window, length_s)
        assert list(zip(found.jobs, found.wait_s[name], strict=True)) == expected
    assert found.resampled == (days >= 7)


def weeks(**wait_s: list[float]) -> BlockWaits:
    """Ten jobs in each of some weeks, with so many seconds of waiting a job."""
    means = {name: np.array(each) * 10 for name, each in wait_s.items()}
    return BlockWaits(np.full(len(next(iter(means.values()))), 10.0), means, resampled=True, seed=1)


def test_cases_are_compared_on_the_same_weeks() -> None:
    """Weeks differ by hours, the policies always by a minute: that is sure, however much weeks differ."""
    base = [0.0, 3600.0, 7200.0, 20000.0, 100.0, 50000.0]
    found = weeks(a=base, b=[each + 60.0 for each in base]).difference("b", "a")
    assert found.mean_s == pytest.approx(60.0)
    assert found.interval is not None
    assert [found.interval.low, found.interval.high] == pytest.approx([60.0, 60.0])
    assert found.is_clear


def test_a_difference_that_changes_its_sign_is_not_clear() -> None:
    found = weeks(a=[100.0] * 6, b=[0.0, 250.0, 20.0, 200.0, 90.0, 70.0]).difference("b", "a")
    assert found.mean_s == pytest.approx(630 / 6 - 100)
    assert found.interval is not None
    assert found.interval.has_zero
    assert not found.is_clear


def test_weeks_count_by_their_jobs_and_empty_ones_not_at_all() -> None:
    jobs = np.array([1.0, 0.0, 9.0, 0.0, 10.0])
    waits = BlockWaits(jobs, {"a": jobs * 0, "b": jobs * 40.0}, resampled=True, seed=0)
    found = waits.difference("b", "a")
    assert found.mean_s == pytest.approx(40.0)
    assert found.interval is not None
    assert [found.interval.low, found.interval.high] == pytest.approx([40.0, 40.0])
    assert interval_of_mean(np.array([1.0, 0.0]), np.array([1.0, 0.0]), 0) is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(200):
        jobs = rng.integers(20, 60, 8).astype(float)
        found = interval_of_mean(jobs * rng.normal(300.0, 120.0, 8), jobs, trial)
        assert found is not None
        hits += found.low <= 300.0 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_short_windows_take_days_and_shorter_ones_say_so() -> None:
    assert resampled_from((0.0, 4 * WEEK_S)) == "95 % interval from 4 resampled weeks"
    assert resampled_from((0.0, 4.5 * WEEK_S)) == "95 % interval from 5 resampled weeks"
    assert "resampled days, rather too narrow, as the window has only 27 whole days" in resampled_from(
        (0.0, 27.9 * DAY_S)
    )
    assert resampled_from((0.0, 6.9 * DAY_S)).startswith("no intervals: ")
    assert too_short((0.0, 1.5 * DAY_S)) == "the window has 1 whole day, and resampling takes 7"


def weekly() -> Trace:
    """Each week a long job of all GPUs, and a short one that is submitted during it and runs after it."""
    at_s = [week * WEEK_S + of_week for week in range(5) for of_week in (0.0, 4000.0)]
    start_s = [week * WEEK_S + of_week for week in range(5) for of_week in (0.0, 10_000.0)]
    columns = {"job_id": [f"j{at}" for at in range(10)], "submit_s": at_s, "start_s": start_s}
    frame = pl.DataFrame(columns | {"gpus": [8] * 10, "duration_s": [10_000.0, 500.0] * 5})
    return Trace("log", frame.cast({"gpus": pl.Int32}))


def test_the_answer_says_which_policy_and_how_sure() -> None:
    # cranny stops the long job for the short one: 500 s of waiting a week; best fit has 6,000, as the log has.
    answer = what_if(weekly(), CLUSTER, ["cranny", "best-fit", "titan"], search=False, processes=1)
    said = " ".join(findings(answer))
    assert (
        "The change of the mean wait from 'as it was' to cranny is clear (-46 min (-46 min to -46 min); "
        "95 % interval from 5 resampled weeks)." in said
    )
    assert "The mean wait with cranny is clearly shorter than with best-fit or titan." in said
    table = next(sheet for sheet in answer_tables(answer) if sheet.title == "Which policy, and how sure")
    assert [row[1:3] for row in table.rows] == [
        ["-46 min (-46 min to -46 min)", "best"],
        ["+0 s (+0 s to +0 s)", "+46 min (+46 min to +46 min)"],
        ["+0 s (+0 s to +0 s)", "+46 min (+46 min to +46 min)"],
    ]
    pairs = {(each["case"], each["than"]): each for each in answer.facts()["details"]["wait_differences"]}
    assert pairs["cranny", "best-fit"]["mean_s"] == pytest.approx(250.0 - 3000.0)
    assert pairs["cranny", "best-fit"]["interval_s"] == pytest.approx([-2750.0, -2750.0])
    assert len(pairs) == 4 * 3
    alike = " ".join(findings(what_if(weekly(), CLUSTER, ["best-fit", "titan"], search=False, processes=1)))
    assert "The mean wait with best-fit is that of 'as it was'." in alike
    assert "The mean wait with best-fit is equal to that with titan." in alike
