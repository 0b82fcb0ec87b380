"""The circle of a job: what it asks of a link over one iteration, rolled up so that the end meets the start.

From CASSINI (NSDI'24), section 3. An *arc* is an up phase: from when to when in the iteration the job sends, and
how many Gbps it asks for. Between the arcs the job computes and asks for nothing: a down phase. Turning the circle
by some seconds, a *shift*, delays the job by as much.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from cranny.model.errors import InputError
from cranny.model.validate import not_negative, positive

Arc = tuple[float, float, float]  # start_s, end_s, gbps

DEGREES = 360.0
# Edges nearer to each other than this share of an iteration are one edge; rounding makes such slivers.
_SLIVER = 1e-12
_PLAIN = {float}


@dataclass(frozen=True)
class Circle:
    """One job's demand of one link: `arcs` of (start_s, end_s, gbps) within an iteration of `iteration_s`.

    Arcs lie inside the iteration, do not overlap, and are kept in order of time.
    """

    iteration_s: float
    arcs: tuple[Arc, ...] = ()

    def __post_init__(self) -> None:
        if type(self.iteration_s) is not float or not 0.0 < self.iteration_s < math.inf:
            object.__setattr__(self, "iteration_s", positive(self.iteration_s, "a circle's iteration_s"))
        if not isinstance(self.arcs, tuple | list):
            raise InputError(f"a circle's arcs must be a list of (start_s, end_s, gbps), not {self.arcs!r}")
        arcs = sorted(_arc(arc, number, self.iteration_s) for number, arc in enumerate(self.arcs))
        for (_, end, _), (start, _, _) in pairwise(arcs):
            if start < end:
                raise InputError(f"a circle's arcs overlap: one ends at {end:g} s, the next starts at {start:g} s")
        object.__setattr__(self, "arcs", tuple(arcs))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash, kept because circles are looked up often."""
        return hash((self.iteration_s, self.arcs))

    @classmethod
    def half_up(cls, iteration_s: float, gbps: float) -> "Circle":
        """Return a job that computes for the first half of its iteration and sends for the second."""
        return cls(iteration_s, ((iteration_s / 2, iteration_s, gbps),))

    @property
    def up_s(self) -> float:
        """Seconds of an iteration in which the job sends."""
        return sum(end - start for start, end, _ in self.arcs)

    @property
    def down_s(self) -> float:
        """Seconds of an iteration in which the job sends nothing."""
        return max(self.iteration_s - self.up_s, 0.0)

    @cached_property
    def gigabits(self) -> float:
        """What the job sends over the link in one iteration."""
        return sum((end - start) * gbps for start, end, gbps in self.arcs)

    @cached_property
    def mean_gbps(self) -> float:
        """The job's demand, averaged over its iteration."""
        return self.gigabits / self.iteration_s

    @cached_property
    def peak_gbps(self) -> float:
        """The most that the job ever asks for."""
        return max((gbps for _, _, gbps in self.arcs), default=0.0)

    def demand(self, time_s: float) -> float:
        """Return the Gbps asked for at a moment; time goes round and round the circle."""
        moment = time_s % self.iteration_s
        number = bisect_right(self.arcs, moment, key=lambda arc: arc[0]) - 1
        if number < 0:
            return 0.0
        _, end, gbps = self.arcs[number]
        return gbps if moment < end else 0.0

    def rotated(self, shift_s: float) -> "Circle":
        """Return the circle of the same job delayed by `shift_s` seconds (negative: earlier)."""
        whole, sliver = self.iteration_s, self.iteration_s * _SLIVER
        arcs: list[Arc] = []
        for start, end, gbps in self.arcs:
            begin = (start + shift_s) % whole
            finish = begin + (end - start)
            parts = ((begin, min(finish, whole)), (0.0, finish - whole))  # what crosses the top begins anew
            arcs += [(a, b, gbps) for a, b in parts if b - a > sliver]
        arcs.sort()
        limits = [
            *(start for start, _, _ in arcs[1:]),
            math.inf,
        ]  # where rounding made them overlap, the next start
        cut = zip(arcs, limits, strict=False)
        return Circle(whole, tuple((start, min(end, limit), gbps) for (start, end, gbps), limit in cut))

    def stretched(self, iteration_s: float) -> "Circle":
        """Return the same shape on another iteration time: every angle and every Gbps stays as it is."""
        whole = positive(iteration_s, "the iteration time of a stretched circle")
        by = whole / self.iteration_s
        return Circle(whole, tuple((start * by, min(end * by, whole), gbps) for start, end, gbps in self.arcs))


def _arc(arc: object, number: int, iteration_s: float) -> Arc:
    """Return one arc as plain numbers, or say what is wrong with it."""
    if isinstance(arc, tuple) and set(map(type, arc)) == _PLAIN and len(arc) == 3:
        start, end, gbps = arc
        if 0.0 <= start < end <= iteration_s and 0.0 < gbps < math.inf:
            return start, end, gbps  # the usual case, for which circles are made thousands at a time
    what = f"a circle's arcs[{number}]"
    if not isinstance(arc, tuple | list) or len(arc) != 3:
        raise InputError(f"{what} must be (start_s, end_s, gbps), not {arc!r}")
    start = not_negative(arc[0], f"{what}: start_s")
    end = positive(arc[1], f"{what}: end_s")
    gbps = positive(arc[2], f"{what}: gbps")
    if not start < end:
        raise InputError(f"{what} must end after it starts, not {start:g} to {end:g} s")
    if end > iteration_s:
        raise InputError(f"{what} ends at {end:g} s, after the iteration of {iteration_s:g} s")
    return start, end, gbps
