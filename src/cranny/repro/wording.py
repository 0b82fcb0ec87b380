"""Numbers as tables and sentences of a reproduction show them."""

from cranny.report.estimate import Estimate
from cranny.report.table import MISSING

NO_SPREAD = 1e-9  # of the mean: seeds that come out alike


def plain(value: float | None) -> str:
    """Write a number with about four digits."""
    if value is None:
        return MISSING
    size = abs(value)
    places = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{value:,.{places}f}"


def spread(found: Estimate) -> str:
    """Write a mean, and the half width of its confidence interval unless all seeds came out alike."""
    if found.half is None or found.half <= NO_SPREAD * abs(found.mean):
        return plain(found.mean)
    return f"{plain(found.mean)} ± {plain(found.half)}"


def times(ratio: Estimate | float | None) -> str:
    """Write a ratio, and the half width of its confidence interval if it has one."""
    if ratio is None:
        return MISSING
    if not isinstance(ratio, Estimate):
        return f"{ratio:.3g}x"
    if ratio.half is None or ratio.half <= NO_SPREAD:
        return f"{ratio.mean:.3g}x"
    return f"{ratio.mean:.3g}x ± {ratio.half:.2g}"


def percent(share: float) -> str:
    """Write a share in whole percent."""
    return f"{100 * share:.0f} %".replace("-0 %", "0 %")


def sentence(text: str) -> str:
    """Return text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]
