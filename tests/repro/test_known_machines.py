"""Values that were measured independently: used machines at arrivals on Microsoft's log, all clusters merged."""

from pathlib import Path

import pytest

from cranny.repro.experiment import Cell
from cranny.repro.titan.paper import TEXT
from cranny.repro.titan.replays import Setup, TraceRun, scenario
from cranny.run import run


@pytest.mark.parametrize(("policy", "machines"), [("fragments-first", 168.7), ("consolidate-idle", 329.3)])
def test_used_machines_are_within_3_percent(shared: Path, policy: str, machines: float) -> None:
    file = str(shared / "traces" / "elasticflow_itp.parquet")
    source = TEXT.traces[0].model_copy(update={"jobs": 100_000, "file": file})
    found = TraceRun.of(run(scenario({"itp": source}, Cell(Setup("itp", "instant"), policy, 0))))
    assert found.jobs == 69_351
    assert found.measures["mean_used_machines"] == pytest.approx(machines, rel=0.03)
    assert len(found.lines["used_machines"]) == len(found.times_s)
