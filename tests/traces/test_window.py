"""Windows of a log: what crosses an edge is cut there, and time begins with the window."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import window as reference

from cranny.model.errors import InputError
from cranny.traces.quirks import quirks
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace, TraceWindow
from cranny.traces.window import cut, far_jobs, far_sentence, window
from cranny.traces.zones import parse_moment

DAY = 86_400.0
COLUMNS = ("job_id", "submit_s", "start_s", "duration_s", "counted")
JOBS = [
    reference.Job("over", 0, 10, 20),  # before 50
    reference.Job("runs", 10, 20, 100),
    reference.Job("waits", 30, 60, 10),
    reference.Job("early", 55, 55, 5),  # in the warm-up
    reference.Job("inside", 70, 80, 10),
    reference.Job("cut", 80, 90, 50),
    reference.Job("late", 95, 120, 10),
    reference.Job("next", 100, 100, 10),
]


def trace_of(jobs: list[reference.Job]) -> Trace:
    return Trace.from_frame(
        pl.DataFrame(
            {
                "job_id": [job.name for job in jobs],
                "submit_s": [float(job.submit) for job in jobs],
                "start_s": [float(job.start) for job in jobs],
                "end_s": [float(job.start + job.duration) for job in jobs],
                "duration_s": [float(job.duration) for job in jobs],
                "limit_s": [200.0 for _ in jobs],
                "gpus": [1 for _ in jobs],
            }
        )
    )


def test_jobs_that_cross_the_edges_are_cut() -> None:
    some = cut(trace_of(JOBS), 50, 100, warm_up_s=10)
    assert some.frame.select(COLUMNS).rows() == [
        ("runs", 0.0, 0.0, 50.0, False),
        ("waits", 0.0, 10.0, 10.0, False),
        ("early", 5.0, 5.0, 5.0, False),
        ("inside", 20.0, 30.0, 10.0, True),
        ("cut", 30.0, 40.0, 10.0, True),
        ("late", 45.0, 70.0, 10.0, True),
    ]
    assert some.frame.select("end_s", "limit_s").rows() == [
        (None, 170.0),
        (20.0, 200.0),
        (10.0, 200.0),
        (40.0, 200.0),
        (None, 200.0),
        (80.0, 200.0),
    ]
    assert some.frame["running"].to_list() == [True, False, False, False, False, False]
    assert some.window == TraceWindow(0.0, 50.0, 10.0)
    assert some.notes[-1].split("; ") == [
        "time zero is second 50 of the log, the begin of the window",
        "running when it began, counted from then on: 1 job",
        "waiting when it began: 1 job",
        "running on when it ended, cut there: 2 jobs",
        "waiting when it ended: 1 job",
        "outside of it, skipped: 2 jobs",
    ]


def test_what_ran_at_the_begin_comes_before_what_waited() -> None:
    jobs = [reference.Job("waits", 0, 60, 10), reference.Job("b", 10, 40, 20), reference.Job("a", 20, 30, 30)]
    assert cut(trace_of(jobs), 50).frame["job_id"].to_list() == ["a", "b", "waits"]


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=12
    ).map(lambda rows: [reference.Job(str(k), a, a + b, c) for k, (a, b, c) in enumerate(rows)]),
    begin=st.integers(0, 80),
    length=st.integers(1, 80),
    warm_up=st.integers(0, 79),
)
def test_holds_the_seconds_that_lie_in_the_window(
    jobs: list[reference.Job], begin: int, length: int, warm_up: int
) -> None:
    warm_up = min(warm_up, length - 1)
    expected = reference.cut(jobs, begin, begin + length, warm_up)
    if not expected:
        with pytest.raises(InputError, match="no jobs in that window"):
            cut(trace_of(jobs), begin, begin + length, warm_up)
        return
    found = cut(trace_of(jobs), begin, begin + length, warm_up).frame
    assert sorted(found.select(COLUMNS).rows()) == sorted(expected)
    assert found["submit_s"].is_sorted()


def test_without_edges_nothing_changes() -> None:
    trace = trace_of(JOBS)
    whole = cut(trace)
    assert whole.frame.drop("counted").equals(trace.frame)
    assert whole.frame["counted"].all()
    assert whole.window == TraceWindow(0.0, None)
    assert window(trace) is trace


def test_a_window_inside_a_window_is_the_same_as_the_inner_one_alone() -> None:
    trace = trace_of(JOBS)
    twice = cut(cut(trace, 20, 100), 30, 80, warm_up_s=5)
    assert twice.frame.equals(cut(trace, 50, 100, warm_up_s=5).frame)
    assert twice.window == TraceWindow(0.0, 50.0, 5.0)
    again = cut(cut(trace, 50, 100))  # nothing more is cut, and nothing is forgotten
    assert again.frame.equals(cut(trace, 50, 100).frame)
    assert again.window == TraceWindow(0.0, 50.0)


def test_a_job_that_is_not_eligible_before_the_end_is_outside() -> None:
    trace = trace_of([reference.Job("inside", 60, 60, 10), reference.Job("late", 70, 130, 10)])
    frame = trace.frame.with_columns(eligible_s=pl.Series([60.0, 120.0]))
    assert cut(replace(trace, frame=frame), 50, 100).frame["job_id"].to_list() == ["inside"]


def test_edges_may_be_dates_lengths_of_time_and_seconds() -> None:
    trace = replace(trace_of(JOBS), zero_epoch_s=parse_moment("2024-03-01", "Europe/Berlin"), zone="Europe/Berlin")
    wanted = cut(trace, 60, 90, 15).frame
    for edges in (("1m", "1.5m", "15s"), (60.0, 90.0, 15.0), ("2024-03-01T00:01", "2024-03-01T00:01:30", 15.0)):
        assert window(trace, edges[0], edges[1], warm_up=edges[2]).frame.equals(wanted)
    with pytest.raises(InputError, match=r"^to: must be a date such as"):
        window(trace, None, "noon")
    with pytest.raises(InputError, match=r"^warm-up: must be a time such as 3600, 90m, 3h, 2d or 1w, not 'long'"):
        window(trace, warm_up="long")
    with pytest.raises(InputError, match=r"^from: the times of trace have no date; give a time such as 2d"):
        window(trace_of(JOBS), "2024-03-01")


def test_jobs_without_a_start_are_in_the_window_by_their_submission() -> None:
    frame = pl.DataFrame(
        {"job_id": ["a", "b", "c"], "submit_s": [0.0, 60.0, 100.0], "gpus": 1, "duration_s": 500.0}
    )
    some = cut(Trace.from_frame(frame), 50, 100).frame
    assert some.select("job_id", "submit_s", "duration_s", "counted").rows() == [("b", 10.0, 500.0, True)]
    assert "start_s" not in some.columns


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((100, 50, 0), "the window must begin before it ends"),
        ((0, 50, 50), "the warm-up of 50 s is as long as the window"),
        ((1000, 2000, 0), "no jobs in that window; jobs are submitted from 0 s to 100 s"),
    ],
)
def test_a_window_must_make_sense(edges: tuple[float, float, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cut(trace_of(JOBS), *edges)


@pytest.mark.parametrize(
    ("text", "zone", "moment"),
    [
        ("2024-03-01", None, 1709251200.0),
        ("2024-03-01", "Europe/Berlin", 1709251200.0 - 3600),
        ("2024-03-01T00:00+05:30", "Europe/Berlin", 1709251200.0 - 5.5 * 3600),
        ("2024-03-01 12:30Z", None, 1709251200.0 + 12.5 * 3600),
        ("2024-10-27T02:30", "Europe/Berlin", 1729989000.0),  # shown twice: the first
        ("2024-03-31T02:30", "Europe/Berlin", 1711848600.0),  # skipped: 03:30 in summer time
    ],
)
def test_reads_moments(text: str, zone: str | None, moment: float) -> None:
    assert parse_moment(text, zone) == moment


@pytest.mark.parametrize("text", ["", "noon", "2024-13-01", "1" * 100, "2024-03-01T25:00"])
def test_refuses_what_is_no_moment(text: str) -> None:
    with pytest.raises(InputError, match=r"^must be a date such as 2024-03-01 or"):
        parse_moment(text)


def test_suggests_a_time_zone() -> None:
    with pytest.raises(InputError, match=r"^unknown time zone 'Europe/Berln'; did you mean 'Europe/Berlin'\?$"):
        parse_moment("2024-03-01", "Europe/Berln")
    with pytest.raises(InputError, match=r"^unknown time zone '../etc/passwd'"):
        parse_moment("2024-03-01", "../etc/passwd")


def march(left_over: int) -> list[str]:
    """Write a log of a machine with 8 GPUs that is full all March, and jobs left over from January."""
    rows = ["JobID|Submit|Start|End|ElapsedRaw|NNodes|NodeList|AllocTRES"]
    for day in range(31):
        at = f"2024-03-{day + 1:02d}T00:00:00"
        end = f"2024-03-{day + 2:02d}T00:00:00" if day < 30 else "2024-04-01T00:00:00"
        rows += [f"{day * 4 + part}|{at}|{at}|{end}|86400|1|n1|gres/gpu=2,node=1" for part in range(4)]
    for job in range(left_over):
        old, end = "2024-01-01T00:00:00", "2024-01-01T00:01:00"
        rows.append(f"{9000 + job}|{old}|{old}|{end}|60|1|n1|gres/gpu=1,node=1")
    return rows


def mean_held(trace: Trace, until_s: float) -> float:
    """Return the GPUs held in the mean from time zero on."""
    start_s, duration_s, gpus = (trace.frame[name].to_numpy() for name in ("start_s", "duration_s", "gpus"))
    return float(((start_s + duration_s).clip(max=until_s) - start_s) @ gpus / until_s)


def test_a_job_left_over_from_january_does_not_make_a_full_march_look_half_empty(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join(march(left_over=1)), encoding="utf-8")
    trace = read_trace(path)
    assert mean_held(trace, 91 * DAY) == pytest.approx(8 * 31 / 91, rel=1e-3)
    whole_march = window(trace, "2024-03-01", "2024-04-01")
    assert mean_held(whole_march, 31 * DAY) == 8.0
    assert whole_march.zero_epoch_s == parse_moment("2024-03-01")
    assert [far.jobs for far in far_jobs(trace)] == [1]
    assert far_jobs(whole_march) == []
    warned = [line for line in quirks(trace) if "--from" in line]
    assert warned[0].startswith("1 job submitted 60 days before the rest")
    assert warned[0].endswith("use --from 2024-03-01 --to 2024-04-01")
    assert not any("--from" in line for line in quirks(whole_march))


def test_jobs_far_after_the_rest_are_found_too() -> None:
    jobs = [reference.Job(str(k), k * 3600, k * 3600, 60) for k in range(200)]
    assert far_jobs(trace_of(jobs)) == []
    found = far_jobs(trace_of([*jobs, reference.Job("last", 200 * 3600 + 90 * 86_400, 0, 60)]))
    assert [(far.jobs, far.before, round(far.far_s / DAY)) for far in found] == [(1, False, 90)]
    told = far_sentence(trace_of([*jobs, reference.Job("last", 200 * 3600 + 90 * 86_400, 0, 60)]))
    assert told is not None
    assert told.startswith("1 job submitted 90 days after the rest: all is measured over that time too")
    assert told.endswith("use --from 0d --to 9d")  # the rest is submitted in 199 hours


def test_jobs_all_along_before_the_rest_are_found_too() -> None:
    old = [reference.Job(f"old{k}", k * DAY, k * DAY, 60) for k in range(10)]
    jobs = [reference.Job(str(k), 10 * DAY + k * 600, 10 * DAY + k * 600, 60) for k in range(2000)]
    assert [(far.jobs > 1, far.before) for far in far_jobs(trace_of([*old, *jobs]))] == [(True, True)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_counted_survives_our_own_formats(tmp_path: Path, suffix: str) -> None:
    some = cut(trace_of(JOBS), 50, 100, warm_up_s=10)
    some.write(tmp_path / f"some{suffix}")
    assert read_trace(tmp_path / f"some{suffix}").frame.equals(some.frame)
