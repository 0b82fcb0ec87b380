"""Values that were measured independently: used machines at arrivals on Microsoft's log, all clusters merged."""

from pathlib import Path

import pytest

from cranny.model.cluster import Cluster
from cranny.repro.cells import Cell, Setting, Source, run_cell

CLUSTER = Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8, link_gbps=100.0)


@pytest.mark.parametrize(("policy", "machines"), [("fragments-first", 168.7), ("consolidate-idle", 329.3)])
def test_used_machines_are_within_3_percent(shared: Path, policy: str, machines: float) -> None:
    source = Source(100_000, shared / "traces" / "elasticflow_itp.parquet")
    setting = Setting(CLUSTER, {"itp": source}, ("used_machines",))
    kept = run_cell(Cell("itp", policy, "instant", 0), setting)
    assert kept.jobs == 69_351
    assert kept.summary["mean_used_machines"] == pytest.approx(machines, rel=0.03)
    assert len(kept.lines["used_machines"]) == len(kept.times_s)
