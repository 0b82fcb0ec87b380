"""The benches, at sizes that prove nothing about speed but everything about their form."""

import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.measure import Budget, Measured
from benchmarks.regret import run as regret_case
from benchmarks.regret.worlds import WORLDS
from tests.slurm.real_slurm import installed

from benchmarks import (
    CASES,
    acme,
    agent,
    cassini,
    cranny_optimum,
    cranny_speed,
    decide,
    durations,
    has,
    history,
    importing,
    measure,
    moves,
    netpack,
    netpack_quality,
    phases,
    replay,
    replay_steady,
    run_case,
    service_decision,
    service_log,
    service_takeover,
    slurm_pending,
    steady,
    titan_quality,
    traces,
    what_if_million,
)
from cranny.cli import main
from cranny.model.job import Job

RunBench = Callable[..., tuple[int, Any]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make every case tiny."""
    monkeypatch.setattr(importing, "RUNS", 1)
    monkeypatch.setattr(decide, "GPUS", (64, 128, 256))
    monkeypatch.setattr(decide, "DECISIONS", 60)
    monkeypatch.setattr(decide, "REFERENCE_DECISIONS", 2)
    monkeypatch.setattr(replay, "JOBS", 300)
    monkeypatch.setattr(replay, "REFERENCE_JOBS", 50)
    monkeypatch.setattr(replay, "RUNS", 1)
    monkeypatch.setattr(agent, "ITERATIONS", 20)
    monkeypatch.setattr(steady, "RACKS", 4)
    monkeypatch.setattr(steady, "JOBS", 40)
    monkeypatch.setattr(steady, "UPDATES", 5)
    monkeypatch.setattr(steady, "REFERENCE_JOBS", 5)
    monkeypatch.setattr(replay_steady, "JOBS", (100, 200))
    monkeypatch.setattr(acme, "JOBS", 300)
    monkeypatch.setattr(traces, "JOBS", 300)
    monkeypatch.setattr(what_if_million, "ROWS", 300)
    monkeypatch.setattr(service_decision, "RANKS", 100)
    monkeypatch.setattr(service_decision, "PENDING", 200)
    monkeypatch.setattr(service_log, "JOBS", 200)
    monkeypatch.setattr(service_takeover, "TAKEOVERS", 1)
    monkeypatch.setattr(slurm_pending, "JOBS", 40)
    monkeypatch.setattr(slurm_pending, "NODES", 2)
    monkeypatch.setattr(slurm_pending, "SECONDS", 3.0)
    monkeypatch.setattr(slurm_pending, "INTERVAL_S", 0.5)
    monkeypatch.setattr(titan_quality, "CASES", 12)
    monkeypatch.setattr(cranny_optimum, "WORLDS", 3)
    monkeypatch.setattr(netpack, "SERVERS", (16, 32, 48))
    monkeypatch.setattr(netpack, "PAPER_S", {16: 1.0})
    monkeypatch.setattr(netpack, "JOBS", 60)
    monkeypatch.setattr(netpack, "RUNS", 1)
    monkeypatch.setattr(netpack, "WARM_UP", 5)
    monkeypatch.setattr(netpack, "LARGEST", 16)
    monkeypatch.setattr(netpack_quality, "CASES", 3)
    monkeypatch.setattr(durations, "MOST_JOBS", 60)
    monkeypatch.setattr(has, "SEEDS", 1)
    monkeypatch.setattr(has, "REFERENCE_WORKERS", 6)
    monkeypatch.setattr(cassini, "CASES", 3)
    monkeypatch.setattr(cassini, "RUNS", 1)
    monkeypatch.setattr(cranny_speed, "MEDIAN_MS", {64: 1.0, 128: 5.0})
    monkeypatch.setattr(cranny_speed, "JOBS", {"isolated": 200, "steady": 200})
    monkeypatch.setattr(moves, "GPUS", (64, 128))
    monkeypatch.setattr(moves, "MOST_S", {128: 1.0})
    monkeypatch.setattr(regret_case, "WORLDS", {"itp": replace(WORLDS["titan-ring-itp"], jobs=20)})
    monkeypatch.setattr(regret_case, "SEEDS", 1)
    monkeypatch.setattr(regret_case, "PROCESSES", 1)
    monkeypatch.setattr(regret_case, "OUT", tmp_path)
    monkeypatch.setattr(phases, "HOURS", 0.01)
    monkeypatch.setattr(phases, "RUNS", 1)
    monkeypatch.setattr(phases, "GROUPS", 2)
    monkeypatch.setattr(phases, "REFERENCE_S", 0.5)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunBench:
    """Return what runs `cranny bench` and gives back its exit code and what it printed as JSON."""

    def bench(*words: str) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "argv", ["cranny", "bench", *words])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        assert isinstance(code, int)
        out = capsys.readouterr().out
        return code, json.loads(out) if "--json" in words else out

    return bench


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", CASES)
def test_a_case_prints_its_metrics_and_budgets(bench: RunBench, name: str) -> None:
    if name in {"titan-quality", "cranny-optimum"}:
        pytest.importorskip("ortools", reason="the judge, CP-SAT, comes with the extra `exact`")
    if name == "durations" and durations.logs_folder() is None:
        pytest.skip("the folder `shared` with real traces is not beside the project")
    if name == "slurm-pending" and not installed() and "CI" not in os.environ:
        pytest.skip("needs root and Slurm")
    code, told = bench(name, "--json")
    assert code == 0
    assert set(told) == {"case", "metrics", "budgets"}
    assert told["case"] == name
    assert all(isinstance(value, int | float) for value in told["metrics"].values())
    assert told["budgets"]
    for budget in told["budgets"]:
        assert set(budget) == {"name", "value", "limit", "ok"}
        assert isinstance(budget["ok"], bool)
        assert told["metrics"][budget["name"]] == budget["value"]
        assert budget["ok"] or name != "slurm-pending"  # whose budgets of calls hold at any size


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["decide", "replay"])
def test_a_case_is_measured_against_its_slow_reference(name: str) -> None:
    assert run_case(name).metrics["times_faster_than_reference"] > 0


def test_references_are_those_of_the_tests() -> None:
    assert measure.reference("titan").__name__ == "tests.reference.titan"


def made_up(value: float) -> Callable[[str], Measured]:
    return lambda name: Measured(name, {"seconds": value}, [Budget("seconds", value, 1.0)])


def test_check_exits_with_one_when_a_budget_is_missed(bench: RunBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.run_case", made_up(2.0))
    code, told = bench("import", "--check", "--json")
    assert code == 1
    assert told["budgets"] == [{"name": "seconds", "value": 2.0, "limit": 1.0, "ok": False}]
    assert bench("import", "--json")[0] == 0  # without --check it only tells
    code, table = bench("import", "--check")
    assert code == 1
    assert "MISSED" in table


def test_check_exits_with_zero_when_all_budgets_are_kept(bench: RunBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.run_case", made_up(0.5))
    code, told = bench("import", "decide", "--check", "--json")
    assert code == 0
    assert [each["case"] for each in told] == ["import", "decide"]
    assert "ok" in bench("import", "--check")[1]


def test_all_cases_run_when_none_is_named(bench: RunBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.run_case", made_up(0.5))
    assert [each["case"] for each in bench("--json")[1]] == list(CASES)


def test_lists_the_cases(bench: RunBench) -> None:
    assert set(bench("--list", "--json")[1]) == set(CASES)
    assert all(name in bench("--list")[1] for name in CASES)


def test_an_unknown_case_exits_with_two_and_suggests_another(
    bench: RunBench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["cranny", "bench", "replai"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err == "cranny: unknown bench case 'replai'; did you mean 'replay'?\n"
    assert bench("replai")[0] == 2


def test_a_budget_may_be_a_floor_or_a_ceiling() -> None:
    assert Budget("x", 1.0, 1.0).ok
    assert not Budget("x", 1.1, 1.0).ok
    assert Budget("x", 1.0, 1.0, at_least=True).ok
    assert not Budget("x", 0.9, 1.0, at_least=True).ok


def test_the_cluster_of_the_decisions_is_half_full() -> None:
    state = decide.half_full(512)
    assert 0.35 < state.held_gpus / state.cluster.gpus <= 0.5


def test_record_appends_a_line_for_each_case_and_the_page_plots_them(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.jsonl")
    assert "Nothing has been recorded" in history.page(history.read())
    monkeypatch.setattr("benchmarks.run_case", made_up(0.5))
    assert bench("import", "decide", "--record", "--json")[0] == 0
    monkeypatch.setattr("benchmarks.run_case", made_up(2.0))
    assert bench("import", "--record", "--check", "--json")[0] == 1  # a missed budget is history too
    lines = history.read()
    assert [line["case"] for line in lines] == ["import", "decide", "import"]
    assert set(lines[0]) == {"date", "version", "commit", "machine", "case", "metrics", "budgets"}
    assert platform.node() not in lines[0]["machine"]
    assert [history.headroom(line["budgets"][0]) for line in lines] == [2.0, 2.0, 0.5]
    page = history.page(lines)
    assert page.count("<svg") == page.count("</svg>") == 2
    assert "| 2 (missed) |" in page


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (Budget("jobs", 100.0, 50.0, at_least=True), 2.0),
        (Budget("misses", 0.0, 0.0), 1000.0),
        (Budget("misses", 3.0, 0.0), 0.1),
        (Budget("seconds", 1e-9, 1.0), 1000.0),
    ],
)
def test_headroom_says_how_many_times_better_than_its_budget_a_value_is(budget: Budget, expected: float) -> None:
    line = {"value": budget.value, "limit": budget.limit, "at_least": budget.at_least, "ok": budget.ok}
    assert history.headroom(line) == pytest.approx(expected)


def test_durations_are_learned_only_when_a_job_has_ended() -> None:
    late = durations.LogJob(Job(id="late", gpus=1, submit_s=50.0), 10.0)
    log = [
        durations.LogJob(Job(id="first", gpus=1), 100.0),
        late,
        late._replace(job=Job(id="x", gpus=1, submit_s=60.0)),
    ]
    predicted = durations.replay(log)
    last_s = predicted.rivals_s["tenants_last"]
    assert last_s[0] == last_s[1] == predicted.median_s[0]  # nothing has ended yet
    assert last_s[2] == 10.0
    assert predicted.median_s[2] < predicted.median_s[1]


def test_durations_are_not_measured_without_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "logs_folder", lambda: None)
    assert durations.run() == Measured("durations", {}, [])


def test_ranks_that_agree_correlate() -> None:
    values = np.array([1.0, 5.0, 2.0, 5.0])
    found = durations.scores(
        durations.Predicted(values, values, 2 * values, values, values, {"tenants_last": 9 - values}, 1.0, 1.0)
    )
    assert found["spearman"] == pytest.approx(1.0)
    assert found["log_error"] == pytest.approx(np.log(2.0))
    assert found["coverage"] == 1.0
    assert found["spearman_tenants_last"] == pytest.approx(-1.0)
