"""Jobs of a log wait only behind jobs that could use the same machines, in every way to replay it."""

from importlib import import_module
from pathlib import Path

import polars as pl
import pytest
from tests.traces.trap_logs import log, row

from cranny.analysis.whatif import what_if
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

DAY = "2026-03-02T"


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Return a log: an A100 job holds all A100s for ten hours, another waits for them, and V100 jobs come."""
    path = tmp_path / "sacct.txt"
    path.write_text(
        log(
            row("1", f"{DAY}08:00:00", f"{DAY}08:00:00", f"{DAY}18:00:00", "a1", "gpu:A100=8", Partition="a100"),
            row("2", f"{DAY}08:01:00", f"{DAY}18:00:00", f"{DAY}19:00:00", "a1", "gpu:A100=8", Partition="a100"),
            row("3", f"{DAY}08:02:00", f"{DAY}08:02:00", f"{DAY}09:02:00", "v1", "gpu:V100=8", Partition="v100"),
            row("4", f"{DAY}08:03:00", f"{DAY}09:02:00", f"{DAY}10:02:00", "v1", "gpu=8", Partition="v100"),
        ),
        encoding="utf-8",
    )
    return read_trace(path, zone="UTC")


def waits_s(trace: Trace, order: str | None) -> dict[str, float]:
    machines = (Machine("a1", 8, "a100"), Machine("v1", 8, "v100"))
    cluster = Cluster.of(Switch("rack", machines, (100.0, 100.0)), {"a100": ["a1"], "v100": ["v1"]})
    answer = what_if(trace, cluster, ["best-fit"], order=order, search=False, processes=1)
    jobs = answer.results[0].jobs.select("job_id", pl.col("wait_s"))
    return dict(jobs.iter_rows())


WAITS = {"1": 0.0, "2": 10 * 3600.0 - 60, "3": 0.0, "4": 3600.0 - 60}


@pytest.mark.parametrize("order", ["fifo", "backfill", "conservative", "priority", None])
def test_a_v100_job_does_not_wait_behind_an_a100_job(trace: Trace, order: str | None) -> None:
    assert waits_s(trace, order) == WAITS


def test_it_does_not_as_large_logs_are_replayed_either(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """In compiled code, where that knows partitions."""
    monkeypatch.setattr(import_module("cranny.run"), "COMPILE_FROM", 1)
    assert waits_s(trace, None) == WAITS
