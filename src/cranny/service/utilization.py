"""The utilization of the cluster over time, folded from the event log."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from cranny.core.state import ClusterState
from cranny.service.job_record import HELD
from cranny.service.job_records import JobRecords

EVERY_S = 1.0  # at most one point of utilization in this time
MAX_POINTS = 20_000  # of utilization, in memory


class UtilizationPoint(NamedTuple):
    """The cluster at one moment."""

    at_s: float
    held_gpus: int
    used_machines: int
    fragmentation: float
    waiting: int
    running: int
    gpus: int = 0  # of the cluster at that time; 0 where that was not noted


class UtilizationHistory:
    """The latest points."""

    def __init__(self) -> None:
        self._points: deque[UtilizationPoint] = deque(maxlen=MAX_POINTS)

    def note(self, records: JobRecords, state: ClusterState) -> None:
        """Record the current utilization; several events within a second leave one point."""
        jobs = (records.counts["waiting"], sum(records.counts[status] for status in HELD))
        gpus = (state.held_gpus, state.used_machines, state.fragmentation)
        point = UtilizationPoint(records.last_s, *gpus, *jobs, state.cluster.gpus)
        if len(self._points) > 1 and point.at_s - self._points[-2].at_s < EVERY_S:
            self._points.pop()
        self._points.append(point)

    def fill(self, points: Iterable[UtilizationPoint]) -> None:
        """Take over earlier points."""
        self._points.extend(points)

    def since(self, at_s: float, most: int) -> list[UtilizationPoint]:
        """Return the points since a time, evenly thinned out to at most `most`; the last one is always kept."""
        points = [point for point in self._points if point.at_s >= at_s]
        step = -(-len(points) // most) if points else 1
        return points[::-1][::step][::-1]
