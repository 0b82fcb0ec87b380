"""Money, times and their intervals as people read them."""

from cranny.analysis.whatif.resampling import Interval
from cranny.report.scales import duration_text


def dollars(value: float) -> str:
    """Write money to the dollar, with its sign before the currency."""
    return f"{'-' if round(value) < 0 else ''}${abs(value):,.0f}"


def dollar_range(interval: Interval) -> str:
    """Write an interval of money."""
    return f"{dollars(interval.low)} to {dollars(interval.high)}"


def dollars_with_interval(value: float, interval: Interval | None) -> str:
    """Write money with its interval, where there is one."""
    return dollars(value) + (f" ({dollar_range(interval)})" if interval else "")


def change_text(change_s: float) -> str:
    """Write by how much a time changes, with its sign."""
    return f"{'-' if change_s < 0 else '+'}{duration_text(abs(change_s))}"


def change_with_interval(change_s: float, interval: Interval | None) -> str:
    """Write by how much a time changes, with its interval, where there is one."""
    return change_text(change_s) + (
        f" ({change_text(interval.low)} to {change_text(interval.high)})" if interval else ""
    )


def listed(names: list[str]) -> str:
    """Write names as in a sentence: a, b or c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
