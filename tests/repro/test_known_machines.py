"""Values that were measured independently: used machines at arrivals on Microsoft's log, all clusters merged."""

from pathlib import Path

import pytest

from cranny.model.cluster import Cluster
from cranny.repro.titan.replays import JobSource, TraceCell, replay

CLUSTER = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8, link_gbps=100.0)


@pytest.mark.parametrize(("policy", "machines"), [("fragments-first", 168.7), ("consolidate-idle", 329.3)])
def test_used_machines_are_within_3_percent(shared: Path, policy: str, machines: float) -> None:
    source = JobSource(100_000, shared / "traces" / "elasticflow_itp.parquet")
    run = replay(TraceCell("itp", policy, "instant", 0), CLUSTER, {"itp": source})
    assert run.jobs == 69_351
    assert run.summary["mean_used_machines"] == pytest.approx(machines, rel=0.03)
    assert len(run.lines["used_machines"]) == len(run.times_s)
