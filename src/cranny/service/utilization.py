"""How full the cluster was: a point every few seconds, as far back as memory allows."""

from collections import deque
from typing import NamedTuple

from cranny.core.state import ClusterState
from cranny.service.job_records import Ledger

EVERY_S = 1.0
MOST_POINTS = 20_000


class Point(NamedTuple):
    """The cluster at a moment."""

    at_s: float
    held_gpus: int
    used_machines: int
    fragmentation: float
    waiting: int
    running: int


class History:
    """The latest points."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=MOST_POINTS)

    def note(self, ledger: Ledger, state: ClusterState) -> None:
        """Note how things are; several events of one second leave one point."""
        running = ledger.counts["running"] + ledger.counts["starting"] + ledger.counts["stopping"]
        point = Point(
            ledger.last_s,
            state.held_gpus,
            state.used_machines,
            state.fragmentation,
            ledger.counts["waiting"],
            running,
        )
        if self._points and point.at_s - self._points[-1].at_s < EVERY_S and len(self._points) > 1:
            before = self._points[-2]
            if point.at_s - before.at_s < EVERY_S:
                self._points.pop()
        self._points.append(point)

    def since(self, at_s: float, most: int) -> list[Point]:
        """Return the points since a time, thinned out evenly if there are many; the last is always there."""
        points = [point for point in self._points if point.at_s >= at_s]
        step = -(-len(points) // most) if points else 1
        return points[::-1][::step][::-1]
