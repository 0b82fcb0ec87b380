"""How well jobs share a link, and the rotations at which they share it best: Table 1 of CASSINI (NSDI'24).

Symbols: J^l the jobs on link l, C^l its capacity, A the angles, r_j the iterations of job j on the unified
circle, bw_circle_j(angle) its demand there, Delta_j its rotation. The score is 1 less the mean demand above the
capacity, in capacities (Eq. 2): 1 if the jobs never ask for more than the link has, and negative if they ask for
far too much.

Departure: the demand at an angle is the mean over it, not a sample, so that no short arc is lost.

Departure: the paper does not say how it solves Table 1. Few jobs are searched exactly, by branch and bound; more
jobs, or few whose search takes too long, get the best of several descents. Each answer says which (`method`),
and above which score no rotation can get (`bound`). Of neighbouring rotations that are equally good the middle
one is taken, so that jobs may drift a little.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from cranny.model.circle import DEGREES, Circle
from cranny.model.errors import InputError
from cranny.model.validate import positive
from cranny.network.interleave.unified_circle import DEFAULT, Search, UnifiedCircle, curve, doubled, unify

RESTARTS = 4  # before an exact search
MORE_RESTARTS = 30  # instead of one
_CLOSE = 1e-9  # of the capacity at every angle: excesses closer than this are equal


@dataclass(frozen=True, slots=True)
class Compatibility:
    """The best rotations that were found for jobs on one link."""

    score: float
    shifts_s: tuple[float, ...]  # t_j^l (Eq. 5): each in [0, iteration time)
    bound: float
    method: str  # exact or bounded
    unified: UnifiedCircle

    @property
    def rotations_deg(self) -> tuple[float, ...]:
        """Delta_j: the shifts as angles of the unified circle."""
        unified = self.unified
        on_circle = zip(self.shifts_s, unified.stretches, strict=True)
        return tuple(shift_s * stretch / unified.perimeter_s * DEGREES for shift_s, stretch in on_circle)


@lru_cache(maxsize=65536)
def compatibility(circles: tuple[Circle, ...], gbps: float, search: Search = DEFAULT) -> Compatibility:
    """Return the rotations of these circles that fit best on a link of `gbps`."""
    capacity = gbps if type(gbps) is float and 0.0 < gbps < math.inf else positive(gbps, "the capacity of a link")
    if not circles:
        raise InputError("there is no job to rotate")
    unified = unify(tuple([circle.iteration_s for circle in circles]), search)
    if sum(circle.peak_gbps for circle in circles) <= capacity:
        return _unturned(1.0, unified)
    if len(circles) == 1:
        return _unturned(curve(circles, (0.0,), unified).score(capacity), unified)
    excess, lower, turns = _searched(circles, unified, capacity, search)
    whole = unified.angles * capacity
    shifts_s = tuple([turn * angle_s for turn, angle_s in zip(turns, unified.angles_s, strict=True)])
    method = "exact" if excess <= lower + _CLOSE * whole else "bounded"
    score = 1.0 - excess / whole
    return Compatibility(score, shifts_s, max(1.0 - lower / whole, score), method, unified)


def _unturned(score: float, unified: UnifiedCircle) -> Compatibility:
    """Answer for jobs that no rotation can help, since they never clash or there is only one."""
    return Compatibility(score, (0.0,) * len(unified.turns), score, "exact", unified)


def _searched(
    circles: Sequence[Circle], unified: UnifiedCircle, capacity: float, search: Search
) -> tuple[float, float, list[int]]:
    """Return the least excess that was found, a lower bound of it, and the rotation of each job.

    The job with the most rotations comes first: only rotations against each other matter, so one stands still.
    Then those that send most, for tight bounds early. Equal jobs stand side by side.
    """
    from cranny.network.interleave import rotation_kernel  # Numba only where circles are rotated

    kinds = {circle: number for number, circle in reversed(list(enumerate(circles)))}
    order = sorted(range(len(circles)), key=lambda job: (-circles[job].mean_gbps, kinds[circles[job]], job))
    still = max(order, key=lambda job: unified.rotations[job])
    order.remove(still)
    order.insert(0, still)
    rows = doubled(circles, unified)[order]
    close = _CLOSE * unified.angles * capacity
    table = rotation_kernel.RotationSearch.of(
        rows,
        np.array([unified.rotations[job] for job in order], dtype=np.int64),
        np.array([False] + [circles[a] == circles[b] for a, b in pairwise(order)], dtype=np.int64),
        capacity,
        close,
    )
    floor = max(float(rows.sum()) / 2.0 - unified.angles * capacity, 0.0)  # what does not fit however it is spread
    best = np.zeros(len(rows), dtype=np.int64)
    exact = len(rows) <= search.exact_jobs
    least = rotation_kernel.local_search(
        table, floor, RESTARTS if exact else MORE_RESTARTS, search.budget // 5, best
    )
    least, lower = rotation_kernel.branch_and_bound(table, floor, search.budget if exact else -1, least, best)
    rotation_kernel.centre(table, best)
    turns = best[np.argsort(order)].tolist()
    return (float(least), float(lower), turns) if least > close else (0.0, 0.0, turns)
