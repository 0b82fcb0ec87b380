"""The iterations that a job has reported, over all its attempts: recent ones as they came, earlier ones together.

A job may run for weeks, and reports every few seconds. So that its whole course can be shown, neighbouring points
become one when there are too many, again and again: what is older is coarser, and nothing is lost from means.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

POINTS = 240  # of a job, in memory and in an answer
ALIKE = 0.01  # a relative difference of samples or period that is none


class Point(NamedTuple):
    """Some iterations of a job, as one of its ranks reported them; times and samples are means over them."""

    at_s: float  # when the last of them ended
    attempt: int
    rank: int
    step: int
    iterations: int
    iteration_s: float
    waited_s: float
    compute_s: float
    comm_s: float
    samples: float
    paced: bool
    period_s: float


class PointHistory:
    """A bounded number of points, in order."""

    def __init__(self, most: int = POINTS) -> None:
        self._most = most
        self._points: list[Point] = []

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def extend(self, points: Iterable[Point]) -> None:
        """Add points that follow; where there are too many, neighbours become one, or the oldest are dropped."""
        self._points.extend(points)
        for alike in (_same_settings, _same_attempt):
            if len(self._points) > self._most:
                self._points = _paired(self._points, alike)
        del self._points[: -self._most]


def _same_attempt(one: Point, other: Point) -> bool:
    return (one.attempt, one.rank) == (other.attempt, other.rank)


def _same_settings(one: Point, other: Point) -> bool:
    """Say whether nothing changed between two points that should be seen."""
    pairs = ((one.samples, other.samples), (one.period_s, other.period_s))
    near = all(abs(a - b) <= ALIKE * max(a, b) for a, b in pairs)
    return near and one.paced == other.paced and _same_attempt(one, other)


def _paired(points: list[Point], alike: Callable[[Point, Point], bool]) -> list[Point]:
    """Return the points with each two neighbours that are alike as one."""
    made: list[Point] = []
    at = 0
    while at < len(points):
        if at + 1 < len(points) and alike(points[at], points[at + 1]):
            made.append(_together(points[at], points[at + 1]))
            at += 2
        else:
            made.append(points[at])
            at += 1
    return made


def _together(one: Point, other: Point) -> Point:
    """Return two points as one that ends when the second does."""
    count = one.iterations + other.iterations
    weight = other.iterations / count

    def mean(before: float, after: float) -> float:
        return (1.0 - weight) * before + weight * after

    return other._replace(
        iterations=count,
        iteration_s=mean(one.iteration_s, other.iteration_s),
        waited_s=mean(one.waited_s, other.waited_s),
        compute_s=mean(one.compute_s, other.compute_s),
        comm_s=mean(one.comm_s, other.comm_s),
        samples=mean(one.samples, other.samples),
    )
