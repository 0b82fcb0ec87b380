"""What-if under windows: the time that was asked for is measured, and jobs that cross its edges save nothing."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cranny
from cranny.analysis.whatif.answer import WhatIfAnswer, WhatIfCase
from cranny.analysis.whatif.machine_search import WaitOutcome
from cranny.model.cluster import Machine, Switch
from cranny.model.errors import InputError
from cranny.traces.trace import Trace, TraceWindow
from cranny.traces.window import cut

HEAD = "JobID|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES|Partition"
HOUR_S, DAY_S = 3600.0, 86_400.0


def row(job: str, submit: str, start: str, end: str, machine: str, gpus: int) -> str:
    return f"{job}|{submit}|{start}|{end}||1|{machine}|gres/gpu={gpus},node=1|gpu"


def full_march() -> list[str]:
    """Four jobs of two GPUs a day fill n1 all March; n2 ran a job in February, and none in March."""
    rows = [row("f", "2024-02-10T00:00:00", "2024-02-10T00:00:00", "2024-02-10T06:00:00", "n2", 8)]
    for day in range(1, 32):
        start = f"2024-03-{day:02d}T00:00:00"
        end = f"2024-03-{day + 1:02d}T00:00:00" if day < 31 else "2024-04-01T00:00:00"
        rows += [row(f"{day}-{part}", start, start, end, "n1", 2) for part in range(4)]
    return rows


def written(folder: Path, rows: Sequence[str]) -> Path:
    path = folder / "sacct.txt"
    path.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    return path


def asked(log: Path | Trace, **given: Any) -> WhatIfAnswer:
    settings = {"policies": ["best-fit"], "search": False, "processes": 1, "price_per_gpu_hour": 2.0, **given}
    return cranny.what_if(log, **settings)


def used_hours(case: WhatIfCase) -> float:
    assert case.machines is not None
    return case.machines.used_hours


MARCH = ("2024-03-01", "2024-04-01")


def test_a_machine_that_was_busy_all_march_is_used_for_31_days(tmp_path: Path) -> None:
    answer = asked(written(tmp_path, full_march()), window=MARCH)
    was, best_fit = answer.was, answer.policies[0]
    assert answer.window == (0.0, 31 * DAY_S)
    assert answer.days == 31.0
    assert used_hours(was) == pytest.approx(31 * 24.0)
    assert used_hours(best_fit) == pytest.approx(31 * 24.0)
    # n2, idle all March, is there: it ran a job in February.
    assert [machine.name for machine in answer.cluster.machines] == ["n1", "n2"]
    assert was.machines is not None
    assert was.machines.idle_hours == pytest.approx(31 * 24.0)
    assert answer.details.off_a_day("as it was") == pytest.approx(24 * 8 * 2.0)
    saved = answer.details.savings.of_case["best-fit"].whole
    assert saved.weeks == 4
    assert saved.a_day == pytest.approx(0.0)
    told = " ".join(answer.assumptions)
    assert "1 machine without a job in the window: taken as idle in it" in told
    assert "measured from the begin of the window to its end" in told
    assert "The cluster is empty at the begin of the window: by the log no job ran then." in told
    assert answer.span == "the 31 d of the window"


def test_the_window_is_that_of_the_zone(tmp_path: Path) -> None:
    # Clocks are set forward on 31 March: the month has an hour less.
    answer = asked(written(tmp_path, full_march()), window=MARCH, zone="Europe/Berlin")
    assert used_hours(answer.was) == pytest.approx(31 * 24.0 - 1.0)
    assert answer.results[0].settings["zone"] == "Europe/Berlin"


def test_nothing_is_measured_in_the_warm_up(tmp_path: Path) -> None:
    path = written(tmp_path, full_march())
    answer = asked(path, window=MARCH, warm_up="1d")
    assert answer.window == (DAY_S, 31 * DAY_S)
    assert used_hours(answer.was) == pytest.approx(30 * 24.0)
    assert answer.was.waits is not None
    assert answer.was.waits.jobs == 30 * 4
    assert "the end of the warm-up to the end of the window" in " ".join(answer.assumptions)
    assert answer.span == "the 30 d of the window after its warm-up"
    # Without an end it goes on to the last submission, on the 31st.
    assert asked(path, window=("2024-03-01", None), warm_up=DAY_S).window == (DAY_S, 30 * DAY_S)
    with pytest.raises(
        InputError, match="no job is submitted after the begin of the window and its warm-up of 40 d"
    ):
        asked(path, window=("2024-03-01", None), warm_up="40d")


def test_a_job_left_over_from_january_is_warned_of_with_the_window_to_ask_for(tmp_path: Path) -> None:
    old = row("old", "2024-01-01T00:00:00", "2024-01-01T00:00:00", "2024-01-01T00:01:00", "n1", 1)
    path = written(tmp_path, [old, *full_march()[1:]])
    whole = asked(path)
    assert whole.was.machines is not None
    assert whole.was.machines.used < 0.4  # of one machine: three months are measured
    advice = "use --from 2024-03-01 --to 2024-04-01"
    assert any("1 job submitted 60 days before the rest" in line and advice in line for line in whole.warnings)
    march = asked(path, window=MARCH)
    assert march.was.machines is not None
    assert march.was.machines.used == pytest.approx(1.0)
    assert not any("--from" in line for line in march.warnings)


def crossing(**columns: list[Any]) -> Trace:
    """Two halves of two machines are held when the window begins; one job waits when it ends."""
    frame = pl.DataFrame(
        {
            "job_id": ["a", "b", "in", "late"],
            "submit_s": [0.0, 0.0, 2000.0, 4000.0],
            "start_s": [0.0, 0.0, 2500.0, 9000.0],
            "duration_s": [8000.0, 8000.0, 500.0, 1000.0],
            "gpus": [4, 4, 4, 4],
            "ran_on": ["n1:4", "n2:4", "n1:4", "n2:4"],
            **columns,
        },
        schema_overrides={"gpus": pl.Int32},
    )
    return Trace("log", frame)


def two_machines() -> cranny.Cluster:
    return cranny.Cluster.of(Switch("top", (Machine("n1", 8), Machine("n2", 8)), (100.0, 100.0)))


def test_jobs_that_run_when_the_window_begins_are_not_moved_together_for_nothing() -> None:
    answer = asked(crossing(), cluster=two_machines(), window=(1000.0, 7000.0))
    was, best_fit = answer.cases
    assert used_hours(was) == pytest.approx(2 * 6000 / HOUR_S)
    assert used_hours(best_fit) == pytest.approx(2 * 6000 / HOUR_S)  # on one machine alone it would be half
    assert answer.details.savings.of_case["best-fit"].whole.a_day == pytest.approx(0.0)
    told = " ".join(answer.assumptions)
    assert "2 jobs that ran when the window began run on where the log has them, in every row" in told
    # The policy starts the job that waited in the log to the end of the window and beyond.
    starts = dict(answer.results[0].jobs.select("job_id", "start_s").iter_rows())
    assert starts == {"a": 0.0, "b": 0.0, "in": 1000.0, "late": 3000.0}
    assert was.waits is not None
    assert (was.waits.jobs, was.waits.wait.mean_s) == (2, (500.0 + 5000.0) / 2)


def test_where_the_log_does_not_say_where_jobs_ran_they_are_placed_anew_and_that_is_said() -> None:
    trace = crossing(ran_on=[None, "n2:4", "n1:4", "n2:4"])
    told = " ".join(asked(trace, cluster=two_machines(), window=(1000.0, 7000.0)).assumptions)
    assert "1 job that ran when the window began run on where the log has them" in told
    assert "1 job that ran then, where is not in the log or not possible here" in told


def test_without_a_window_the_cluster_is_empty_at_first() -> None:
    answer = asked(crossing(), cluster=two_machines())
    assert answer.edges is None
    assert any(line.startswith("The cluster is empty at the first submission") for line in answer.assumptions)
    assert any("from the first to the last submission (to the last end" in line for line in answer.assumptions)


def test_the_search_looks_only_at_waits_that_count() -> None:
    answer = asked(crossing(), cluster=two_machines(), window=(1000.0, 7000.0), search=True)
    (search,) = answer.searches
    assert search.addition.before_s == {"2-7": 0.0}
    result = answer.results[0]
    uncounted = pl.Series(["a", "b"])
    wait_s = pl.when(pl.col("job_id").is_in(uncounted.implode())).then(9e9).otherwise(60.0)
    found = WaitOutcome.of(replace(result, jobs=result.jobs.with_columns(wait_s=wait_s)), uncounted)
    assert (found.jobs_done, found.mean_wait_s, found.mean_s_by_size) == (4, 60.0, {"2-7": 60.0})


def test_a_trace_that_was_cut_before_is_measured_alike() -> None:
    trace = cut(crossing(), 1000.0, 7000.0, 600.0)
    assert trace.window == TraceWindow(0.0, 6000.0, 600.0)
    answer = asked(trace, cluster=two_machines())
    assert answer.window == (600.0, 6000.0)
    assert (
        answer.facts() == asked(crossing(), cluster=two_machines(), window=(1000.0, 7000.0), warm_up=600.0).facts()
    )
    with pytest.raises(InputError, match="format, strict and count_parts are for a log that is read from a file"):
        asked(trace, cluster=two_machines(), count_parts=True)
