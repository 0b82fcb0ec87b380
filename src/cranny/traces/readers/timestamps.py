"""Times as logs write them, turned into seconds.

No time at all (empty, "None", "Unknown" and the like) becomes null, for a job that never started is no fault of
the log. What should be a time and is none becomes NaN. A time without a zone is read in the zone that the caller
names, else as if it were UTC. Where clocks are set back an hour is shown twice, and where they are set forward one
is skipped: such times have an earlier and a later reading, with the offset before the change and after it.
"""

import math
from datetime import UTC, datetime

import polars as pl

from cranny.traces.zones import time_zone

MOST_S = 1e11  # seconds since 1970, in the year 5138
NOTHING = ("", "None", "none", "Unknown", "unknown", "null", "NULL", "NaT", "nan", "NaN", "N/A", "-")


def seconds(text: pl.Expr) -> pl.Expr:
    """Read numbers of seconds."""
    return pl.when(_given(text)).then(text.cast(pl.Float64, strict=False).fill_null(math.nan))


def epoch_s(text: pl.Expr, between: str = " ", zone: str | None = None, *, later: bool = False) -> pl.Expr:
    """Read times such as `2020-03-18 04:01:39`, with `between` in the middle, as seconds since 1970.

    Times with a zone or a fraction, or another letter in the middle, or that are seconds since 1970, take longer.
    With `later` a time of two readings gets that with the offset after the change.
    """
    plain_s = _parsed_s(text, f"%Y-%m-%d{between}%H:%M:%S", zone, later=later)
    odd = pl.when(plain_s.is_null()).then(text)  # few, mostly, and nulls cost nothing
    rest = odd.str.slice(19)
    fraction_s = rest.str.extract(r"^(\.\d+)").cast(pl.Float64, strict=False).fill_null(0.0)
    offset = rest.str.extract(r"([+-]\d\d:?\d\d)$").str.replace(":", "", literal=True).cast(pl.Int32, strict=False)
    ahead_s = offset.sign() * (offset.abs() // 100 * 3600 + offset.abs() % 100 * 60)
    written, form = odd.str.slice(0, 19).str.replace("T", " ", literal=True), "%Y-%m-%d %H:%M:%S"
    local_s = _parsed_s(written, form) - ahead_s.fill_null(0)
    if zone is not None:
        local_s = (
            pl.when(rest.str.contains(r"(Z|[+-]\d\d:?\d\d)$"))
            .then(local_s)
            .otherwise(_parsed_s(written, form, zone, later=later))
        )
    sound = rest.str.contains(r"^(\.\d+)?(Z|[+-]\d\d:?\d\d)?$")
    odd_s = pl.when(sound).then(local_s + fraction_s)
    number_s = odd.map_batches(_since_1970_s, pl.Float64(), is_elementwise=True)
    given = ~text.is_in((*NOTHING, "0"))  # in databases 0 is no time at all
    return pl.when(given).then(pl.coalesce(plain_s, odd_s, number_s, pl.lit(math.nan)))


def _since_1970_s(texts: pl.Series) -> pl.Series:
    """Read numbers that may count thousandths, millionths or billionths of a second: no log is of a far year."""
    number = texts.cast(pl.Float64, strict=False)
    if number.null_count() == len(number):  # as nearly always
        return number
    for least, unit in ((MOST_S * 1e6, 1e9), (MOST_S * 1e3, 1e6), (MOST_S, 1e3)):
        number = pl.select(pl.when(number.abs() >= least).then(number / unit).otherwise(number)).to_series()
    return number


def length_s(text: pl.Expr) -> pl.Expr:
    """Read `2-03:04:05` (days, hours, minutes, seconds), with or without days and hours."""
    parts = text.str.extract_groups(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)$")
    days, hours, minutes, rest = (parts.struct[k].cast(pl.Float64, strict=False) for k in range(4))
    found_s = days.fill_null(0.0) * 86_400 + hours.fill_null(0.0) * 3600 + minutes * 60 + rest
    return pl.when(_given(text)).then(found_s.fill_null(math.nan))


def limit_s(text: pl.Expr) -> pl.Expr:
    """Read a limit in any form that Slurm takes: `90` are minutes, `2-12` days and hours; null for other words."""
    days = r"(\d+)-(\d+)(?::(\d+)(?::(\d+))?)?"
    parts = text.str.strip_chars().str.extract_groups(rf"^(?:{days}|(?:(\d+):)?(\d+):(\d+)|(\d{{1,9}}))$")
    units = (86_400, 3600, 60, 1, 3600, 60, 1, 60)
    given = [parts.struct[k].cast(pl.Float64, strict=False) * unit for k, unit in enumerate(units)]
    return pl.when(pl.any_horizontal(each.is_not_null() for each in given)).then(pl.sum_horizontal(given))


def moment_s(value: object, zone: str | None = None, *, later: bool = False) -> float | None:
    """Read one ISO time, for logs that are no tables; the earlier reading if there are two, unless `later`."""
    if value is None or (isinstance(value, str) and value.strip() in NOTHING):
        return None
    try:
        moment = datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC if zone is None else time_zone(zone), fold=int(later))
        return moment.timestamp()
    except (ValueError, OverflowError):
        return math.nan


def said(epoch: float, zone: str | None = None) -> str | None:
    """Write seconds since 1970 as a date and time, if they are one."""
    try:
        moment = datetime.fromtimestamp(epoch, UTC if zone is None else time_zone(zone))
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return None


def _parsed_s(text: pl.Expr, form: str, zone: str | None = None, *, later: bool = False) -> pl.Expr:
    """Read times of exactly this form; null where they are none."""
    shown = text.str.to_datetime(form, strict=False, time_unit="us", cache=False)
    if zone is None:
        return shown.dt.epoch("us") / 1e6
    moment = shown.dt.replace_time_zone(zone, ambiguous="latest" if later else "earliest", non_existent="null")
    # A skipped time is read with the offset of some hours before, or after.
    aside = pl.duration(hours=-3 if later else 3)
    skipped = pl.when(moment.is_null()).then(shown)
    read = (skipped - aside).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null") + aside
    return pl.coalesce(moment.dt.epoch("us"), read.dt.epoch("us")) / 1e6


def _given(text: pl.Expr) -> pl.Expr:
    """Say where something stands that is meant as a time; null where there is no text at all."""
    return ~text.is_in(NOTHING)
