import numpy as np
import pytest

from benchmarks import netpack_quality


def test_no_policy_is_better_than_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netpack_quality, "CASES", 4)
    monkeypatch.setattr(netpack_quality, "POLICIES", ("best-fit", "random"))
    measured = netpack_quality.run()
    assert measured.metrics["proven_share"] == 1.0
    for name in ("max-min", "best-fit", "random"):
        assert 1.0 - 1e-6 <= measured.metrics[f"{name}_mean"] <= measured.metrics[f"{name}_worst"]
    for name in ("best-fit", "random"):
        assert measured.metrics[f"{name}_mean_to_best"] >= 1.0 - 1e-6
        assert 1.0 - 1e-6 <= measured.metrics[f"{name}_mean_central"] <= measured.metrics[f"{name}_mean"] + 1e-6
    assert measured.metrics["best-fit_mean"] < measured.metrics["random_mean"]


def test_the_jobs_of_a_case_fit_together() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        state, jobs = netpack_quality.random_case(rng)
        assert sum(job.gpus for job in jobs) <= state.free.sum()
        assert all(job.gpus >= 2 for job in jobs)
