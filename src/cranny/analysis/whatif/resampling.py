"""How sure a mean over a window is: its weeks, or days, are drawn again and again.

Days that follow each other are alike, as queues go on over night, so weeks are drawn where there are enough.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

from cranny.analysis.whatif.headroom import HOUR_S
from cranny.model.arrays import Floats
from cranny.model.validate import counted
from cranny.traces.inspect import Window

DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
LEAST_WEEKS = 4  # whole ones, for an interval
LEAST_DAYS = 7  # whole ones, where there are too few weeks
RESAMPLES = 2000
OUTSIDE = 0.05  # the share of resampled values outside the interval
ROUNDING = 1e-9  # of a block: a window that is longer by so little is not longer


@dataclass(frozen=True, slots=True)
class Interval:
    """From where to where 95 % of the resampled values lie."""

    low: float
    high: float

    @property
    def has_zero(self) -> bool:
        """Whether the sign of the value is in doubt."""
        return self.low <= 0 <= self.high

    def times(self, factor: float) -> "Interval":
        """Return the interval of the value times a positive factor."""
        return Interval(self.low * factor, self.high * factor)


def block_edges_s(window: Window, length_s: float) -> Floats:
    """Cut a window into blocks of a length from its start on; the last one may be shorter."""
    first_s, last_s = window
    blocks = max(1, math.ceil((last_s - first_s) / length_s - ROUNDING))
    return np.append(first_s + length_s * np.arange(blocks), last_s)


def whole_blocks(window: Window, length_s: float) -> int:
    """Return how many whole blocks of a length a window has."""
    return int((window[1] - window[0]) / length_s + ROUNDING)


def block_length_s(window: Window) -> float | None:
    """Return the length of the blocks to draw: weeks, else days; None if there are too few of both."""
    for length_s, least in ((WEEK_S, LEAST_WEEKS), (DAY_S, LEAST_DAYS)):
        if whole_blocks(window, length_s) >= least:
            return length_s
    return None


def resampled_from(window: Window) -> str:
    """Say of what intervals are made, or that there are none."""
    length_s = block_length_s(window)
    if length_s is None:
        return f"no intervals: {too_short(window)}"
    if length_s == WEEK_S:
        return f"95 % interval from {counted(len(block_edges_s(window, WEEK_S)) - 1, 'resampled week')}"
    days = counted(whole_blocks(window, DAY_S), "whole day")
    return f"95 % interval from resampled days, rather too narrow, as the window has only {days}"


def too_short(window: Window) -> str:
    """Say what a window lacks for intervals."""
    return f"the window has {counted(whole_blocks(window, DAY_S), 'whole day')}, and resampling takes {LEAST_DAYS}"


def interval_of_mean(amounts: Floats, weights: Floats, seed: int) -> Interval | None:
    """Return the interval of the sum of amounts by the sum of weights, each of one block; None of a single block.

    It is that of the bootstrap: blocks are drawn with replacement, and the mean is computed again, many times.
    With few blocks such an interval is known to be too narrow; its levels are moved outwards as Student's t
    demands (Hesterberg, The American Statistician 69(4), 2015, section 5.2: the expanded percentile interval).
    """
    amounts, weights = amounts[weights > 0], weights[weights > 0]
    if amounts.size < 2:
        return None
    drawn = np.random.default_rng(seed).integers(amounts.size, size=(RESAMPLES, amounts.size))
    resampled = amounts[drawn].sum(axis=1) / weights[drawn].sum(axis=1)
    wider = math.sqrt(amounts.size / (amounts.size - 1)) * stdtrit(amounts.size - 1, OUTSIDE / 2)
    level = float(ndtr(wider))
    low, high = np.quantile(resampled, [level, 1 - level])
    return Interval(float(low), float(high))
