import dataclasses
import io
import math
from collections.abc import Sequence

import pytest
from rich.console import Console
from tests.report.synthetic import FakeResult

from cranny.model.errors import InputError
from cranny.report.styles import labels
from cranny.report.table import COLUMNS, best, column, fitted_table, format_value, scale_for, shown_columns

SUMMARY_KEYS = {
    *("jobs_done", "jobs_skipped", "mean_used_machines", "time_mean_used_machines", "mean_fragmentation"),
    *("mean_jct_s", "p50_jct_s", "p99_jct_s", "mean_wait_s", "p99_wait_s", "machine_hours", "restarts"),
    "moves",
    *("time_mean_fragmentation", "time_mean_cross_traffic_gb"),
    *("mean_cross_traffic_gb", "mean_profit_rate", "total_profit", "cost_per_gpu_hour", "makespan_s"),
    *("gpu_utilisation", "mean_comm_slowdown"),
    *("mean_iteration_s", "p99_iteration_s", "mean_above_gbit", "adjustments_per_min"),
}


def changed(result: FakeResult, **summary: float) -> FakeResult:
    return dataclasses.replace(result, summary={**result.summary, **summary})


def renamed(result: FakeResult, **settings: object) -> FakeResult:
    return dataclasses.replace(result, settings={**result.settings, **settings})


def test_every_key_of_the_summary_has_a_column() -> None:
    assert {column.key for column in COLUMNS} == SUMMARY_KEYS
    assert all(column.explanation.endswith(".") for column in COLUMNS)


def test_the_least_is_best_where_lower_is_better(results: Sequence[FakeResult]) -> None:
    runs = [changed(results[0], mean_used_machines=used) for used in (12.0, 8.0, 9.0)]
    assert best(runs, column("mean_used_machines")) == {1}


def test_the_most_is_best_where_higher_is_better(results: Sequence[FakeResult]) -> None:
    runs = [changed(results[0], mean_profit_rate=rate) for rate in (12.0, 8.0, 19.0)]
    assert best(runs, column("mean_profit_rate")) == {2}


def test_values_that_read_the_same_share_the_mark(results: Sequence[FakeResult]) -> None:
    runs = [changed(results[0], mean_used_machines=used) for used in (150.001, 150.0, 200.0)]
    assert best(runs, column("mean_used_machines")) == {0, 1}


def test_nothing_is_best_when_all_are_equal_or_alone(results: Sequence[FakeResult]) -> None:
    runs = [changed(results[0], mean_used_machines=5.0) for _ in range(3)]
    assert best(runs, column("mean_used_machines")) == frozenset()
    assert best(runs[:1], column("mean_used_machines")) == frozenset()


def test_who_skips_jobs_that_others_run_is_never_best(results: Sequence[FakeResult]) -> None:
    values = ((8.0, 151.0), (9.0, 2.0), (12.0, 2.0))
    runs = [changed(results[0], mean_used_machines=used, jobs_skipped=skipped) for used, skipped in values]
    assert best(runs, column("mean_used_machines")) == {1}
    assert best(runs[:2], column("mean_used_machines")) == frozenset()  # one alone is not the best of anything
    assert "skip no more jobs" in str(fitted_table(runs).note)
    assert "skip no more jobs" not in str(fitted_table(runs[1:]).note)


def test_no_share_of_held_gpus_is_best(results: Sequence[FakeResult]) -> None:
    runs = [changed(results[0], gpu_utilisation=share) for share in (0.2, 0.9)]
    assert best(runs, column("gpu_utilisation")) == frozenset()


def test_no_mean_over_a_policys_own_time_is_best(results: Sequence[FakeResult]) -> None:
    # The first ends ten times sooner: it has more machines on for a shorter time, and fewer machine-hours.
    values = [
        {"time_mean_used_machines": 84.9, "machine_hours": 14.0},
        {"time_mean_used_machines": 32.5, "machine_hours": 27.0},
    ]
    runs = [changed(results[0], **each) for each in values]
    assert best(runs, column("time_mean_used_machines")) == frozenset()
    assert best(runs, column("machine_hours")) == {0}


def test_with_rounds_means_over_time_stand_for_values_at_arrivals(results: Sequence[FakeResult]) -> None:
    over_time = {"time_mean_fragmentation": 0.2, "time_mean_cross_traffic_gb": 3.0}
    runs = [changed(each, **over_time) for each in results[:2]]
    keys = {column.key for column in shown_columns(runs)}
    assert "mean_used_machines" in keys
    assert not keys & set(over_time)
    gavel = [runs[0], renamed(runs[1], period_s=360.0)]
    for brief in (False, True):
        keys = {column.key for column in shown_columns(gavel, brief=brief)}
        assert keys >= {"time_mean_used_machines", "machine_hours", *over_time}
        assert not keys & {
            *("mean_used_machines", "mean_fragmentation", "mean_cross_traffic_gb"),
            *("mean_profit_rate", "total_profit"),
        }
    console = Console(width=80, no_color=True, record=True, file=io.StringIO())
    console.print(fitted_table(gavel))
    assert "…" not in console.export_text()


def test_a_missing_value_is_never_best(results: Sequence[FakeResult]) -> None:
    runs = [changed(results[0], mean_jct_s=jct_s) for jct_s in (math.nan, 80.0, 90.0)]
    assert best(runs, column("mean_jct_s")) == {1}
    assert format_value(column("mean_jct_s"), math.nan) == "–"  # noqa: RUF001


def test_one_column_has_one_unit() -> None:
    jct = column("mean_jct_s")
    scale = scale_for(jct, [30.0, 7300.0])
    assert scale.unit == "h"
    assert [format_value(jct, value, scale) for value in (40.0, 7300.0, 0.0, 1.0)] == [
        *("0.01", "2.03", "0", "<0.01"),
    ]


def test_large_numbers_have_separators() -> None:
    assert format_value(column("machine_hours"), 34_763.4) == "34,763"
    assert format_value(column("mean_fragmentation"), 0.117) == "11.7"
    assert scale_for(column("mean_cross_traffic_gb"), [1650.0]).unit == "TB"


def test_columns_of_zeros_stay_quiet(results: Sequence[FakeResult]) -> None:
    keys = {column.key for column in shown_columns([changed(results[0], restarts=0.0)])}
    assert "restarts" not in keys
    assert "restarts" in {column.key for column in shown_columns([changed(results[0], restarts=2.0)])}


def test_the_terminal_table_fits_80_characters_and_marks_the_best(results: Sequence[FakeResult]) -> None:
    console = Console(width=80, no_color=True, record=True, file=io.StringIO())
    console.print(fitted_table(results))
    lines = console.export_text().splitlines()
    assert "…" not in "".join(lines)
    assert any(line.strip().startswith("cranny") for line in lines)
    assert "* best of its metric" in "".join(lines)
    assert sum(line.count("*") for line in lines) > 4


def test_runs_in_phases_show_iterations_on_a_terminal_of_80_characters(results: Sequence[FakeResult]) -> None:
    measures = {"mean_iteration_s": 0.316, "p99_iteration_s": 0.665, "mean_above_gbit": 1.53}
    runs = [renamed(changed(each, **measures), network="phases") for each in results]
    keys = [column.key for column in shown_columns(runs, brief=True)]
    assert set(keys) >= {*measures, "mean_jct_s", "mean_comm_slowdown"}
    console = Console(width=80, no_color=True, record=True, file=io.StringIO())
    console.print(fitted_table(runs))
    shown = console.export_text()
    assert "…" not in shown
    for value in ("316", "665", "1.53"):
        assert value in shown


def test_runs_without_phases_have_no_column_of_iterations(results: Sequence[FakeResult]) -> None:
    assert not any("iteration" in column.key for column in shown_columns(results))


def test_runs_of_one_policy_are_named_by_what_differs(results: Sequence[FakeResult]) -> None:
    runs = [results[0], renamed(results[0], network="steady"), results[1]]
    assert labels(runs) == ("cranny · isolated", "cranny · steady", "consolidate-idle")
    assert labels([results[0], results[0]]) == ("cranny #1", "cranny #2")


def test_an_empty_comparison_is_refused() -> None:
    with pytest.raises(InputError, match="no results"):
        labels([])
