import json
from pathlib import Path

import polars as pl
import pytest

from cranny.workload.inspect import describe
from cranny.workload.read import read_trace
from cranny.workload.trace import Trace


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
    pods = read_trace(shared / "traces" / "alibaba_openb2023.parquet", skip_bad_rows=True)
    assert pods.left_out["CPU-only (gpus 0)"] == 1088
    assert len(pods) + sum(pods.left_out.values()) == 8152
    attempts = read_trace(shared / "traces" / "philly_attempts.parquet", skip_bad_rows=True)
    assert attempts.left_out == {"job_id: repeated": 40_386}
    muri = read_trace(shared / "traces" / "muri_philly.parquet")
    assert "dqn 1369" in muri.notes[0]
