"""Time zones by name, and moments that people type."""

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import polars as pl

from cranny.model.errors import InputError, unknown

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
