"""One shift for every job: by CASSINI's walk if the affinity graph has no loop, by priority if it has.

CASSINI (NSDI'24) drops candidates whose affinity graph has a loop: two links may then want different shifts of
the same jobs. `loops="drop"` does as the paper.

Departure: `loops="settle"` keeps such candidates. Links are taken in the order of their load, the most loaded
first, and connect jobs that are not connected yet: a spanning forest of greatest weight. Then one job after the
other is turned to where the mean score of all links is best, as long as that helps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cranny.network.interleave.affinity import AffinityGraph, SharedLink, has_loop, modulo
from cranny.network.interleave.compatibility import Compatibility
from cranny.network.interleave.unified_circle import QUICK, Search, curve

Loops = Literal["drop", "settle"]

SWEEPS = 20  # over all jobs, at most
WORTH = 1e-4  # the least gain, in scores summed over links, for which a job is turned


@dataclass(frozen=True)
class Interleaving:
    """The shifts of all jobs that share links, and what each link then scores."""

    graph: AffinityGraph
    shifts_s: dict[str, float]
    scores: tuple[float, ...]  # of each link, at these shifts: of the demand over time, without angles
    method: str  # tree: no loop; forest: settled; none: no shifts

    @property
    def score(self) -> float:
        """The mean score of the links, by which candidates are ranked; 1 if no link is shared."""
        return sum(self.scores) / len(self.scores) if self.scores else 1.0

    @property
    def bound(self) -> float:
        """A mean score that no shifts can exceed: every link at its own bound."""
        fits = self.graph.fits
        return sum(fit.bound for fit in fits) / len(fits) if fits else 1.0

    @property
    def error(self) -> float:
        """The largest relative change that unified circles made to an iteration time."""
        return max((fit.unified.error for fit in self.graph.fits), default=0.0)

    @property
    def fits(self) -> tuple[Compatibility, ...]:
        """What each link would have by itself."""
        return self.graph.fits


def interleave(
    links: Iterable[SharedLink], search: Search = QUICK, loops: Loops = "settle"
) -> Interleaving | None:
    """Return the shifts of all jobs on these links; None for a graph with a loop if such are dropped."""
    best = choose([tuple(links)], search, loops)
    return None if best is None else best.interleaving


def shifted(graph: AffinityGraph) -> Interleaving:
    """Return the shifts of all jobs of a graph whose links are solved."""
    if not graph.links:
        return Interleaving(graph, {}, (), "tree")
    loop = has_loop(graph.links)
    shifts_s = _settled(graph) if loop else graph.traverse()
    return Interleaving(graph, shifts_s, scores(graph, shifts_s), "forest" if loop else "tree")


def as_they_run(graph: AffinityGraph, starts_s: Mapping[str, float]) -> Interleaving:
    """Return the links of jobs that are not shifted, given when iterations of each start."""
    iterations_s = {job: circle.iteration_s for link in graph.links for job, circle in link.circles.items()}
    within_s = {job: starts_s[job] % iteration_s for job, iteration_s in iterations_s.items()}
    return Interleaving(graph, {}, scores(graph, within_s), "none")


@dataclass(frozen=True)
class RankedCandidate:
    """The candidate whose links score best, and its shifts."""

    number: int  # among the candidates
    interleaving: Interleaving
    fits: tuple[float | None, ...]  # the mean score of each candidate's links on their own; None if dropped


def choose(
    candidates: Sequence[Sequence[SharedLink]], search: Search = QUICK, loops: Loops = "settle"
) -> RankedCandidate | None:
    """Return the best of some candidates (Alg. 2, without its host): of equal ones the first; None if all drop.

    Candidates are ranked by the mean score of their links on their own, as in the paper. Shifts cannot do better
    than that, so they are computed from the top down, until no candidate is left that could be better.
    """
    graphs = [  # Alg. 2, lines 12-22
        None if loops == "drop" and has_loop(links) else AffinityGraph.of(links, search) for links in candidates
    ]
    fits = tuple(None if graph is None else graph.score for graph in graphs)
    best: RankedCandidate | None = None
    for number, graph in sorted(enumerate(graphs), key=lambda each: -(fits[each[0]] or 0.0)):
        if graph is None:
            continue
        if best is not None and graph.score <= best.interleaving.score + WORTH:
            break
        found = shifted(graph)
        if best is None or found.score > best.interleaving.score + WORTH:
            best = RankedCandidate(number, found, fits)
    return best


def scores(graph: AffinityGraph, shifts_s: Mapping[str, float]) -> tuple[float, ...]:
    """Return the score of each link when its jobs are shifted so; jobs without a shift are not.

    Of the demand over time: angles, over which demand is averaged, would hide some of what is above the capacity.
    """
    return tuple(
        curve(tuple(link.circles.values()), [shifts_s.get(job, 0.0) for job in link.circles], fit.unified).score(
            link.gbps
        )
        for link, fit in zip(graph.links, graph.fits, strict=True)
    )


def _settled(graph: AffinityGraph) -> dict[str, float]:
    """Return shifts for a graph with loops: the forest's, improved job by job."""
    from cranny.network.interleave.joint_search import JointArrays, settle

    arrays, forest = JointArrays.of(graph), _forest(graph)
    shifts_s = np.array([forest[job] for job in graph.jobs])
    least = np.array([(1.0 - fit.bound) for fit in graph.fits]) * arrays.angles * arrays.gbps
    settle(arrays, shifts_s, least, SWEEPS, WORTH)
    return dict(zip(graph.jobs, shifts_s.tolist(), strict=True))


def _forest(graph: AffinityGraph) -> dict[str, float]:
    """Let links connect jobs, the most loaded link first; jobs that are connected already stay as they are."""
    above: dict[str, tuple[str, float]] = {}  # another job of the same tree, and the shift against it

    def root(job: str) -> tuple[str, float]:
        shift_s = 0.0
        while job in above:
            job, by_s = above[job]
            shift_s += by_s
        return job, shift_s

    order = sorted(range(len(graph.links)), key=lambda link: (-graph.links[link].load, link))
    for number in order:
        weights = graph.weights_s[number]
        first = next(iter(weights))
        for job in weights:
            (top, at_s), (other, there_s) = root(first), root(job)
            if top != other:
                above[other] = (top, at_s - weights[first] + weights[job] - there_s)
    return {
        job: modulo(root(job)[1], circle.iteration_s)
        for link in graph.links
        for job, circle in link.circles.items()
    }
