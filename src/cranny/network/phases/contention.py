"""Contention: which jobs together demanded more of a link than it has, for how long, and what that cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from cranny.model.circle import Circle
from cranny.model.cluster import Cluster

MOST = 3  # that the report of a run shows


class ContendingJob(NamedTuple):
    """A job on a contended link."""

    job_id: str
    circle: Circle
    since_s: float  # when an iteration started


_Jobs = tuple[ContendingJob, ...]


@dataclass(frozen=True, slots=True)
class Contention:
    """Jobs that shared a link, over all the time that they did."""

    link: str
    gbps: float
    jobs: _Jobs
    seconds: float
    above_gbit: float  # demand of these jobs that was not met meanwhile, there or on other links

    @property
    def shifts_s(self) -> dict[str, float]:
        """By how much later than the first job's each job's iterations started, less than one iteration."""
        first_s = self.jobs[0].since_s
        return {job_id: (since_s - first_s) % circle.iteration_s for job_id, circle, since_s in self.jobs}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        jobs = [(job_id, circle.iteration_s, circle.arcs, since_s) for job_id, circle, since_s in self.jobs]
        named = {"link": self.link, "gbps": self.gbps, "jobs": jobs}
        return {**named, "seconds": self.seconds, "above_gbit": self.above_gbit}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `to_dict` returned."""
        jobs = tuple(
            ContendingJob(job_id, Circle(iteration_s, tuple(map(tuple, arcs))), since_s)
            for job_id, iteration_s, arcs, since_s in values["jobs"]
        )
        return cls(**{**values, "jobs": jobs})


class ContentionLog:
    """All contention of a run: a network reports what changed, and its caller when."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[float, _Jobs, float]] = {}  # link: since when, jobs, unmet Gbps
        self._changes: dict[int, tuple[_Jobs, float] | None] = {}
        self._ended: dict[tuple[int, tuple[tuple[str, float], ...]], tuple[_Jobs, float, float]] = {}

    def begin(self, link: int, jobs: _Jobs, above_gbps: float) -> None:
        """Let jobs contend for a link from the next note on."""
        self._changes[link] = jobs, above_gbps

    def end(self, link: int) -> None:
        """End the contention on a link at the next note."""
        self._changes[link] = None

    def note(self, now_s: float) -> None:
        """Record what has changed, as of now."""
        for link, change in self._changes.items():
            before = self._open.pop(link, None)
            if before is not None and before[2] > 0.0 and now_s > before[0]:
                since_s, jobs, above_gbps = before
                # A job that starts its iterations at another time contends anew.
                key = link, tuple([(job.job_id, job.since_s) for job in jobs])
                _, seconds, above_gbit = self._ended.get(key, (jobs, 0.0, 0.0))
                took_s = now_s - since_s
                self._ended[key] = jobs, seconds + took_s, above_gbit + took_s * above_gbps
            if change is not None:
                self._open[link] = now_s, *change
        self._changes.clear()

    def costliest(self, cluster: Cluster, count: int = MOST) -> tuple[Contention, ...]:
        """Return the contention with most unmet demand, the costliest of each link."""
        best: dict[int, Contention] = {}
        for (link, _), (jobs, seconds, above_gbit) in self._ended.items():
            if link not in best or above_gbit > best[link].above_gbit:
                gbps = cluster.uplink_gbps[link]
                best[link] = Contention(cluster.link_name(link), gbps, jobs, seconds, above_gbit)
        return tuple(sorted(best.values(), key=lambda contention: -contention.above_gbit)[:count])
