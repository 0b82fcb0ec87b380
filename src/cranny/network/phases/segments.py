"""The segments of a job: its iteration cut into down phases and up phases, over all its links at once.

A *segment* is a part of the iteration in which the job asks the same of every link. In a down phase it asks for
nothing and computes. In an up phase it wants to send at so many Gbps over each of its links, in fixed
proportion: if one link gives it less, it sends less over all of them, and the segment takes longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from cranny.model.circle import Circle
from cranny.model.errors import InputError
from cranny.model.validate import not_negative, positive

_SAME_TIME = 1e-9
_SLIVER = 1e-12  # of an iteration: edges nearer to each other are one edge


class Segment(NamedTuple):
    """A part of an iteration: how long it takes alone, and the Gbps that it asks of each link meanwhile."""

    seconds: float
    uses: tuple[tuple[int, float], ...]  # (link, gbps), none in a down phase

    @property
    def gbps(self) -> float:
        """What the segment asks of its busiest link: the job's rate when it is alone."""
        return max((gbps for _, gbps in self.uses), default=0.0)


@dataclass(frozen=True)
class PhasedJob:
    """A job: its circle on each link that it uses, and when its first iteration starts.

    With a `period_s`, an agent starts its iterations at `shift_s + k * period_s`.
    """

    circles: Mapping[int, Circle]
    shift_s: float = 0.0
    period_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.circles:
            raise InputError("a job that shares links needs a circle")
        not_negative(self.shift_s, "the shift of a job")
        not_negative(self.period_s, "the period of a job")

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration alone."""
        return next(iter(self.circles.values())).iteration_s

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The iteration, cut where the demand of some link changes."""
        return segments(tuple(self.circles.items()))


@lru_cache(maxsize=65536)
def segments(circles: tuple[tuple[int, Circle], ...]) -> tuple[Segment, ...]:
    """Return the segments of a job with these circles by link."""
    whole = positive(circles[0][1].iteration_s, "a circle's iteration_s")
    for link, circle in circles:
        if abs(circle.iteration_s - whole) > _SAME_TIME * whole:
            raise InputError(
                f"a job has iterations of {whole:g} s, and of {circle.iteration_s:g} s on link {link}"
            )
    edges = sorted({edge for _, circle in circles for start, end, _ in circle.arcs for edge in (start, end)})
    cuts = [0.0]
    for edge in (*edges, whole):
        if edge - cuts[-1] > _SLIVER * whole:
            cuts.append(edge)
    cuts[-1] = whole
    found = []
    for start, end in pairwise(cuts):
        asked = [(link, circle.demand((start + end) / 2)) for link, circle in circles]
        found.append(Segment(end - start, tuple((link, gbps) for link, gbps in asked if gbps > 0)))
    return tuple(found)
