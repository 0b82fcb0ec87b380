"""Times as commands of a server print them: how long ago, how soon, and on which day."""

from datetime import UTC, datetime

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400


def now_s() -> float:
    """Return the seconds since 1970."""
    return datetime.now(UTC).timestamp()


def stamp(at_s: float) -> str:
    """Write a moment in the time of this machine, to the second."""
    return f"{datetime.fromtimestamp(at_s).astimezone():%Y-%m-%d %H:%M:%S}"


def brief(seconds: float) -> str:
    """Write a duration in a few characters: 45s, 12m, 5h, 3d."""
    seconds = max(0.0, seconds)
    for letter, unit_s in (("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S)):
        if seconds >= (2 * unit_s if letter == "d" else unit_s):  # 30h says more than 1d
            return f"{seconds / unit_s:.0f}{letter}"
    return f"{seconds:.0f}s"


def ago(at_s: float | None, now: float) -> str:
    """Say how long ago something was; nothing if it was not."""
    return "" if at_s is None else f"{brief(now - at_s)} ago"


def soon(at_s: float, now: float) -> str:
    """Say in how long something is expected."""
    return f"in ~{brief(at_s - now)}" if at_s > now else "soon"
