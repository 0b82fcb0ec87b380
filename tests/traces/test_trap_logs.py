"""Logs as they really are: what is read of logs with traps, and what a what-if makes of them, is true."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from tests.reference.log_truth import (
    Hours,
    Stretches,
    Truth,
    all_runs,
    covered_s,
    in_use,
    machine_hours,
    table,
    truth,
    window_s,
)
from tests.traces.trap_logs import TRAPS, Trap, a100, log, row

from cranny.analysis.whatif.answer import WhatIfAnswer, WhatIfCase
from cranny.analysis.whatif.what_if import what_if
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace
from cranny.traces.window import cut
from cranny.traces.zones import parse_moment

HOUR_S = 3600.0
PRICE = 2.0  # of a GPU-hour


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_the_independent_script_agrees_with_what_was_worked_out_by_hand(trap: Trap) -> None:
    assert truth(trap.log, trap.zone, trap.begin, trap.finish) == trap.true


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_what_is_read_of_a_log_is_true(trap: Trap, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(trap.log, encoding="utf-8")
    assert numbers(in_window(read_trace(path, zone=trap.zone), trap)) == trap.true


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_what_if_says_of_a_log_what_is_true(trap: Trap, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(trap.log, encoding="utf-8")
    trace = in_window(read_trace(path, zone=trap.zone), trap)
    answer = asked(trace, trap.machines)
    window = in_epoch(answer, trace)
    rows, where = table(trap.log), ZoneInfo(trap.zone)
    runs = all_runs(rows, where, window_s(trap.log, trap.zone, trap.begin, trap.finish)[1])
    gpus = {name: own for name, (own, _) in trap.machines.items()}
    was = machine_hours(in_use(runs, *window), gpus, *window)
    assert found(answer.was) == pytest.approx(was)
    waits = answer.was.waits
    assert waits is not None
    assert waits.jobs == trap.true.waited
    assert waits.wait.mean_s == pytest.approx(trap.true.mean_wait_s)
    assert answer.as_it_was is not None
    assert {name: tuple(each) for name, each in answer.as_it_was.unplaced.items()} == trap.unplaced
    (policy,) = answer.policies
    skipped = [run for run in runs if not run.gpus]
    then = machine_hours(with_replay(in_use(skipped, *window), answer, trace), gpus, *window)
    assert found(policy) == pytest.approx(then)
    if policy.name not in answer.details.savings.late:
        assert saved(answer) == pytest.approx(PRICE * (then.off_gpus - was.off_gpus))


def test_a_saving_worked_out_by_hand(tmp_path: Path) -> None:
    """Two jobs of four GPUs on two machines for ten hours fit on one: ten hours of eight GPUs at two dollars."""
    path = tmp_path / "sacct.txt"
    day = "2026-03-02T"
    path.write_text(
        log(
            row("1", f"{day}08:00:00", f"{day}08:00:00", f"{day}18:00:00", "n1", "gpu=4"),
            row("2", f"{day}08:00:00", f"{day}08:00:00", f"{day}18:00:00", "n2", "gpu=4"),
            row("3", f"{day}18:00:00", f"{day}18:00:00", f"{day}19:00:00", "n1", "gpu=4"),
        ),
        encoding="utf-8",
    )
    answer = asked(read_trace(path, zone="UTC"), a100("n1", "n2"))
    (policy,) = answer.policies
    assert found(answer.was) == (20.0, 0.0, 0.0, 0.0)
    assert found(policy) == (10.0, 10.0, 10.0, 80.0)
    assert saved(answer) == pytest.approx(160.0)


def asked(trace: Trace, machines: Mapping[str, tuple[int, str]]) -> WhatIfAnswer:
    """Ask what a log would have been with best fit, on machines of one rack."""
    own = tuple(Machine(name, gpus, gpu_type) for name, (gpus, gpu_type) in machines.items())
    cluster = Cluster.of(Switch("rack", own, (100.0,) * len(own)))
    return what_if(trace, cluster, ["best-fit"], search=False, processes=1, price_per_gpu_hour=PRICE)


def found(case: WhatIfCase) -> Hours:
    """Take the machine-hours of a case."""
    hours = case.machines
    assert hours is not None
    return Hours(hours.used_hours, hours.idle_hours, hours.off_hours, hours.off_gpu_hours)


def saved(answer: WhatIfAnswer) -> float:
    """Return what the policy saves over the window."""
    return answer.details.savings.of_case["best-fit"].whole.a_day * answer.days


def in_epoch(answer: WhatIfAnswer, trace: Trace) -> tuple[float, float]:
    """Return the window of an answer in seconds since 1970."""
    assert trace.zero_epoch_s is not None
    return answer.window[0] + trace.zero_epoch_s, answer.window[1] + trace.zero_epoch_s


def with_replay(busy: Stretches, answer: WhatIfAnswer, trace: Trace) -> Stretches:
    """Add the runs of the replay to stretches in which machines are in use."""
    assert trace.zero_epoch_s is not None
    for run in answer.results[0].runs.iter_rows(named=True):
        name = answer.cluster.machines[run["machine"]].name
        busy[name].append((run["start_s"] + trace.zero_epoch_s, run["end_s"] + trace.zero_epoch_s))
    return busy


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
    for job in (*frame.iter_rows(named=True), *trace.presence.iter_rows(named=True)):
        for machine in job["ran_on"].split():
            start_s = max(job["start_s"], 0.0)
            busy[machine.partition(":")[0]].append((start_s, start_s + job["duration_s"]))
    return Truth(
        len(trace),
        float((frame["gpus"] * frame["duration_s"]).sum()) / HOUR_S,
        len(waits_s),
        float(waits_s.mean()) if len(waits_s) else 0.0,  # type: ignore[arg-type]
        sum(map(covered_s, busy.values())) / HOUR_S,
    )
