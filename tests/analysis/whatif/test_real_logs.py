"""Real logs: as it was agrees with the log to the last number, and the replayed scheduler says how far it does."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.reference import philly
from tests.reference.log_truth import HOUR_S, covered_s
from tests.reference.node_lists import LoggedRun, first_fit, written

from cranny.analysis.whatif import what_if
from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.as_it_was import as_it_was
from cranny.analysis.whatif.calibration import CLOSE
from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.headroom import idle_stretches, switched_off
from cranny.cluster_import.from_log import guess_cluster
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

GPUS = 8  # of a machine
# Logs that name no machines, and are given some.
NAMELESS = {
    "kalos": "acme_kalos_head800.parquet",
    "openb": "alibaba_openb2023.parquet",
    "helios": "raw_samples/helios_cluster_log.native13.csv",
    "acme": "raw_samples/acme_trace_seren.native5.csv",
}


def on_machines(trace: Trace) -> tuple[Trace, list[Mapping[str, int]]]:
    """Give the jobs of a log machines; return it with them, and what each job holds."""
    frame = trace.frame.filter(pl.col("start_s").is_finite())
    rows = frame.select("gpus", "start_s", "duration_s").rows()
    held = first_fit([LoggedRun(gpus, start_s, start_s + lasts_s) for gpus, start_s, lasts_s in rows], GPUS)
    return replace(trace, frame=frame.with_columns(ran_on=pl.Series([written(each) for each in held]))), [*held]


def machine_hours(held: Sequence[Mapping[str, int]], times_s: Sequence[tuple[float, float]]) -> float:
    """Count the hours in which machines were in use, one after the other."""
    busy: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for machines, run_s in zip(held, times_s, strict=True):
        for machine in machines:
            busy[machine].append(run_s)
    return sum(map(covered_s, busy.values())) / HOUR_S


def measured(trace: Trace) -> tuple[int, float, float]:
    """Return jobs with a run, their GPU-hours and machine-hours, as the row of the log has them."""
    cluster = guess_cluster(trace).cluster
    was = as_it_was(trace, cluster)
    assert was is not None
    assert not was.unplaced
    assert not was.held_twice
    window = float(was.runs["start_s"].to_numpy().min()), float(was.runs["end_s"].to_numpy().max())
    off = switched_off(idle_stretches(was.runs, len(cluster.machines), window), cluster.machines, window)
    hours = (was.runs["end_s"] - was.runs["start_s"]) * was.runs["gpus"].bitwise_count_ones() / HOUR_S
    return was.runs["job_id"].n_unique(), float(hours.to_numpy().sum()), off.used_hours


@pytest.fixture(scope="module")
def philly_logs(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the samples of Philly's log; in the larger one all hosts are made up, and are put right here."""
    samples = shared / "traces" / "raw_samples"
    entries = json.loads((samples / "philly_cluster_job_log.rebuilt200.json").read_text(encoding="utf-8"))
    tried = [attempt for entry in entries for attempt in entry["attempts"]]
    dated = [each for each in tried if philly.seconds(each["start_time"]) is not None]
    runs = []
    for each in dated:
        start_s, end_s = (philly.seconds(each[name]) for name in ("start_time", "end_time"))
        gpus = sum(len(machine["gpus"]) for machine in each["detail"])
        assert start_s is not None
        runs.append(LoggedRun(gpus, start_s, start_s + 600.0 if end_s is None else end_s))
    for each, held in zip(dated, first_fit(runs, GPUS), strict=True):
        each["detail"] = [{"ip": name, "gpus": [f"gpu{k}" for k in range(gpus)]} for name, gpus in held.items()]
    rebuilt = tmp_path_factory.mktemp("philly") / "cluster_job_log"
    rebuilt.write_text(json.dumps(entries), encoding="utf-8")
    return {"native": samples / "philly_cluster_job_log.native3.json", "rebuilt": rebuilt}


@pytest.mark.parametrize("name", ["native", "rebuilt"])
def test_as_it_was_of_philly_is_a_literal_count_of_attempts(philly_logs: dict[str, Path], name: str) -> None:
    entries: list[dict[str, Any]] = json.loads(philly_logs[name].read_text(encoding="utf-8"))
    true = philly.truth(entries)
    trace = read_trace(philly_logs[name], attempts=True)
    attempts, gpu_hours, used_hours = measured(trace)
    assert attempts == len(trace) == true.attempts
    assert gpu_hours == pytest.approx(true.gpu_hours, rel=1e-12)
    assert used_hours == pytest.approx(true.machine_hours, rel=1e-12)
    assert len(guess_cluster(trace).cluster.machines) == true.machines
    answer = what_if(philly_logs[name], None, ["best-fit"], search=False, processes=1)
    assert answer.was.waits is not None
    assert answer.was.waits.jobs == true.attempts
    assert answer.was.waits.wait.mean_s == pytest.approx(true.mean_wait_s, rel=1e-12)
    assert answer.was.machines is not None


def test_philly_is_read_by_job_unless_attempts_are_asked_for(philly_logs: dict[str, Path]) -> None:
    trace = read_trace(philly_logs["native"])
    assert len(trace) == 2
    assert "ran_on" not in trace.frame.columns


@pytest.mark.parametrize("name", NAMELESS)
def test_as_it_was_is_the_log_where_it_is_given_machines(shared: Path, name: str) -> None:
    trace, held = on_machines(read_trace(shared / "traces" / NAMELESS[name], strict=False))
    start_s, lasts_s = (trace.frame[column].to_list() for column in ("start_s", "duration_s"))
    jobs, gpu_hours, used_hours = measured(trace)
    lasting = [(begin_s, begin_s + s) for begin_s, s in zip(start_s, lasts_s, strict=True)]
    assert jobs == len(trace)
    gpu_s = sum(gpus * s for gpus, s in zip(trace.frame["gpus"].to_list(), lasts_s, strict=True))
    assert gpu_hours == pytest.approx(gpu_s / HOUR_S, rel=1e-9)
    assert used_hours == pytest.approx(machine_hours(held, lasting), rel=1e-9)


def said(answer: WhatIfAnswer) -> str:
    return " ".join(answer.assumptions)


@pytest.mark.parametrize("name", ["kalos", "openb"])
def test_the_replayed_scheduler_is_close_or_the_page_says_why_not(shared: Path, name: str) -> None:
    trace, _ = on_machines(read_trace(shared / "traces" / NAMELESS[name], strict=False))
    answer = what_if(trace, None, ["best-fit"], search=False, processes=1)
    assert answer.scheduler is not None
    _check_calibration(answer)


def test_the_replayed_scheduler_of_philly_is_close_or_the_page_says_why_not(philly_logs: dict[str, Path]) -> None:
    _check_calibration(what_if(philly_logs["rebuilt"], None, ["best-fit"], search=False, processes=1))


def _check_calibration(answer: WhatIfAnswer) -> None:
    text = said(answer)
    assert "In the second half it predicts a mean wait of" in text
    if f"That is not within {CLOSE:.0%}".replace("%", " %") in text:
        assert "of the log's waiting passed while as many GPUs were free by the log itself" in text
        # And what people read who decide says so too, not only the last page.
        assert "% of that waiting passed while enough GPUs were free" in " ".join(findings(answer))
    else:
        assert answer.scheduler is not None
        assert answer.was.waits is not None
        assert answer.scheduler.waits is not None
