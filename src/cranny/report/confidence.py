"""Means over seeds, and how far they can be trusted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Student's t for 95 %, by degrees of freedom from 1 on.
_T95 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and half the width of its 95 % confidence interval, which takes two values at least."""

    mean: float
    half: float | None


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of some values of one distribution, with its confidence interval."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(mean, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    freedom = count - 1
    # Past the table by the first terms of its series.
    t95 = _T95[freedom - 1] if freedom <= len(_T95) else _Z95 + (_Z95**3 + _Z95) / (4 * freedom)
    return Estimate(mean, t95 * deviation / math.sqrt(count))
