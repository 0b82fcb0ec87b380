"""Clocks of time zones against Python's own, and logs whose times are read in a zone."""

import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.model.errors import InputError
from cranny.traces.read import read_trace
from cranny.traces.zones import clock_offsets, parse_moment

SAMPLES = Path(__file__).parent / "samples"
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]
YEAR_S = 366 * 86_400


@given(
    zone=st.sampled_from(ZONES),
    start=st.integers(1_500_000_000, 1_800_000_000),
    length=st.integers(0, YEAR_S),
    share=st.floats(0.0, 1.0),
)
def test_clocks_are_as_far_ahead_as_python_says(zone: str, start: int, length: int, share: float) -> None:
    offsets = clock_offsets(zone, float(start), float(start + length))
    assert offsets[0][0] == start
    at = start + share * length
    ahead_s = [ahead for since, ahead in offsets if since <= at][-1]
    offset = datetime.fromtimestamp(at, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    assert ahead_s == offset.total_seconds()


def test_a_change_of_the_clock_is_found_to_the_second() -> None:
    changes = clock_offsets("Europe/Berlin", parse_moment("2024-03-01"), parse_moment("2024-11-01"))
    found = [(datetime.fromtimestamp(since, UTC).isoformat(), ahead / 3600) for since, ahead in changes]
    assert found == [
        ("2024-03-01T00:00:00+00:00", 1.0),
        ("2024-03-31T01:00:00+00:00", 2.0),
        ("2024-10-27T01:00:00+00:00", 1.0),
    ]
    assert clock_offsets(None, 5.0, 10.0) == [(5.0, 0.0)]


@pytest.mark.parametrize("name", ["philly.json", "helios.csv"])
def test_times_without_a_zone_are_read_in_the_one_that_is_given(name: str) -> None:
    plain, there = read_trace(SAMPLES / name), read_trace(SAMPLES / name, zone="Asia/Shanghai")
    assert plain.zero_epoch_s is not None
    assert there.zero_epoch_s == plain.zero_epoch_s - 8 * 3600
    assert there.frame.equals(plain.frame)
    assert (plain.zone, there.zone) == (None, "Asia/Shanghai")
    assert "(Asia/Shanghai)" in there.notes[0]


@pytest.mark.parametrize("name", ["seren.csv", "pods.json"])
def test_times_that_name_a_zone_stay_and_are_shown_in_the_one_that_is_given(name: str) -> None:
    plain, there = read_trace(SAMPLES / name), read_trace(SAMPLES / name, zone="Asia/Shanghai")
    assert there.zero_epoch_s == plain.zero_epoch_s
    assert (plain.zone, there.zone) == ("UTC", "Asia/Shanghai")


@pytest.mark.parametrize("name", ["openb.csv", "tiresias.csv", "gavel.trace"])
def test_a_zone_is_refused_where_times_have_no_date(name: str) -> None:
    with pytest.raises(
        InputError, match=f"{name}: zone: the times of this file have no date: leave the time zone"
    ):
        read_trace(SAMPLES / name, zone="Asia/Shanghai")


def test_an_hour_that_clocks_show_twice_is_read_in_order(tmp_path: Path) -> None:
    # Clocks are set back from 02:00 to 01:00: by the clock the job ends before it starts.
    times = {"start_time": "2017-11-05 01:50:00", "end_time": "2017-11-05 01:10:00"}
    attempt = {**times, "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}
    job = {"jobid": "a", "status": "Pass", "vc": "v", "user": "u", "attempts": [attempt]}
    path = tmp_path / "philly.json"
    path.write_text(json.dumps([{**job, "submitted_time": "2017-11-05 01:40:00"}]), encoding="utf-8")
    trace = read_trace(path, zone="America/Los_Angeles")
    assert trace.frame.select("start_s", "duration_s").rows() == [(600.0, 1200.0)]
    table = tmp_path / "helios.csv"
    lines = (SAMPLES / "helios.csv").read_text(encoding="utf-8").splitlines()
    names = lines[0].split(",")
    row = dict(zip(names, lines[1].split(","), strict=True)) | times | {"submit_time": "2017-11-05 01:40:00"}
    table.write_text("\n".join([lines[0], ",".join(row[name] for name in names)]), encoding="utf-8")
    trace = read_trace(table, zone="America/Los_Angeles")
    assert trace.frame.select("start_s", "duration_s").rows() == [(600.0, 1200.0)]
