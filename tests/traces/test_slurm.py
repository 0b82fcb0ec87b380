"""Slurm's accounting with its traps; the true numbers were worked out by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from cranny.model.errors import InputError
from cranny.traces.read import read_trace
from cranny.traces.readers.timestamps import epoch_s, moment_s
from cranny.traces.trace import Trace

NAMES = "JobID|Submit|Eligible|Start|End|ElapsedRaw|State|NNodes|NodeList|AllocTRES"
HOUR = 3600.0
NEVER = "never started"


def read(tmp_path: Path, rows: Sequence[str], names: str = NAMES, **options: str) -> Trace:
    """Read rows of a log of 2024-03-01; times may be hours alone."""
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([names, *rows]), encoding="utf-8")
    return read_trace(path, count_parts=True, **options)  # type: ignore[arg-type]


def row(
    name: str,
    times: str,  # submission, eligible, start and end, such as "08:00 08:00 09:00 10:00"
    on: str = "n1",
    tres: str = "gres/gpu=4,node=1",
    *,
    state: str = "COMPLETED",
    elapsed: int | None = None,
    day: str = "2024-03-01",
) -> str:
    """Write a row."""
    words = [word if word == "Unknown" else f"{day}T{word}:00" for word in times.split()]
    if elapsed is None:
        start, end = (datetime.fromisoformat(word) for word in words[2:])
        elapsed = int((end - start).total_seconds())
    nodes = tres.rpartition("node=")[2] or "1"
    return "|".join([name, *words, str(elapsed), state, nodes, on, tres])


def test_says_where_jobs_ran(tmp_path: Path) -> None:
    times = "08:00 08:00 09:00 10:00"
    trace = read(
        tmp_path,
        [
            row("1", times, "n1"),
            row("2", times, "n[1-2]", "gres/gpu=8,node=2"),
            row("3", times, "n[1-2],login1", "gres/gpu=4,node=3"),  # 4 GPUs on 3 machines: not known where
            row("4", times, "n[9-", "gres/gpu=8,node=2"),
            row("5", times, "n[001-002]", "gres/gpu:a100=2,gres/gpu=2,node=2"),
        ],
    )
    assert trace.frame["ran_on"].to_list() == ["n1:4", "n1:4 n2:4", "n1 n2 login1", None, "n001:1 n002:1"]
    assert trace.frame["machines"].to_list() == [1, 2, 3, 2, 1 + 1]
    assert "1 list of machines cannot be read" in trace.notes


def test_limits_are_read_in_every_form_that_slurm_takes(tmp_path: Path) -> None:
    forms = {
        "90": 5400.0,
        "90:30": 5430.0,
        "1:30:00": 5400.0,
        "2-12": 216_000.0,
        "2-12:30": 217_800.0,
        "2-12:30:15": 217_815.0,
        "UNLIMITED": None,
        "Partition_Limit": None,
        "": None,
    }
    rows = [f"{row(str(at), '08:00 08:00 09:00 10:00')}|{form}" for at, form in enumerate(forms)]
    trace = read(tmp_path, rows, f"{NAMES}|Timelimit")
    assert trace.frame["limit_s"].to_list() == list(forms.values())


def test_what_was_asked_for_does_not_say_where_the_gpus_are(tmp_path: Path) -> None:
    names = "JobID|Submit|Start|End|NodeList|ReqTRES"
    times = "2024-03-01T08:00:00|2024-03-01T08:00:00|2024-03-01T09:00:00"
    trace = read(tmp_path, [f"1|{times}|n[1-2]|gres/gpu=8", f"2|{times}|n3|gres/gpu=8"], names)
    assert trace.frame.select("ran_on", "machines").rows() == [("n1 n2", 2), ("n3:8", 1)]


def test_takes_queues_and_the_time_from_which_a_job_could_start(tmp_path: Path) -> None:
    names = f"{NAMES}|Partition|Account|QOS|Priority|Reservation|User"
    trace = read(
        tmp_path,
        [
            row("1", "08:00 08:30 09:00 10:00") + "|gpu|physics|high|4711|maintenance|ann",
            row("2", "08:00 Unknown 09:00 10:00") + "|gpu|physics|||||"[:-1] + "bob",
        ],
        names,
    )
    columns = ("eligible_s", "partition", "account", "qos", "priority", "reservation", "user", "tenant")
    assert trace.frame.select(columns).rows() == [
        (1800.0, "gpu", "physics", "high", 4711.0, "maintenance", "ann", "gpu"),
        (None, "gpu", "physics", None, None, None, "bob", "gpu"),
    ]


def test_every_attempt_of_a_requeued_job_counts(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [
            row("7", "08:00 08:00 09:00 10:00", "n1", state="NODE_FAIL"),
            row("7", "10:00 10:02 11:00 12:00", "n2", state="PREEMPTED"),
            row("7", "08:00 08:00 13:00 14:00", "n3"),  # says the first submission still
            row("8", "08:00 08:00 09:00 10:00", "n4"),
            row("9", "08:00 08:00 09:00 Unknown", "n5", state="RUNNING", elapsed=600),
            row("9", "08:00 08:00 09:00 09:30", "n5"),  # the same attempt, from a later log
            row("7.batch", "08:00 08:00 09:00 10:00"),
        ],
    )
    columns = ("job_id", "attempt", "submit_s", "eligible_s", "start_s", "duration_s", "ran_on", "status")
    assert trace.frame.select(columns).rows() == [
        ("7", 1, 0.0, 0.0, HOUR, HOUR, "n1:4", "NODE_FAIL"),
        ("8", 1, 0.0, 0.0, HOUR, HOUR, "n4:4", "COMPLETED"),
        ("9", 1, 0.0, 0.0, HOUR, HOUR / 2, "n5:4", "COMPLETED"),
        ("7@2", 2, 2 * HOUR, 2 * HOUR + 120, 3 * HOUR, HOUR, "n2:4", "PREEMPTED"),
        ("7@3", 3, 4 * HOUR, 4 * HOUR, 5 * HOUR, HOUR, "n3:4", "COMPLETED"),
    ]
    assert trace.skipped == {
        "a step, whose job has a row of its own": 1,
        "repeated: another row has the same attempt": 1,
    }
    assert "requeued jobs have a row for each attempt: 2 rows more than jobs" in trace.notes


def test_jobs_of_two_clusters_with_one_id_are_two_jobs(tmp_path: Path) -> None:
    times = "08:00 08:00 09:00 10:00"
    rows = [row("1", times) + "|a", row("1", times) + "|b", row("2", times) + "|b"]
    trace = read(tmp_path, rows, f"{NAMES}|Cluster")
    assert trace.frame["job_id"].to_list() == ["a/1", "b/1", "2"]


def test_parts_of_a_heterogeneous_job_are_one_job(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [
            row("5+0", "08:00 08:00 09:00 10:00", "n1", "gres/gpu:a100=4,node=1"),
            row("6", "08:00 08:00 09:00 10:00"),
            row("5+1", "08:00 08:00 09:00 11:00", "n[1-2]", "gres/gpu:a100=2,node=2"),
            row("5+2", "08:00 08:00 09:00 11:00", "c1", "cpu=64,node=1"),
            row("7+0", "08:30 08:30 09:00 10:00", "n1", "gres/gpu:a100=4,node=1"),
            row("7+1", "08:30 08:30 09:00 10:00", "v[1-3]", "gres/gpu:v100=4,node=3"),
        ],
    )
    columns = ("job_id", "gpus", "duration_s", "machines", "ran_on", "gpu_type")
    assert trace.frame.select(columns).rows() == [
        ("5", 6, 2 * HOUR, 3, "n1:5 n2:1", "a100"),
        ("6", 4, HOUR, 1, "n1:4", None),
        ("7", 8, HOUR, 4, "n1 v1 v2 v3", None),
    ]
    assert trace.skipped == {
        "CPU-only (gpus 0)": 1,
        "a further part of a heterogeneous job, which counts with the first": 2,
    }


def test_arrays_running_jobs_and_jobs_that_never_started(tmp_path: Path) -> None:
    none = "None assigned"
    trace = read(
        tmp_path,
        [
            row("3_4", "08:00 08:00 09:00 10:00"),
            row("3_[5-10%2]", "08:00 08:00 Unknown Unknown", none, "", state="PENDING", elapsed=0),
            row("4", "08:00 08:00 09:00 Unknown", state="RUNNING", elapsed=7200),
            row("5", "08:00 08:00 08:10 08:10", none, "", state="CANCELLED by 1000", elapsed=0),
            row("6", "08:00 08:00 08:10 08:10", none, "gres/gpu=4", state="CANCELLED by 0", elapsed=0),
            row("7", "08:00 08:00 09:00 09:30", state="CANCELLED by 1000"),
        ],
    )
    assert trace.frame.select("job_id", "end_s", "duration_s", "status").rows() == [
        ("3_4", 2 * HOUR, HOUR, "COMPLETED"),
        ("4", None, 2 * HOUR, "RUNNING"),
        ("7", 1.5 * HOUR, HOUR / 2, "CANCELLED"),
    ]
    assert trace.skipped == {NEVER: 3}
    assert "1 job still ran when the log was written, and counted so far" in trace.notes


def test_without_elapsed_a_running_job_counts_to_the_last_time_of_the_log(tmp_path: Path) -> None:
    names = "JobID|Submit|Start|End|AllocTRES"
    day = "2024-03-01T"
    rows = [
        f"1|{day}08:00:00|{day}08:00:00|Unknown|gres/gpu=4",
        f"2|{day}08:00:00|{day}09:00:00|{day}11:00:00|cpu=1",  # tells the time, if nothing else
    ]
    assert read(tmp_path, rows, names).frame.select("duration_s", "end_s").rows() == [(3 * HOUR, None)]


@pytest.mark.parametrize(
    ("tres", "gpus", "fraction", "gpu_type"),
    [
        ("gres/gpu:1g.5gb=1,gres/gpu=1,node=1", 1, 1 / 7, None),
        ("gres/gpu:a100_1g.5gb=2,node=1", 2, 1 / 7, "a100"),
        ("gres/gpu:a100_3g.20gb=1,gres/gpu:a100=1,gres/gpu=2,node=1", 2, (3 / 7 + 1) / 2, "a100"),
        ("gres/gpu:a30_2g.12gb=1,node=1", 1, 1 / 2, "a30"),
        ("gres/gpu:a100=2,gres/gpu=2,node=1", 2, 1.0, "a100"),
        ("gres/shard=4,node=1", 1, 4 / 8, None),
        ("gres/shard=16,node=2", 2, 1.0, None),
    ],
)
def test_parts_of_gpus(tmp_path: Path, tres: str, gpus: int, fraction: float, gpu_type: str | None) -> None:
    times = "08:00 08:00 09:00 10:00"
    full = row("0", times, "n9", "gres/shard=8,node=1")  # so that eight shards are known to be on one GPU
    trace = read(tmp_path, [full, row("1", times, "n1", tres)])
    columns = ("gpus", "gpu_fraction", "gpu_type")
    assert trace.frame.select(columns).rows()[1] == (gpus, pytest.approx(fraction), gpu_type)
    assert any("8 are taken to make a GPU" in note for note in trace.notes)


def test_whole_gpus_have_no_column_of_parts(tmp_path: Path) -> None:
    assert "gpu_fraction" not in read(tmp_path, [row("1", "08:00 08:00 09:00 10:00")]).frame.columns


def test_times_are_read_in_a_zone(tmp_path: Path) -> None:
    rows = [row("1", "08:00 08:00 09:00 10:00")]
    plain, berlin = read(tmp_path, rows), read(tmp_path, rows, zone="Europe/Berlin")
    eight = datetime(2024, 3, 1, 8, tzinfo=UTC).timestamp()
    assert (plain.zero_epoch_s, berlin.zero_epoch_s) == (eight, eight - HOUR)
    assert berlin.notes[0] == "time zero is 2024-03-01 08:00:00 (Europe/Berlin)"
    assert berlin.frame.equals(plain.frame)
    with pytest.raises(InputError, match="unknown time zone 'Berlin'"):
        read(tmp_path, rows, zone="Berlin")


def test_zones_of_several_kinds_in_one_log(tmp_path: Path) -> None:
    names = "JobID|Submit|Start|End|AllocTRES"
    rows = [
        "1|2024-03-01T08:00:00|2024-03-01T08:00:00+01:00|2024-03-01T07:30:00Z|gres/gpu=1",
        "2|1709276400|2024-03-01T02:00:00-0500|2024-03-01T09:00:00|gres/gpu=1",
    ]
    trace = read(tmp_path, rows, names, zone="Europe/Berlin")
    assert trace.frame.select("submit_s", "start_s", "end_s").rows() == [(0.0, 0.0, 1800.0), (0.0, 0.0, 3600.0)]


def test_an_hour_that_the_clock_shows_twice_is_read_as_the_row_tells(tmp_path: Path) -> None:
    autumn = "2024-10-27"  # 03:00 becomes 02:00
    trace = read(
        tmp_path,
        [
            row("1", "01:00 01:00 01:30 02:30", elapsed=3600, day=autumn),
            row("2", "01:00 01:00 01:30 02:30", elapsed=7200, day=autumn),  # the second 02:30
            row("3", "01:00 01:00 02:30 03:30", elapsed=3600, day=autumn),  # the second 02:30
            row("4", "01:00 01:00 02:30 03:30", elapsed=7200, day=autumn),
            row("5", "02:50 02:10 02:10 02:20", elapsed=600, day=autumn),  # submitted in the first, all else later
        ],
        zone="Europe/Berlin",
    )
    assert trace.frame.select("start_s", "end_s", "duration_s").rows() == [
        (1800.0, 5400.0, 3600.0),
        (1800.0, 9000.0, 7200.0),
        (9000.0, 12600.0, 3600.0),
        (5400.0, 12600.0, 7200.0),
        (7800.0, 8400.0, 600.0),
    ]
    assert trace.frame["eligible_s"].to_list()[-1] == 7800.0
    assert any(note.startswith("8 times in an hour that clocks show twice") for note in trace.notes)


def test_an_hour_that_the_clock_skips_is_read_as_an_hour_later(tmp_path: Path) -> None:
    spring = "2024-03-31"  # 02:00 becomes 03:00
    trace = read(tmp_path, [row("1", "01:00 01:00 01:30 02:30", elapsed=3600, day=spring)], zone="Europe/Berlin")
    assert trace.frame.select("start_s", "end_s").rows() == [(1800.0, 5400.0)]
    assert any(note.startswith("1 time in an hour that clocks skip") for note in trace.notes)


@st.composite
def local_times(draw: DrawFn) -> str:
    """Draw a time near a change of the clock, or anywhere."""
    day = draw(st.sampled_from(["2024-03-31", "2024-10-27", "2024-06-01", "2023-04-02", "2011-12-30"]))
    hour, minute = draw(st.integers(0, 23)), draw(st.integers(0, 59))
    return f"{day}T{hour:02d}:{minute:02d}:00"


@given(
    texts=st.lists(local_times(), min_size=1, max_size=8),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
)
def test_columns_are_read_as_python_reads_single_times(texts: list[str], zone: str) -> None:
    frame = pl.DataFrame({"t": texts}).select(
        early=epoch_s(pl.col("t"), "T", zone), late=epoch_s(pl.col("t"), "T", zone, later=True)
    )
    assert frame["early"].to_list() == [moment_s(text, zone) for text in texts]
    assert (frame["early"] - frame["late"]).abs().max() in (0.0, 1800.0, 3600.0)


def test_jobs_on_parts_of_gpus_are_skipped_unless_asked_for(tmp_path: Path) -> None:
    times = "08:00 08:00 09:00 16:00"
    rows = [row("1", times), row("2", times, "n2", "gres/gpu:1g.5gb=3,node=1")]
    assert len(read(tmp_path, rows)) == 2
    trace = read_trace(tmp_path / "sacct.txt")
    assert trace.frame["job_id"].to_list() == ["1"]
    assert list(trace.skipped.values()) == [1]
    assert trace.notes[-1] == "1 job on parts of GPUs skipped: they held 3 GPU-hours of whole GPUs"
    read(tmp_path, rows[1:])
    with pytest.raises(InputError, match="all of its 1 job are on parts of GPUs"):
        read_trace(tmp_path / "sacct.txt")
