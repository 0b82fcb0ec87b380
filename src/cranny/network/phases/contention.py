"""Jobs that met on a link and might ask for more than it has: who, for how long, and what that cost them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from cranny.model.circle import Circle
from cranny.model.cluster import Cluster

MOST = 3  # meetings of a run that its report shows


class Guest(NamedTuple):
    """A job on a link."""

    job_id: str
    circle: Circle
    since_s: float  # when an iteration started


@dataclass(frozen=True, slots=True)
class Meeting:
    """Jobs on a link, all the time that they shared it."""

    link: str
    gbps: float
    guests: tuple[Guest, ...]
    seconds: float
    above_gbit: float  # what these jobs asked for and did not get meanwhile, there or on other links

    @property
    def shifts_s(self) -> dict[str, float]:
        """By how much later than the first job's each job's iterations started, less than one iteration."""
        first_s = self.guests[0].since_s
        return {job_id: (since_s - first_s) % circle.iteration_s for job_id, circle, since_s in self.guests}

    def told(self) -> dict[str, Any]:
        """Return everything as plain values."""
        guests = [(job_id, circle.iteration_s, circle.arcs, since_s) for job_id, circle, since_s in self.guests]
        named = {"link": self.link, "gbps": self.gbps, "guests": guests}
        return {**named, "seconds": self.seconds, "above_gbit": self.above_gbit}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """Return what was told."""
        guests = tuple(
            Guest(job_id, Circle(iteration_s, tuple((start, end, gbps) for start, end, gbps in arcs)), since_s)
            for job_id, iteration_s, arcs, since_s in told["guests"]
        )
        return cls(**{**told, "guests": guests})


class Meetings:
    """All meetings of a run. A network says what changed, and whoever knows the time says when."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[float, tuple[Guest, ...], float]] = {}  # link: since when, who, Gbps in vain
        self._changes: dict[int, tuple[tuple[Guest, ...], float] | None] = {}
        self._kept: dict[tuple[int, tuple[tuple[str, float], ...]], tuple[tuple[Guest, ...], float, float]] = {}

    def meet(self, link: int, guests: tuple[Guest, ...], above_gbps: float) -> None:
        """Let jobs share a link from the next note on."""
        self._changes[link] = guests, above_gbps

    def part(self, link: int) -> None:
        """Let nobody meet on a link from the next note on."""
        self._changes[link] = None

    def note(self, now_s: float) -> None:
        """Write down what has changed, as of now."""
        for link, change in self._changes.items():
            before = self._open.pop(link, None)
            if before is not None and before[2] > 0.0 and now_s > before[0]:
                since_s, guests, above_gbps = before
                # A job that starts its iterations at another time meets the others anew.
                key = link, tuple([(guest.job_id, guest.since_s) for guest in guests])
                _, seconds, above_gbit = self._kept.get(key, (guests, 0.0, 0.0))
                took_s = now_s - since_s
                self._kept[key] = guests, seconds + took_s, above_gbit + took_s * above_gbps
            if change is not None:
                self._open[link] = now_s, *change
        self._changes.clear()

    def costliest(self, cluster: Cluster, count: int = MOST) -> tuple[Meeting, ...]:
        """Return the meetings whose jobs asked for most in vain, the costliest of each link."""
        best: dict[int, Meeting] = {}
        for (link, _), (guests, seconds, above_gbit) in self._kept.items():
            if link not in best or above_gbit > best[link].above_gbit:
                gbps = cluster.uplink_gbps[link]
                best[link] = Meeting(cluster.link_name(link), gbps, guests, seconds, above_gbit)
        return tuple(sorted(best.values(), key=lambda meeting: -meeting.above_gbit)[:count])
