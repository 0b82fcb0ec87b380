"""The affinity graph: jobs and the links they share, and one shift for each job that fits all of its links.

CASSINI (NSDI'24), section 4.1 and Algorithm 1. Symbols: G = (U, V, E); U the jobs that share a link, V the links
that carry more than one job, an edge for each job on each such link. The weight of edge (j, l) is t_j^l, the
shift of j that fits best on l. Shifts on one link matter only against each other, so walking from a job over a
link to another one subtracts the first weight and adds the second. Without loops every job is reached in one way
only, and all links get what they want (Theorem 1).

Departure: the walk starts at the first job of each part of the graph, not at a random one: the same answer each
time.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cranny.model.circle import Circle
from cranny.model.errors import InputError
from cranny.network.interleave.compatibility import Compatibility, compatibility
from cranny.network.interleave.unified_circle import QUICK, Search

_SAME_TIME = 1e-9


@dataclass(frozen=True)
class SharedLink:
    """A link, its capacity, and the circle of each job that crosses it."""

    name: str
    gbps: float
    circles: Mapping[str, Circle]

    @property
    def load(self) -> float:
        """The mean demand of all jobs, in capacities."""
        return sum(circle.mean_gbps for circle in self.circles.values()) / self.gbps


def shared_links(
    circles: Mapping[str, Mapping[int, Circle]], capacities_gbps: Sequence[float], names: Sequence[str]
) -> list[SharedLink]:
    """Return the links that carry more than one job (Alg. 2, lines 3-11), given each job's circle on each link."""
    on: dict[int, dict[str, Circle]] = {}
    for job, by_link in circles.items():
        for link, circle in by_link.items():
            if circle.arcs:
                on.setdefault(link, {})[job] = circle
    return [SharedLink(names[link], capacities_gbps[link], on[link]) for link in sorted(on) if len(on[link]) > 1]


def has_loop(links: Iterable[SharedLink]) -> bool:
    """Say whether some job can be reached in two ways: two links connect the same jobs."""
    leader: dict[str, str] = {}
    for link in links:
        leaders = {lead(leader, job) for job in link.circles}
        if len(leaders) < len(link.circles):
            return True
        first = next(iter(leaders))
        leader.update(dict.fromkeys(leaders, first))
    return False


def lead(leader: dict[str, str], job: str) -> str:
    """Return the job that stands for all that a job is connected to."""
    while leader.setdefault(job, job) != job:
        leader[job] = leader[leader[job]]
        job = leader[job]
    return job


@dataclass(frozen=True)
class AffinityGraph:
    """Links that carry more than one job, and what fits best on each of them."""

    links: tuple[SharedLink, ...]
    fits: tuple[Compatibility, ...]

    @classmethod
    def of(cls, links: Iterable[SharedLink], search: Search = QUICK) -> "AffinityGraph":
        """Solve Table 1 on every link (Alg. 2, lines 17-22)."""
        shared = tuple(link for link in links if len(link.circles) > 1)
        found: dict[str, float] = {}
        for link in shared:
            for job, circle in link.circles.items():
                before_s = found.setdefault(job, circle.iteration_s)
                if abs(before_s - circle.iteration_s) > _SAME_TIME * before_s:
                    times = f"{before_s:g} s, and {circle.iteration_s:g} s on link {link.name!r}"
                    raise InputError(f"job {job!r} has two iteration times: {times}")
        fits = tuple([compatibility(tuple(link.circles.values()), link.gbps, search) for link in shared])
        return cls(shared, fits)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs, in the order in which the links name them."""
        return tuple(dict.fromkeys(job for link in self.links for job in link.circles))

    @property
    def score(self) -> float:
        """The mean score of the links, each with the shifts that it wants; 1 if there is none."""
        return sum([fit.score for fit in self.fits]) / len(self.fits) if self.fits else 1.0

    @cached_property
    def weights_s(self) -> tuple[dict[str, float], ...]:
        """The shift that each link wants of each of its jobs: w_e of edge (job, link)."""
        return tuple(
            dict(zip(link.circles, fit.shifts_s, strict=True))
            for link, fit in zip(self.links, self.fits, strict=True)
        )

    def traverse(self) -> dict[str, float]:
        """Return the shift of each job (Algorithm 1); right for all links if the graph has no loop."""
        # How many times longer a job's iteration is on the unified circle of each of its links.
        pairs = zip(self.links, self.fits, strict=True)
        stretch = [dict(zip(link.circles, fit.unified.stretches, strict=True)) for link, fit in pairs]
        across: dict[str, list[int]] = {}  # the neighbours of a job
        for number, weights in enumerate(self.weights_s):
            for job in weights:
                across.setdefault(job, []).append(number)
        shifts_s: dict[str, float] = {}  # of the jobs visited so far
        for start in across:  # line 3: each connected subgraph
            if start in shifts_s:
                continue
            shifts_s[start] = 0.0  # lines 7-8
            queue = deque([start])
            while queue:  # line 11
                job = queue.popleft()
                for link in across[job]:  # line 14
                    weights, stretches = self.weights_s[link], stretch[link]
                    for other, circle in self.links[link].circles.items():  # line 15
                        if other not in shifts_s:
                            # Line 23. Departure: where the unified circle stretches iterations, by how much this
                            # link is turned is a time on its circle, and not quite the same for both jobs.
                            turned_s = (shifts_s[job] - weights[job]) * stretches[job] / stretches[other]
                            shifts_s[other] = modulo(turned_s + weights[other], circle.iteration_s)
                            queue.append(other)
        return shifts_s


def modulo(shift_s: float, iteration_s: float) -> float:
    """Return a shift within one iteration; one that rounding left just under a whole one is none."""
    rest = shift_s % iteration_s
    return 0.0 if iteration_s - rest < _SAME_TIME * iteration_s else rest
