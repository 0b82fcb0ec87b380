import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cranny.model.errors import InputError
from cranny.traces.generate import _data, _workload, generate_trace, presets
from cranny.traces.inspect import describe
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

JOBS = 200_000
# Percent of GPU jobs by size, as published; see `data/workloads.json` for the sources.
SHARES = {
    "philly": {
        "1": 86.58,
        "2": 2.27,
        "4": 4.94,
        "8": 5.16,
        "16": 0.77,
        "32": 0.19,
        "64": 0.03,
        "other": 0.06,
    },
    "itp": {"1": 83.17, "2": 2.14, "4": 3.42, "8": 10.11, "16": 0.55, "32": 0.51, "64": 0.10, "other": 0.0},
}


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {name: generate_trace(name, JOBS, seed=11) for name in presets()}


def within(percent: float) -> float:
    return percent / 100


@pytest.mark.parametrize("name", SHARES)
def test_shares_by_size_lie_within_a_quarter_point(traces: dict[str, Trace], name: str) -> None:
    shares = describe(traces[name])["share_by_size_percent"]
    for size, published in SHARES[name].items():
        assert shares[size] == pytest.approx(published, abs=0.25), size


@pytest.mark.parametrize("name", SHARES)
def test_durations_and_gpu_hours_are_those_published(traces: dict[str, Trace], name: str) -> None:
    published: dict[str, float] = _data()[name]["published"]
    found = describe(traces[name])
    assert found["median_duration_s"] == pytest.approx(published["median_s"], rel=within(4))
    assert found["mean_duration_s"] == pytest.approx(published["mean_s"], rel=within(4))
    assert found["p90_duration_s"] == pytest.approx(published["p90_s"], rel=within(5))
    assert found["mean_gap_s"] == pytest.approx(published["mean_gap_s"], rel=within(0.1))
    gpu_hours_a_job = published["gpu_hours"] / _data()[name]["jobs"]
    assert found["gpu_hours"] / JOBS == pytest.approx(gpu_hours_a_job, rel=within(5))


@pytest.mark.parametrize("name", ["acme-seren", "acme-kalos"])
def test_acme_durations_follow_the_published_curve(traces: dict[str, Trace], name: str) -> None:
    curve = _data()[name]["duration"]
    duration_s = traces[name].frame["duration_s"].to_numpy()
    for level, seconds in list(zip(curve["levels"], curve["seconds"], strict=True))[1:]:
        assert (duration_s <= seconds).mean() == pytest.approx(level, abs=0.005), seconds


@pytest.mark.parametrize("name", ["acme-seren", "acme-kalos"])
def test_acme_gpu_time_by_size_is_calibrated(name: str) -> None:
    # Of the curves and not of drawn jobs: a few long jobs of 1,024 GPUs make any sample's shares jump.
    workload = _workload(name)
    means = np.array([curve.mean() for curve in workload.curves])
    gpu_time = np.bincount(workload.curve_of, weights=workload.weights * workload.gpus * means[workload.curve_of])
    shares = 100 * gpu_time / gpu_time.sum()
    assert shares == pytest.approx([group["percent"] for group in _data()[name]["gpu_time"]], abs=0.5)


def test_kalos_has_its_published_mean_and_median(traces: dict[str, Trace]) -> None:
    found = describe(traces["acme-kalos"])
    assert found["mean_duration_s"] == pytest.approx(1259.7, rel=within(8))
    assert found["median_duration_s"] == pytest.approx(124, rel=within(3))
    assert found["mean_gpus"] == pytest.approx(26.77, rel=within(3))


def test_kalos_spends_its_published_gpu_time() -> None:
    # GPU-seconds of its 19,907 jobs in the project's summary, on which nothing here was calibrated.
    workload = _workload("acme-kalos")
    means = np.array([curve.mean() for curve in workload.curves])[workload.curve_of]
    assert workload.weights * workload.gpus @ means == pytest.approx(5_333_180_061 / 19_907, rel=within(1))


def test_acme_mixes_its_clusters_by_their_jobs(traces: dict[str, Trace]) -> None:
    ones = {name: describe(traces[name])["share_by_size_percent"]["1"] for name in presets() if "acme" in name}
    seren = 450_590 / 470_497
    expected = seren * ones["acme-seren"] + (1 - seren) * ones["acme-kalos"]
    assert ones["acme"] == pytest.approx(expected, abs=0.5)


def test_sizes_that_are_no_powers_of_two_stay(traces: dict[str, Trace]) -> None:
    assert {24, 12, 128} <= set(traces["philly"].frame["gpus"].to_list())
    assert {504, 496, 320} <= set(traces["acme-kalos"].frame["gpus"].to_list())


def test_arrivals_have_a_daily_cycle_and_come_in_bursts(traces: dict[str, Trace]) -> None:
    submit_s = traces["philly"].frame["submit_s"].to_numpy()
    by_hour = np.bincount((submit_s // 3600 % 24).astype(int)) / JOBS * 24
    assert np.corrcoef(by_hour, _data()["philly"]["hour_of_day"])[0, 1] > 0.9
    by_day = np.bincount((submit_s // 86400 % 7).astype(int)) / JOBS * 7
    assert np.corrcoef(by_day, _data()["philly"]["day_of_week"])[0, 1] > 0.9
    gaps = np.diff(submit_s)
    assert gaps.std() / gaps.mean() > 2  # 1 for a Poisson process
    poisson = np.diff(traces["acme"].frame["submit_s"].to_numpy())
    assert poisson.std() / poisson.mean() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", ["philly", "itp", "acme", "acme-seren", "acme-kalos"])
def test_same_seed_same_bytes(tmp_path: Path, name: str) -> None:
    def written(seed: int) -> str:
        path = tmp_path / f"{seed}.csv"
        generate_trace(name, 3000, seed=seed).write(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    assert written(5) == written(5)
    assert written(5) != written(6)


def test_ids_are_numbered_and_times_are_sound() -> None:
    frame = generate_trace("philly", 50).frame
    assert frame["job_id"].to_list()[:2] == ["philly-000001", "philly-000002"]
    assert frame["job_id"].n_unique() == 50
    assert frame["submit_s"][0] == 0
    assert frame["submit_s"].is_sorted()
    assert frame.filter(pl.col("duration_s") <= 0).is_empty()


def test_generated_traces_pass_our_own_checks(tmp_path: Path) -> None:
    trace = generate_trace("acme", 2000)
    trace.write(tmp_path / "acme.csv")
    assert read_trace(tmp_path / "acme.csv").frame.equals(trace.frame)


@pytest.mark.parametrize("jobs", [2, 100, 20_000])
def test_load_sets_how_much_of_the_gpus_is_asked_for(jobs: int) -> None:
    trace = generate_trace("itp", jobs, load=0.85, gpus=4096)
    assert describe(trace)["mean_requested_gpus"] == pytest.approx(0.85 * 4096, rel=1e-3)


def test_no_job_is_larger_than_asked() -> None:
    assert generate_trace("acme", 5000, max_gpus=64).frame["gpus"].max() == 64
    assert generate_trace("acme", 5000, gpus=100).frame["gpus"].max() == 96
    assert generate_trace("acme", 50_000, gpus=100, max_gpus=1024).frame["gpus"].max() == 1024
    assert set(generate_trace("itp", 500, max_gpus=1).frame["gpus"]) == {1}


def test_one_job_is_a_trace() -> None:
    assert generate_trace("itp", 1).frame["submit_s"].to_list() == [0.0]
    assert generate_trace("itp", 1, load=0.5, gpus=8).frame["submit_s"].to_list() == [0.0]


def test_itp_goes_by_the_name_of_its_release() -> None:
    assert generate_trace("elasticflow_itp", 5).name == "itp"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "phily"}, "unknown preset 'phily'; did you mean 'philly'?"),
        ({"jobs": 0}, "jobs must be a whole number from 1 to 100000000, not 0"),
        ({"jobs": 2.5}, "jobs must be a whole number from 1 to 100000000, not 2.5"),
        ({"seed": -1}, "seed must be a whole number from 0 to"),
        ({"load": 0.8}, "load needs gpus"),
        ({"load": 0.0, "gpus": 8}, "load must be a positive number, such as 0.85, not 0.0"),
        ({"load": float("nan"), "gpus": 8}, "load must be a positive number, such as 0.85, not nan"),
        ({"load": 0.8, "gpus": 0}, "gpus must be a whole number from 1 to"),
        ({"max_gpus": 0}, "max_gpus must be a whole number from 1 to 1000000, not 0"),
    ],
)
def test_rejects_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        generate_trace(**{"preset": "philly", "jobs": 10, **arguments})
    assert str(caught.value).startswith(message)


def test_every_preset_names_its_source_and_licence() -> None:
    assert list(presets()) == ["philly", "itp", "acme-seren", "acme-kalos", "acme"]
    for preset in presets().values():
        assert preset.description
        assert preset.source
        assert preset.licence in ("MIT", "CC BY 4.0")


@pytest.mark.parametrize(("name", "file"), [("philly", "philly"), ("itp", "elasticflow_itp")])
def test_generated_jobs_resemble_the_real_ones(
    shared: Path, traces: dict[str, Trace], name: str, file: str
) -> None:
    real = read_trace(shared / "traces" / f"{file}.parquet").frame
    made = traces[name].frame
    assert distance(real["duration_s"], made["duration_s"]) < 0.02
    for gpus in (1, 2, 4, 8):
        of_size = pl.col("gpus") == gpus
        assert distance(real.filter(of_size)["duration_s"], made.filter(of_size)["duration_s"]) < 0.03, gpus
    spent = {}
    for which, frame in (("real", real), ("made", made)):
        asked = frame["gpus"].to_numpy()
        gpu_s = asked * frame["duration_s"].to_numpy()
        spent[which] = [100 * gpu_s[asked == size].sum() / gpu_s.sum() for size in (1, 4, 8, 16)]
    assert spent["made"] == pytest.approx(spent["real"], abs=2)


def test_arrivals_surge_from_hour_to_hour_as_real_ones_do(shared: Path) -> None:
    real = read_trace(shared / "traces" / "elasticflow_itp.parquet").frame["submit_s"].to_numpy()
    made = [generate_trace("itp", len(real), seed=seed).frame["submit_s"].to_numpy() for seed in range(5)]
    spread, memory, busiest = np.mean([surges(times) for times in made], axis=0) / surges(real)
    assert 0.7 < spread < 1.4
    assert 0.6 < memory < 1.4
    assert 0.6 < busiest < 1.7


def surges(submit_s: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the spread of jobs an hour, its correlation with the hour before, and the busiest hour."""
    jobs = np.bincount((submit_s // 3600).astype(int))
    memory = np.corrcoef(jobs[:-1], jobs[1:])[0, 1]
    return np.array([jobs.var() / jobs.mean(), memory, jobs.max() / jobs.mean()])


@pytest.mark.parametrize("cluster", ["seren", "kalos"])
def test_acme_resembles_the_figures_of_its_project(shared: Path, traces: dict[str, Trace], cluster: str) -> None:
    curves = json.loads((shared / "traces" / "acme_published_cdfs.json").read_text())
    gpus = traces[f"acme-{cluster}"].frame["gpus"].to_numpy()
    points = curves["gpu_num_by_jobs"][cluster]
    for (before, _), (at, percent) in pairwise(points):
        if at != before + 1:  # between steps the curve does not name the sizes
            continue
        assert 100 * (gpus <= at).mean() == pytest.approx(percent, abs=0.4), at


def distance(a: pl.Series, b: pl.Series) -> float:
    """Return the largest gap between two cumulative distributions (Kolmogorov and Smirnov)."""
    points = np.sort(a.to_numpy())
    real = np.arange(1, len(points) + 1) / len(points)
    made = np.searchsorted(np.sort(b.to_numpy()), points, side="right") / len(b)
    last_of_ties = np.append(np.diff(points) > 0, [True])
    return float(np.abs(real - made)[last_of_ties].max())
