import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.report.scales import (
    calendar_axis,
    count_axis,
    duration_text,
    log_time_axis,
    share_axis,
    significant,
    time_axis,
)
from cranny.traces.zones import clock_offsets


def test_counts_begin_at_zero_and_end_over_the_highest_value() -> None:
    axis = count_axis([120.0, 398.0, None])
    assert (axis.low, axis.high) == (0.0, 400.0)
    assert [text for _, text in axis.ticks] == ["0", "100", "200", "300", "400"]


def test_shares_are_written_as_percent() -> None:
    axis = count_axis([0.1, 0.58], factor=100.0, suffix=" %")
    assert [text for _, text in axis.ticks] == ["0 %", "20 %", "40 %", "60 %"]


def test_ticks_of_two_and_a_half_keep_their_decimal() -> None:
    assert [text for _, text in count_axis([10.0]).ticks] == ["0.0", "2.5", "5.0", "7.5", "10.0"]


def test_thousands_are_short() -> None:
    assert [text for _, text in count_axis([38_000.0]).ticks] == ["0", "10k", "20k", "30k", "40k"]


@given(st.lists(st.floats(-1e9, 1e9, allow_nan=False), max_size=5))
def test_every_value_fits_its_axis(values: list[float]) -> None:
    axis = count_axis(values)
    assert axis.low < axis.high
    for value in values:
        slack = 1e-6 * max(axis.high - axis.low, 1e-24)
        assert axis.low - slack <= value <= axis.high + slack
        assert 0.0 <= axis.share(value) <= 1.0


def test_time_ticks_fall_on_whole_units() -> None:
    assert [text for _, text in time_axis(0.0, 3.2 * 86400).ticks] == [
        *("0", "12 h", "24 h", "36 h", "48 h", "60 h", "72 h"),
    ]
    assert [text for _, text in time_axis(0.0, 5.2 * 86400).ticks] == ["0", "1 d", "2 d", "3 d", "4 d", "5 d"]


def test_a_log_axis_shows_zero_at_its_edge_and_says_so() -> None:
    axis = log_time_axis([0.0, 30.0, 7200.0])
    assert axis.low == 1.0
    assert axis.share(0.0) == 0.0
    assert axis.ticks[0][1] == "≤ 1 s"


def test_a_log_axis_without_zeros_begins_at_a_power_of_ten() -> None:
    axis = log_time_axis([45.0, 90_000.0])
    assert axis.low == 10.0
    assert [text for _, text in axis.ticks] == ["10 s", "1 min", "10 min", "1 h", "10 h"]


@given(st.lists(st.floats(0.0, 1e9), max_size=6))
def test_a_log_axis_is_never_empty(values: list[float]) -> None:
    axis = log_time_axis(values)
    assert 0.0 < axis.low < axis.high
    assert all(0.0 <= axis.share(value) <= 1.0 for value in values)


def test_an_axis_of_shares_begins_where_something_happens() -> None:
    assert share_axis(0.3).low == 0.0
    assert share_axis(0.93).low == 0.9
    assert [text for _, text in share_axis(0.96).ticks] == ["95 %", "96 %", "97 %", "98 %", "99 %", "100 %"]
    assert share_axis(1.0).low == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (45, "45 s"), (5400, "90 min"), (7200, "2 h"), (10_000, "2.8 h"), (86400, "1 d")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_numbers_are_rounded_to_significant_digits() -> None:
    assert significant(1234.567) == 1235
    assert significant(0.000123456) == 0.0001235
    assert significant(math.nan) is None


def test_a_calendar_axis_has_ticks_on_midnights_hours_and_months() -> None:
    noon = 1774785600.0  # 2026-03-29T12:00:00Z
    days = calendar_axis(0.0, 5 * 86400.0, noon)
    assert [text for _, text in days.ticks] == ["30 Mar", "31 Mar", "1 Apr", "2 Apr", "3 Apr"]
    assert days.ticks[0][0] == 43200.0
    assert [text for _, text in calendar_axis(0.0, 86400.0, noon).ticks][:5] == [
        "12:00",
        "15:00",
        "18:00",
        "21:00",
        "30 Mar",
    ]
    months = calendar_axis(0.0, 365 * 86400.0, noon)
    assert [text for _, text in months.ticks][:2] == ["May 2026", "Jul 2026"]
    assert calendar_axis(5.0, 5.0, noon).high == 6.0


def test_a_calendar_axis_has_the_midnights_of_its_zone() -> None:
    # Clocks are set forward on 2024-03-31 at 01:00 UTC: midnights are at 23:00 UTC before, at 22:00 after that.
    start = 1711670400.0  # 2024-03-29T00:00:00Z
    offsets = clock_offsets("Europe/Berlin", start, start + 5 * 86400.0)
    days = calendar_axis(0.0, 5 * 86400.0, start, offsets)
    hours = [(at / 3600, text) for at, text in days.ticks]
    assert hours == [(23, "30 Mar"), (47, "31 Mar"), (70, "1 Apr"), (94, "2 Apr"), (118, "3 Apr")]
    # The hour from two to three is skipped then; in October it is shown twice.
    spring = calendar_axis(0.0, 6 * 3600.0, start + 47 * 3600.0, offsets)
    assert [text for _, text in spring.ticks] == ["31 Mar", "01:00", "03:00", "04:00", "05:00", "06:00", "07:00"]
    autumn = 1729980000.0  # 2024-10-26T22:00:00Z
    twice = calendar_axis(0.0, 4 * 3600.0, autumn, clock_offsets("Europe/Berlin", autumn, autumn + 4 * 3600.0))
    assert [text for _, text in twice.ticks][::2] == ["27 Oct", "01:00", "02:00", "02:00", "03:00"]
    months = calendar_axis(0.0, 365 * 86400.0, start, clock_offsets("Europe/Berlin", start, start + 365 * 86400.0))
    assert months.ticks[0] == (1714514400.0 - start, "May 2024")  # 2024-04-30T22:00:00Z
