"""Numbers as tables and sentences of a reproduction show them."""

from collections.abc import Collection, Iterable

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING


def plain(value: float | None) -> str:
    """Write a number with about four digits."""
    return MISSING if value is None else f"{value:,.{_places(value)}f}"


def listed(values: Iterable[float]) -> str:
    """Write numbers with commas between."""
    return ", ".join(map(plain, values))


def extent(values: Collection[float]) -> str:
    """Write the least and the most of some numbers."""
    return f"{plain(min(values))} to {plain(max(values))}"


def spread(found: Estimate) -> str:
    """Write a mean, and the half width of its confidence interval if that shows with the same decimals."""
    return plain(found.mean) + _half(found, _places(found.mean))


def _places(value: float) -> int:
    """Return the decimals of a number with about four digits."""
    size = abs(value)
    return 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3


def _half(found: Estimate, places: int) -> str:
    """Write the half width of a confidence interval; nothing if so many decimals make it zero."""
    if found.half is None or round(found.half, places) == 0:
        return ""
    return f" ± {found.half:,.{places}f}"


def times(ratio: Estimate | float | None) -> str:
    """Write a ratio; that of several seeds with two decimals, and its error if that shows with them."""
    if ratio is None:
        return MISSING
    if not isinstance(ratio, Estimate):
        return f"{ratio:.3g}x"
    places = 0 if ratio.mean >= 100 else 1 if ratio.mean >= 10 else 2
    return f"{ratio.mean:,.{places}f}x{_half(ratio, places)}"


def sentence(text: str) -> str:
    """Return text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]
