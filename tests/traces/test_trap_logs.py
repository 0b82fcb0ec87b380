"""Logs as they really are: what is read of ten logs with traps equals what is true."""

from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from tests.reference.log_truth import Truth, covered_s, truth
from tests.traces.trap_logs import TRAPS, Trap

from cranny.traces.read import read_trace
from cranny.traces.trace import Trace
from cranny.traces.window import cut
from cranny.traces.zones import parse_moment

HOUR_S = 3600.0


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_the_independent_script_agrees_with_what_was_worked_out_by_hand(trap: Trap) -> None:
    assert truth(trap.log, trap.zone, trap.begin, trap.finish) == trap.true


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_what_is_read_of_a_log_is_true(trap: Trap, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(trap.log, encoding="utf-8")
    assert numbers(in_window(read_trace(path, zone=trap.zone), trap)) == trap.true


def in_window(trace: Trace, trap: Trap) -> Trace:
    """Cut a trace to the window of a trap."""
    if trap.begin is None or trap.finish is None:
        return trace
    assert trace.zero_epoch_s is not None
    edges = [parse_moment(text, trap.zone) - trace.zero_epoch_s for text in (trap.begin, trap.finish)]
    return cut(trace, *edges)


def numbers(trace: Trace) -> Truth:
    """Take from a trace what a log says."""
    frame = trace.frame
    eligible_s = pl.coalesce("eligible_s", "submit_s")
    is_counted = pl.col("counted") if "counted" in frame.columns else pl.lit(value=True)
    waits_s = frame.filter(is_counted).select(wait_s=pl.col("start_s") - eligible_s)["wait_s"]
    busy: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in frame.iter_rows(named=True):
        for machine in row["ran_on"].split():
            start_s = max(row["start_s"], 0.0)
            busy[machine.partition(":")[0]].append((start_s, start_s + row["duration_s"]))
    return Truth(
        len(trace),
        float((frame["gpus"] * frame["duration_s"]).sum()) / HOUR_S,
        len(waits_s),
        float(waits_s.mean()) if len(waits_s) else 0.0,  # type: ignore[arg-type]
        sum(map(covered_s, busy.values())) / HOUR_S,
    )
