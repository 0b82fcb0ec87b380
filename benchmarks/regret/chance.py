"""How many cells are above the limit by chance alone.

Seeds differ, so a policy that is nowhere behind has some cells above 1 with ten of them. Here the true ratio of
each cell is taken to be the one measured, but at most 1, with as much noise as its interval shows. Cells are taken
as independent; those of one world are not quite, so all are below the limit somewhat more often than that says.

Defined after the ten seeds of all worlds had been seen; no verdict depends on it.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from scipy.stats import t

from benchmarks.regret.judgement import WORST, Ratio


class Chance(NamedTuple):
    """What would be found if no cell was truly above 1."""

    above: float  # cells above the limit, on average
    none: float  # probability that there is none


def chance(cells: Iterable[Ratio]) -> Chance:
    """Return how often cells are above the limit by chance; one without an interval never is."""
    shares = [_share_above(cell) for cell in cells]
    return Chance(math.fsum(shares), math.prod(1.0 - share for share in shares))


def _share_above(cell: Ratio) -> float:
    """Return how often a cell comes out above the limit."""
    if cell.low is None or cell.high is None or cell.high <= cell.low:
        return 0.0
    freedom = cell.seeds - 1
    deviation = (math.log(cell.high) - math.log(cell.low)) / 2.0 / t.ppf(0.975, freedom)
    return float(t.sf((math.log(WORST) - min(math.log(cell.value), 0.0)) / deviation, freedom))
