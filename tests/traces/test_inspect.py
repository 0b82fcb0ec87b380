import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.model.errors import InputError
from cranny.traces.inspect import assumed, describe, requested
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace


def three_jobs() -> Trace:
    return Trace.from_frame(
        pl.DataFrame(
            {
                "job_id": ["a", "b", "c"],
                "submit_s": [10.0, 12.0, 30.0],
                "gpus": [1, 3, 128],
                "duration_s": [10.0, 2.0, 36.0],
                "model": ["vgg16", None, None],
            }
        )
    )


def test_describes_a_trace_that_can_be_counted_by_hand() -> None:
    found = describe(three_jobs(), buckets=2)
    assert found["jobs"] == 3
    third = pytest.approx(100 / 3)
    assert found["share_by_size_percent"] == {
        "1": third, "2": 0, "4": 0, "8": 0, "16": 0, "32": 0, "64": 0, ">64": third, "other": third,
    }  # fmt: skip
    assert found["largest_job_gpus"] == 128
    assert found["median_duration_s"] == 10
    assert found["mean_duration_s"] == 16
    assert found["mean_gap_s"] == 10
    assert found["gpu_hours"] == pytest.approx((10 + 6 + 128 * 36) / 3600)
    assert found["days"] == pytest.approx(20 / 86400)
    # One GPU for ten seconds and three for two, then nothing until the last job comes.
    assert found["requested_gpus"] == pytest.approx([1.6, 0])
    assert found["peak_requested_gpus"] == 128
    assert found["jobs_without_model"] == 2
    json.dumps(found)


def test_a_gpu_given_back_and_taken_at_once_counts_once() -> None:
    frame = pl.DataFrame(
        {"job_id": ["a", "b", "z"], "submit_s": [0, 5, 5], "gpus": [2, 3, 50], "duration_s": [5, 5, 0]}
    )
    assert describe(Trace.from_frame(frame))["peak_requested_gpus"] == 3


def test_describes_a_single_job() -> None:
    found = describe(three_jobs().slice(count=1))
    assert found["mean_gap_s"] is None
    assert found["requested_gpus"] == []
    assert found["mean_requested_gpus"] is None


@pytest.mark.parametrize("column", ["duration_s", "submit_s"])
def test_refuses_times_that_cannot_be_added_up(column: str) -> None:
    frame = three_jobs().frame.with_columns(pl.lit(1.7e308).alias(column))
    with pytest.raises(InputError, match="trace: its times are too large to be added up"):
        describe(Trace("trace", frame))


def test_tells_how_long_jobs_waited_where_the_log_does() -> None:
    frame = three_jobs().frame.with_columns(start_s=pl.Series([14.0, None, 29.0]))
    found = describe(Trace.from_frame(frame))
    # The third starts before it was submitted, which is no wait.
    assert (found["jobs_with_wait"], found["median_wait_s"], found["mean_wait_s"], found["p99_wait_s"]) == (
        1,
        4,
        4,
        4,
    )
    assert describe(three_jobs())["median_wait_s"] is None


def test_says_what_is_assumed_where_the_log_is_silent() -> None:
    assert assumed(three_jobs()) == [
        "the model of 2 of 3 jobs is drawn by seed when they are simulated",
        "all 3 jobs communicate by ring, unless --collective says otherwise",
        "all 3 jobs run on any type of GPU",
        "a duration is that of a job with all workers on one machine; links between machines add to it",
        "nothing about how long all 3 jobs waited: their start is not in the log",
    ]


def test_assumes_little_of_a_log_that_tells_all() -> None:
    told = {"model": "vgg16", "collective": "ring", "gpu_type": "h200", "start_s": 50.0}
    full = three_jobs().frame.with_columns(pl.lit(value).alias(name) for name, value in told.items())
    assert len(assumed(Trace.from_frame(full))) == 1


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9), st.integers(0, 30)), min_size=2, max_size=30).filter(
        lambda jobs: len({submit for submit, _, _ in jobs}) > 1
    ),
    st.integers(1, 40),
)
def test_gpus_held_agree_with_a_count_second_by_second(jobs: list[tuple[int, int, int]], capacity: int) -> None:
    submit_s, gpus, duration_s = zip(*jobs, strict=True)
    ids = [str(index) for index in range(len(jobs))]
    frame = pl.DataFrame({"job_id": ids, "submit_s": submit_s, "gpus": gpus, "duration_s": duration_s})
    held = requested(Trace.from_frame(frame))
    first, last = min(submit_s), max(submit_s)
    each = [
        sum(size for begin, size, length in jobs if begin <= second < begin + length)
        for second in range(first, last + 1)
    ]
    assert held.value.max() == max(each)
    seconds = np.arange(first, last + 1, dtype=np.float64)
    assert held.means(seconds) == pytest.approx(each[:-1])
    over = sum(now > capacity for now in each[:-1]) / (last - first)
    assert held.above(capacity).means(seconds[[0, -1]])[0] == pytest.approx(over)


# As tabulated for the published logs: jobs, median s, mean s, p90 s, gap s, GPU-hours, days.
@pytest.mark.parametrize(
    ("file", "figures"),
    [
        ("elasticflow_itp", (69_351, 10_537, 18_722, 28_787, 74.6, 1_632_720, 59.9)),
        ("elasticflow_195", (195, 15_625, 25_925, 43_999, 886.8, 5_490, 2.0)),
        ("philly", (111_430, 1_235, 32_402, 31_391, 106.2, 3_238_311, 136.9)),
        ("alibaba_pai2020_sample", (60_105, 618, 5_029, 12_201, 91.5, 687_854, 63.7)),
        ("acme_kalos_head800", (800, 246, 6_991, 2_136, 2_132.2, 155_937, 19.7)),
    ],
)
def test_finds_the_tabulated_figures_of_real_traces(shared: Path, file: str, figures: tuple[float, ...]) -> None:
    found = describe(read_trace(shared / "traces" / f"{file}.parquet"))
    names = (
        "jobs",
        "median_duration_s",
        "mean_duration_s",
        "p90_duration_s",
        "mean_gap_s",
        "gpu_hours",
        "days",
    )
    assert [found[name] for name in names] == pytest.approx(figures, rel=5e-3)


def test_clusters_of_the_itp_release_are_told_apart(shared: Path) -> None:
    trace = read_trace(shared / "traces" / "elasticflow_itp.parquet").where(cluster="cluster04")
    found = describe(trace)
    assert found["jobs"] == 15_802
    assert found["peak_requested_gpus"] == 2025


def test_real_tables_with_gaps_need_leave_to_skip(shared: Path) -> None:
    pods = read_trace(shared / "traces" / "alibaba_openb2023.parquet", strict=False)
    assert pods.skipped["CPU-only (gpus 0)"] == 1088
    assert len(pods) + sum(pods.skipped.values()) == 8152
    attempts = read_trace(shared / "traces" / "philly_attempts.parquet", strict=False)
    assert attempts.skipped == {"job_id: repeated": 40_386}
    muri = read_trace(shared / "traces" / "muri_philly.parquet")
    assert "dqn 1369" in muri.notes[0]
