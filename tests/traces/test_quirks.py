"""Each quirk on a small trace that has it, and on one that has not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from cranny.traces import quirks as q
from cranny.traces.generate import generate_trace, presets
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

HOUR_S, DAY_S = 3600.0, 86_400.0


def trace(
    duration_s: Sequence[float] | None = None,
    submit_s: Sequence[float] | None = None,
    gpus: Sequence[int] | None = None,
    jobs: int = 100,
    **more: Sequence[object],
) -> Trace:
    """Return jobs of one GPU, one an hour, each a second longer than the one before, unless told otherwise."""
    given = [column for column in (duration_s, submit_s, gpus, *more.values()) if column is not None]
    count = len(given[0]) if given else jobs
    frame = {
        "job_id": [f"j{index}" for index in range(count)],
        "submit_s": [index * HOUR_S for index in range(count)] if submit_s is None else submit_s,
        "gpus": [1] * count if gpus is None else gpus,
        "duration_s": [100.0 + index for index in range(count)] if duration_s is None else duration_s,
        **more,
    }
    return Trace.from_frame(pl.DataFrame(frame, strict=False))


def waiting(*wait_s: float) -> Trace:
    """Return jobs that are submitted an hour apart and start so much later."""
    return trace(start_s=[index * HOUR_S + wait for index, wait in enumerate(wait_s)])


def test_an_ordinary_trace_has_no_quirks() -> None:
    assert q.quirks(trace()) == []
    assert q.quirks(trace(), capacity_gpus=1) == []
    assert q.quirks(trace(jobs=1), capacity_gpus=1) == []


@pytest.mark.parametrize("preset", presets())
def test_a_generated_trace_has_no_quirks(preset: str) -> None:
    assert q.quirks(generate_trace(preset, jobs=3000)) == []


def test_durations_cut_at_the_longest_are_seen() -> None:
    assert q.cut_durations(trace([*range(1, 181), *[48 * HOUR_S] * 20])) == (
        "20 of 200 jobs (10 %) last exactly 48 h, the longest of all: "
        "durations seem to be cut there, so that GPU-hours are a lower bound"
    )
    assert q.cut_durations(trace([*range(1, 182), *[48 * HOUR_S] * 19])) is None


def test_jobs_that_all_last_equally_long_are_not_cut() -> None:
    assert q.cut_durations(trace([60.0] * 100)) is None


def test_a_pile_of_jobs_at_a_round_limit_is_seen() -> None:
    piled = [*range(1, 301), *(4 * HOUR_S + second for second in range(25)), 9 * HOUR_S]
    assert q.time_limits(trace(piled)) == (
        "25 of 326 jobs (7.67 %) last 4 h to the minute, as if a time limit had ended them"
    )


def test_a_smooth_spread_of_durations_has_no_limit() -> None:
    assert q.time_limits(trace([30.0 * step for step in range(1, 2000)])) is None


def test_limits_that_are_logged_are_used() -> None:
    limited = trace([50.0, 60.0, 61.0, 70.0], limit_s=[60.0, 60.0, 60.0, None])
    assert q.time_limits(limited) == (
        "2 of 4 jobs (50 %) ran until their time limit: how long they would have run is not known"
    )
    assert q.time_limits(trace([50.0, 50.0], limit_s=[60.0, 0.0])) is None


def test_starts_before_submission_are_seen() -> None:
    assert q.starts_before_submission(waiting(5, -20, 7, -40)) == (
        "2 of 4 jobs (50 %) start before their submission, typically by 30 s; they count for no wait"
    )
    assert q.starts_before_submission(waiting(5, 0, 7)) is None
    assert q.starts_before_submission(trace()) is None


def test_starts_that_are_whole_hours_early_point_to_the_clock() -> None:
    told = q.starts_before_submission(waiting(5, -7200, -7200.5, -60))
    assert told is not None
    assert "typically by 7,200 s, which is whole hours: times may be of two zones, or the clock" in told


def test_two_time_zones_are_seen_when_no_job_starts_soon() -> None:
    assert q.never_starts_soon(waiting(*(8 * HOUR_S + second for second in range(50)))) == (
        "99 % of the jobs wait 8.0 h or more: submission and start may be in different time zones"
    )
    assert q.never_starts_soon(waiting(*(8 * HOUR_S + second for second in range(19)))) is None
    assert q.never_starts_soon(waiting(*(60.0 * minute for minute in range(500)))) is None


def test_a_clock_that_was_changed_under_a_running_job_is_seen() -> None:
    def ran(*attempts: int) -> Trace:
        start_s, end_s = [0.0, 9000.0, 9000.0], [100.0, 12_701.0, 12_702.0]
        return trace([100.0, 101.0, 3602.0], start_s=start_s, end_s=end_s, attempts=attempts)

    told = "1 of 3 jobs (33.3 %) end whole hours off their start plus duration: was the clock changed meanwhile?"
    assert q.clock_changes(ran(1, 1, 1)) == told
    assert q.clock_changes(ran(1, 2, 1)) is None  # between attempts there may be any time
    assert q.clock_changes(trace(end_s=[1.0, None])) is None


def test_several_clusters_are_named() -> None:
    assert q.several_clusters(trace(cluster=["b", "a", None, "a"])) == (
        "2 clusters are in one file (a, b): pick one with traces slice --where cluster=a"
    )
    assert q.several_clusters(trace(cluster=["a", None, "a"])) is None
    many = q.several_clusters(trace(cluster=[f"c{index:02}" for index in range(99)]))
    assert many is not None
    assert "c09, ...): pick" in many


def test_repeated_attempts_are_counted() -> None:
    assert q.repeated_attempts(trace(attempts=[1, 3, None, 2])) == (
        "2 of 4 jobs (50 %) ran in several attempts, up to 3: each counts as one job"
    )
    assert q.repeated_attempts(trace(attempts=[1, 1])) is None


def test_rows_skipped_for_their_id_are_counted() -> None:
    once = trace()
    assert q.repeated_ids(once) is None
    told = q.repeated_ids(replace(once, skipped={"CPU-only (gpus 0)": 4, "job_id: repeated": 3}))
    assert told is not None
    assert told.startswith("3 rows repeat the id of a job and are skipped")


def test_most_jobs_in_few_weeks_are_seen() -> None:
    quiet = [week * 7 * DAY_S for week in range(10)]
    busy = [(5 * 7 + 1) * DAY_S + second for second in range(100)]
    assert q.uneven_load(trace(submit_s=sorted(quiet + busy))) == (
        "load is uneven: half of the jobs come in 1 of 10 weeks"
    )
    late = [*(day * DAY_S + DAY_S for day in range(60)), *(61 * DAY_S + 50.0 * job for job in range(10_000))]
    told = q.far_from_the_rest(trace(submit_s=late))
    assert told is not None
    assert told.startswith("100 jobs submitted in the 60 days before the rest")
    assert told.endswith("use --from 61d --to 67d")


def test_a_handful_of_jobs_is_not_uneven() -> None:
    assert q.uneven_load(trace(submit_s=[0.0, *(60 * DAY_S + second for second in range(50))])) is None


def test_even_weeks_and_short_traces_are_not_uneven() -> None:
    assert q.uneven_load(trace(submit_s=[hour * HOUR_S for hour in range(24 * 70)])) is None
    assert q.uneven_load(trace(submit_s=[0.0, *(20 * DAY_S + second for second in range(99))])) is None


def test_days_without_a_submission_are_seen() -> None:
    hourly = [hour * HOUR_S for hour in range(48)]
    pause = [*hourly, *(6 * DAY_S + since for since in hourly)]
    assert q.idle_gaps(trace(submit_s=pause)) == "nothing is submitted for 4.0 days from day 2 on"
    twice = [*pause, *(18 * DAY_S + since for since in hourly)]
    assert q.idle_gaps(trace(submit_s=twice)) == (
        "2 times nothing is submitted for 3 days or more, once for 10.0 days from day 8 on"
    )


def test_a_sparse_log_has_no_gaps() -> None:
    assert q.idle_gaps(trace(submit_s=[week * 7 * DAY_S for week in range(30)])) is None
    assert q.idle_gaps(trace(jobs=1)) is None


def test_jobs_of_zero_seconds_are_counted() -> None:
    assert q.zero_seconds(trace([0.0, 1.0, 0.0])) == "2 of 3 jobs (66.7 %) last zero seconds: they hold no GPU"
    assert q.zero_seconds(trace([1.0])) is None


def test_models_that_were_drawn_are_told_once() -> None:
    drawn = trace(model=["vgg16", "vgg16"], iterations=[5, 6])
    assert q.drawn_models(drawn) == "models in this table were drawn by its authors, not observed"
    assert q.drawn_models(replace(drawn, notes=("models were drawn",))) is None
    assert q.drawn_models(trace(model=["vgg16", "vgg16"])) is None


def test_demand_above_capacity_is_seen() -> None:
    # Four GPUs from 0 to 10 and four more from 5 to 15, of 20 seconds.
    busy = trace(submit_s=[0, 5, 20], duration_s=[10, 10, 1], gpus=[4, 4, 1])
    assert q.demand_above_capacity(busy, 8) is None
    assert q.demand_above_capacity(busy, 7) == (
        "jobs ask for up to 8 GPUs at once, the cluster has 7: demand is above it 25 % of the time, and jobs wait"
    )
    assert q.demand_above_capacity(busy, 3) == (
        "jobs ask for 4 GPUs on average and 8 at most, the cluster has 3: "
        "its queue grows until the last submission"
    )


def test_demand_of_jobs_that_come_together_is_seen() -> None:
    told = q.demand_above_capacity(trace(submit_s=[5, 5], gpus=[2, 2]), 3)
    assert told is not None
    assert told.startswith("jobs ask for up to 4 GPUs at once, the cluster has 3")


def test_jobs_larger_than_the_cluster_are_counted() -> None:
    assert q.jobs_too_large(trace(gpus=[1, 9, 16]), 8) == (
        "2 of 3 jobs (66.7 %) ask for more GPUs than the cluster has, up to 16 of 8: they can never be placed"
    )
    assert q.jobs_too_large(trace(gpus=[1, 8]), 8) is None


# -- what is known of the published logs ----------------------------------------------------------------------

KNOWN: dict[str, tuple[str, ...]] = {
    "acme_kalos_head800": ("nothing is submitted for 3.6 days",),
    "alibaba_openb2023": (
        "861 rows, 12.2 %",
        "13 jobs submitted 16 days before",
        "half of the jobs come in 3 of 22 weeks",
        "10 times nothing is submitted",
    ),
    "alibaba_pai2020_sample": ("90 of 60,105 jobs (0.15 %) last exactly 48 h",),
    "elasticflow_195": (),
    "elasticflow_itp": ("10 clusters",),
    "muri_philly": (
        "4 clusters",
        "65 of 10,879 jobs (0.597 %) last 4 h to the minute",
        "nothing is submitted for",
    ),
    "philly": (
        "1,114 jobs submitted in the 48 days before",
        "15,684 of 111,430 jobs",
        "half of the jobs come in 4 of 20 weeks",
        "nothing is submitted for 4.6",
    ),
    "philly_attempts": (
        "1,114 jobs",
        "572 of",
        "40,386 rows repeat",
        "half of the jobs come in 4 of 20 weeks",
        "nothing is",
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_real_logs_have_the_quirks_that_are_known_of_them(shared: Path, name: str) -> None:
    found = q.quirks(read_trace(shared / "traces" / f"{name}.parquet", strict=False))
    assert len(found) == len(KNOWN[name]), found
    for sentence, part in zip(found, KNOWN[name], strict=True):
        assert part in sentence


def test_rows_that_are_lost_are_said_first(tmp_path: Path) -> None:
    rows = [f"{k}|2024-03-01T08:00:00|2024-03-01T08:00:00|2024-03-01T09:00:00|gres/gpu=1" for k in range(97)]
    wrong = ["x|soon|2024-03-01T08:00:00|2024-03-01T09:00:00|gres/gpu=1", "y|cut", "z|cut"]
    cpu = [f"c{k}|2024-03-01T08:00:00|2024-03-01T08:00:00|2024-03-01T09:00:00|cpu=1" for k in range(50)]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(["JobID|Submit|Start|End|AllocTRES", *rows, *wrong, *cpu]), encoding="utf-8")
    assert q.quirks(read_trace(path))[0] == (
        "3 rows, 3 % of those that may be jobs on GPUs, cannot be used (2 does not have 5 fields; 1 submit_s: "
        "must be a time): all figures are without them"
    )
    path.write_text("\n".join(["JobID|Submit|Start|End|AllocTRES", *rows, *rows, *cpu]), encoding="utf-8")
    assert not any("cannot be used" in quirk for quirk in q.quirks(read_trace(path)))


def test_times_in_milliseconds_are_said(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    for first in (0, 1_772_409_729_000):
        rows = [f"{k},{first + k * 86_400_000},1,3600" for k in range(9)]
        path.write_text("\n".join(["job_id,submit_s,gpus,duration_s", *rows]), encoding="utf-8")
        found = [quirk for quirk in q.quirks(read_trace(path)) if "milliseconds" in quirk]
        assert len(found) == 1
