"""Machines on which skipped jobs were: read, cut to windows, kept on and kept in the cluster."""

from pathlib import Path

import polars as pl
import pytest
from tests.traces.trap_logs import log, row

import cranny
from cranny.analysis.whatif.skipped_presence import KeptMachines, Presence
from cranny.analysis.whatif.what_if import what_if
from cranny.model.cluster import Cluster
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace
from cranny.traces.type_matching import with_types_of
from cranny.traces.window import cut

DAY = "2026-03-02T"
HOUR_S = 3600.0
FOUR = Cluster.fat_tree(1, 4, 8)
NAMES = [machine.name for machine in FOUR.machines]


def read(tmp_path: Path, *rows: str) -> Trace:
    path = tmp_path / "sacct.txt"
    path.write_text(log(*rows), encoding="utf-8")
    return read_trace(path, zone="UTC")


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Return one GPU-hour of a job each at 08:00 and 18:00 on the first machine, and CPU jobs on the others."""
    return read(
        tmp_path,
        row("1", f"{DAY}08:00:00", f"{DAY}08:00:00", f"{DAY}09:00:00", NAMES[0], "gpu=1"),
        row("2", f"{DAY}18:00:00", f"{DAY}18:00:00", f"{DAY}19:00:00", NAMES[0], "gpu=1"),
        row("3", f"{DAY}08:00:00", f"{DAY}08:00:00", "Unknown", NAMES[1], "", state="RUNNING"),
        row("4", f"{DAY}09:00:00", f"{DAY}09:00:00", f"{DAY}12:00:00", f"{NAMES[1]},{NAMES[2]}", "", NNodes="2"),
        row("5", f"{DAY}13:00:00", f"{DAY}13:00:00", f"{DAY}14:00:00", NAMES[2], ""),
        row("6", f"{DAY}13:00:00", f"{DAY}13:00:00", f"{DAY}14:00:00", "login1", ""),
    )


def test_it_is_of_machines_of_the_cluster_and_no_job_is_lost(trace: Trace) -> None:
    window = (0.0, 10 * HOUR_S)
    found = Presence.of(trace, FOUR, None)
    assert found.skipped.sort("machine", "start_s").rows() == [
        (1, 0.0, 11 * HOUR_S),  # still runs: to the last time of the log
        (1, HOUR_S, 4 * HOUR_S),
        (2, HOUR_S, 4 * HOUR_S),
        (2, 5 * HOUR_S, 6 * HOUR_S),
    ]
    assert found.machine_hours(FOUR, window) == pytest.approx(10 + 3 + 1)
    assert found.kept(FOUR, window) == KeptMachines(frozenset({1, 2}), 2)
    assert Presence.of(
        cut(trace, 17 * HOUR_S - 8 * HOUR_S, 20 * HOUR_S - 8 * HOUR_S), FOUR, None
    ).skipped.rows() == [
        (1, 0.0, 3 * HOUR_S)  # it still runs at the end of the window
    ]


def test_such_machines_are_off_in_no_row_and_go_last(trace: Trace) -> None:
    answer = what_if(trace, FOUR, ["best-fit"], processes=1)
    for case in answer.cases:
        assert case.machines is not None
        assert case.machines.used_hours == pytest.approx(1 + 10 + 4)
        assert case.machines.off_hours == pytest.approx(40 - 15)
    (search,) = answer.searches
    assert search.removal.machines == 2  # two stay, for the jobs without GPUs
    assert max(search.removal.tried) == 2
    assert answer.removed_last == {1, 2}
    assert any("for 14.0 machine-hours by the log" in line for line in answer.assumptions)


def test_money_keeps_them_on_too(trace: Trace) -> None:
    answer = what_if(trace, FOUR, ["best-fit"], search=False, processes=1, price_per_gpu_hour=1.0)
    off_hours = {name: float(cost.off_hours.sum()) for name, cost in answer.details.costs.items()}
    assert off_hours == {name: pytest.approx(25.0) for name in ("as it was", "best-fit")}


def test_jobs_of_unknown_types_that_are_skipped_are_there(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        row("1", f"{DAY}08:00:00", f"{DAY}08:00:00", f"{DAY}09:00:00", NAMES[0], "gpu:a100=1"),
        row("2", f"{DAY}08:00:00", f"{DAY}08:00:00", f"{DAY}09:00:00", NAMES[1], "gpu:h100=1"),
    )
    left = with_types_of(trace, ["a100"], skip_unknown=True)
    assert left.presence["ran_on"].to_list() == [f"{NAMES[1]}:1"]


def test_tables_of_ours_tell_it_too() -> None:
    columns = {"job_id": ["a", "b"], "submit_s": [5.0, 5.0], "gpus": [1, 0], "duration_s": [60.0, 90.0]}
    table = pl.DataFrame({**columns, "start_s": [5.0, 7.0], "ran_on": ["n1:1", "n2"]})
    trace = cranny.Trace.from_frame(table)
    assert trace.presence.select("ran_on", "start_s", "duration_s").rows() == [("n2", 7.0, 90.0)]
    assert trace.slice(from_zero=True).presence["start_s"].to_list() == [2.0]
