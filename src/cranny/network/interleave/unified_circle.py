"""The unified circle: one perimeter that holds a whole number of iterations of every job on a link.

CASSINI (NSDI'24), section 3, takes the least common multiple of the iteration times. Measured times have huge
ones, so times are first rounded to a quantum (1 ms), and the perimeter is capped.

Departure: the paper does not say what to do with a large multiple. Under the cap we take the multiple of the
rounded times, unless rounding changes one of them by more than 1 %, as it may with iterations of a few quanta.
Else we take the first perimeter of some iterations of the longest job on which no iteration is stretched by more
than 1 %, or the one that stretches least. Either way `error` says by how much the iteration time of some job was
changed. A shift is the share of an iteration by which a circle is turned, in the job's real iteration time.

Departure: the paper cuts the unified circle into equal angles, 5 degrees each. We take as many angles or more, so
that an iteration has 24, and short iterations do not slip between two angles. Where twice as many are enough for
it, each iteration is a whole number of angles: then a job is back where it was after exactly one iteration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cranny.model.arrays import Floats
from cranny.model.circle import DEGREES, Circle
from cranny.model.errors import InputError
from cranny.model.validate import positive, whole

MOST_ANGLES = 720  # unless twice as many make every iteration a whole number of them
FINEST_DEG = DEGREES / MOST_ANGLES
TOLERANCE = 0.01
# Moments closer than this share of the perimeter are one; rounding separates them.
_CLOSE = 1e-9


@dataclass(frozen=True)
class Search:
    """How finely circles are looked at, how long they may get, and how long to look for the best rotations."""

    precision_deg: float = 5.0  # of an angle of the unified circle, at most
    quantum_s: float = 1e-3  # to which iteration times are rounded
    turns: int = 16  # of the longest job round the unified circle, at most
    angles_per_iteration: int = 24  # if that is not too many in all
    exact_jobs: int = 6  # up to so many jobs are searched exactly,
    budget: int = 30_000_000  # as far as this many additions go: about 10 ms

    def __post_init__(self) -> None:
        precision = positive(self.precision_deg, "precision")
        if not FINEST_DEG <= precision <= DEGREES:
            raise InputError(f"precision must be from {FINEST_DEG:g} to 360 degrees, not {self.precision_deg!r}")
        positive(self.quantum_s, "quantum_s")
        whole(self.turns, "turns", most=1000)
        whole(self.angles_per_iteration, "angles_per_iteration", most=MOST_ANGLES)


DEFAULT = Search()
QUICK = Search(budget=1_000_000)  # for the many links of many candidates


@dataclass(frozen=True, slots=True)
class UnifiedCircle:
    """The perimeter that jobs share, how often each goes round on it (r_j), and into how many angles it is cut."""

    perimeter_s: float
    turns: tuple[int, ...]
    angles: int
    iterations_s: tuple[float, ...]  # as they really are

    @property
    def error(self) -> float:
        """The largest relative change of an iteration time."""
        return _error(self.perimeter_s, self.turns, self.iterations_s)

    @property
    def periods_s(self) -> tuple[float, ...]:
        """The iteration time of each job on this circle."""
        return tuple([self.perimeter_s / turns for turns in self.turns])

    @property
    def stretches(self) -> tuple[float, ...]:
        """How many times longer an iteration of each job is on this circle than it really is."""
        pairs = zip(self.periods_s, self.iterations_s, strict=True)
        return tuple([period_s / time_s for period_s, time_s in pairs])

    @property
    def angles_s(self) -> tuple[float, ...]:
        """Seconds of one angle in the real time of each job: what a rotation by one angle shifts it."""
        pairs = zip(self.turns, self.iterations_s, strict=True)
        return tuple([time_s * turns / self.angles for turns, time_s in pairs])

    @property
    def rotations(self) -> tuple[int, ...]:
        """How many rotations of each job differ: those of less than one iteration (Eq. 4)."""
        return tuple([-(-self.angles // turns) for turns in self.turns])


@lru_cache(maxsize=65536)
def unify(iterations_s: tuple[float, ...], search: Search = DEFAULT) -> UnifiedCircle:
    """Return the unified circle of jobs with these iteration times."""
    quanta = [max(round(time_s / search.quantum_s), 1) for time_s in iterations_s]
    multiple = math.lcm(*quanta)
    turns = tuple([multiple // each for each in quanta])
    perimeter_s = multiple * search.quantum_s
    error = _error(perimeter_s, turns, iterations_s)
    long = multiple > search.turns * max(quanta)
    if long or error > TOLERANCE:
        other_s, others = _capped(iterations_s, search.turns)
        if long or _error(other_s, others, iterations_s) < error:
            perimeter_s, turns = other_s, others
    # Angles: fine enough, not too many, a whole number a turn if it can be.
    wanted = max(math.ceil(DEGREES / search.precision_deg - 1e-9), search.angles_per_iteration * max(turns))
    wanted = max(min(wanted, MOST_ANGLES), *turns)
    step = math.lcm(*turns)
    even = step * -(-wanted // step)
    return UnifiedCircle(perimeter_s, turns, even if even <= 2 * wanted else wanted, iterations_s)


def _error(perimeter_s: float, turns: Sequence[int], iterations_s: Sequence[float]) -> float:
    """Return the largest relative change of an iteration time on a perimeter."""
    return max(
        [abs(perimeter_s / (each * time_s) - 1.0) for each, time_s in zip(turns, iterations_s, strict=True)]
    )


def _capped(iterations_s: Sequence[float], most: int) -> tuple[float, tuple[int, ...]]:
    """Return the first perimeter that stretches iterations little, or the one that does least; and the turns."""
    longest_s = max(iterations_s)
    least, best_s, best_turns = math.inf, longest_s, (1,) * len(iterations_s)
    for count in range(1, most + 1):
        turns = [round(count * longest_s / time_s) for time_s in iterations_s]
        lengths = [each * time_s for each, time_s in zip(turns, iterations_s, strict=True)]
        low, high = min(lengths), max(lengths)
        # Between the shortest and the longest lies the perimeter that is as far, relatively, from either.
        error = (high - low) / (high + low)
        if error < least:
            least, best_s, best_turns = error, 2.0 * low * high / (low + high), tuple(turns)
        if least <= TOLERANCE:
            break
    common = math.gcd(*best_turns)
    return best_s / common, tuple(each // common for each in best_turns)


def doubled(circles: Sequence[Circle], unified: UnifiedCircle) -> Floats:
    """Return the mean Gbps of each job at each angle, twice in a row for rotations, (jobs, 2 x angles)."""
    from cranny.network.interleave.rotation_kernel import fill  # Numba only where circles are rotated

    arcs = [arc for circle in circles for arc in circle.arcs]
    counts = [len(circle.arcs) for circle in circles]
    times = [(circle.iteration_s, turns) for circle, turns in zip(circles, unified.turns, strict=True)]
    rows = np.zeros((len(counts), 2 * unified.angles))
    fill(
        np.array(arcs, dtype=np.float64).reshape(-1, 3), np.array(counts), np.array(times, dtype=np.float64), rows
    )
    return rows


class DemandCurve(NamedTuple):
    """A demand that goes round a perimeter: from each moment to the next it stays the same."""

    at_s: Floats  # (pieces,) rising, the first is 0
    gbps: Floats  # (pieces,)
    perimeter_s: float

    @property
    def lengths_s(self) -> Floats:
        """How long each piece lasts, (pieces,)."""
        return np.diff(self.at_s, append=self.perimeter_s)

    def excess(self, capacity_gbps: float) -> float:
        """Return the mean Gbps above a capacity (Eq. 1)."""
        above = np.maximum(self.gbps - capacity_gbps, 0.0)
        return float(above @ self.lengths_s) / self.perimeter_s

    def score(self, capacity_gbps: float) -> float:
        """Return 1 less the mean demand above a capacity, in capacities (Eq. 2)."""
        return 1.0 - self.excess(capacity_gbps) / capacity_gbps


def curve(circles: Sequence[Circle], shifts_s: Sequence[float], unified: UnifiedCircle) -> DemandCurve:
    """Return the sum of the jobs' demands on their unified circle, each job delayed by its shift."""
    whole = unified.perimeter_s
    moments: list[Floats] = [np.zeros(1)]
    changes: list[Floats] = [np.zeros(1)]
    for circle, shift_s, turns in zip(circles, shifts_s, unified.turns, strict=True):
        once = circle.rotated(shift_s).stretched(whole / turns)
        rounds = np.arange(turns, dtype=np.float64) * once.iteration_s
        for start, end, gbps in once.arcs:
            moments += [rounds + start, rounds + end]
            changes += [np.full(turns, gbps), np.full(turns, -gbps)]
    at_s = np.concatenate(moments)
    order = np.argsort(at_s, kind="stable")
    at_s, total = at_s[order], np.cumsum(np.concatenate(changes)[order])
    last = np.append(np.diff(at_s) > _CLOSE * whole, np.array([True]))  # of those at one moment
    at_s, total = at_s[last], total[last]
    inside = at_s < whole * (1.0 - _CLOSE)
    at_s, total = at_s[inside], total[inside]
    changed = np.append(np.array([True]), np.abs(np.diff(total)) > _CLOSE)
    at_s = at_s[changed]
    at_s[0] = 0.0
    return DemandCurve(at_s, np.maximum(total[changed], 0.0), whole)
