"""Time zones by name, and moments and lengths of time that people type."""

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import polars as pl

from cranny.model.errors import InputError, unknown

UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
DAY_S = 86_400
ClockOffset = tuple[float, float]  # since 1970 in seconds, and by how much clocks are ahead of UTC from then on
A_LENGTH = "must be a time such as 3600, 90m, 3h, 2d or 1w"
_MOMENT = "must be a date such as 2024-03-01 or 2024-03-01T08:30+01:00"


@lru_cache(maxsize=64)
def time_zone(name: str) -> ZoneInfo:
    """Return the zone with a name such as Europe/Berlin."""
    try:
        found = ZoneInfo(name)
        pl.select(pl.lit(datetime(2024, 1, 1)).dt.replace_time_zone(name))  # noqa: DTZ001  # has zones of its own
    except (KeyError, ValueError, OSError, pl.exceptions.PolarsError):
        raise unknown("time zone", name[:60], available_timezones() | {"UTC"}) from None
    return found


def clock_offsets(zone: str | None, start: float, end: float) -> list[ClockOffset]:
    """Return how far clocks are ahead of UTC at `start`, and each change of that until `end`; no zone is UTC."""
    if zone is None:
        return [(start, 0.0)]
    where = time_zone(zone)

    def ahead_s(at: float) -> float:
        return (datetime.fromtimestamp(at, where).utcoffset() or timedelta()).total_seconds()

    found = [(start, ahead_s(start))]
    while (at := math.floor(found[-1][0])) < end:  # day by day to the next change, which is on a whole second
        while at < end and ahead_s(at + DAY_S) == found[-1][1]:
            at += DAY_S
        before, after = at, at + DAY_S
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if ahead_s(middle) == found[-1][1] else (before, middle)
        if after >= end or ahead_s(after) == found[-1][1]:
            break
        found.append((float(after), ahead_s(after)))
    return found


def parse_length_s(text: str) -> float | None:
    """Read a length of time such as 90, 90m, 3h or 2d, in seconds; None if it is none."""
    time = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([smhdw]?)", text.strip())
    return None if time is None else float(time[1]) * UNITS_S[time[2]]


def parse_moment(text: str, zone: str | None = None) -> float:
    """Read a date, or a date and time, as seconds since 1970.

    Without a zone of its own it is read in `zone`, else as if it were UTC; of a time that clocks show twice the
    first is meant, and one that they skip is read with the offset before.
    """
    given = text.strip()
    try:
        moment = datetime.fromisoformat(given if len(given) <= 64 else "")
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC if zone is None else time_zone(zone))
        return moment.timestamp()
    except InputError:
        raise
    except (ValueError, OverflowError):
        raise InputError(f"{_MOMENT}, not {text[:60]!r}") from None
