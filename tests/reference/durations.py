"""Estimates of durations, literally: intervals as pairs, groups as dictionaries, integrals by small steps."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

from cranny.model.job import Job
from cranny.policies.cranny.durations import BINS, BINS_PER_DOUBLING, HALF_LIVES, PUBLISHED

Interval = tuple[int, int]  # of bins
STEPS = 40  # of an integral over a bin


def published_share(doublings: float) -> float:
    """Return the share of jobs that run at most 2 to the power of `doublings` seconds."""
    points = [(2.0 * index, percent / 100) for index, percent in enumerate(PUBLISHED)]
    points.append((BINS / BINS_PER_DOUBLING, 1.0))
    for (low, below), (high, above) in pairwise(points):
        if doublings <= high:
            return below + (above - below) * (doublings - low) / (high - low)
    return 1.0


class Group:
    """What was learned of some jobs: the weights of both halves of each interval."""

    def __init__(self, half_life: float, pseudo: Callable[[int], float], parent: "Group | None") -> None:
        self.half_life, self.pseudo, self.parent = half_life, pseudo, parent
        self.halves: dict[Interval, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def lower_share(self, interval: Interval) -> float:
        """Return the share of the lower half of an interval."""
        lower, upper = self.halves[interval]
        pseudo = self.pseudo(BINS // (interval[1] - interval[0]))
        return (lower + pseudo * broader_share(self.parent, interval)) / (lower + upper + pseudo)

    def take_in(self, interval: Interval, half: int, weight: float) -> None:
        """Count an observation in one half of an interval, and in the parent what came from there."""
        lower = broader_share(self.parent, interval)
        pseudo = self.pseudo(BINS // (interval[1] - interval[0]))
        from_parent = pseudo * (1.0 - lower if half else lower)
        part = from_parent / (self.halves[interval][half] + from_parent)
        if self.parent is not None:
            self.parent.take_in(interval, half, weight * part)
        self.halves[interval][half] += weight

    def forget(self) -> None:
        """Let all that was learned lose weight for one more observation."""
        for weights in self.halves.values():
            weights[:] = [weight * 0.5 ** (1.0 / self.half_life) for weight in weights]


def broader_share(parent: Group | None, interval: Interval) -> float:
    """Return the share of the lower half of an interval in the broader group, or before anything is learned."""
    if parent is not None:
        return parent.lower_share(interval)
    low, high = interval
    edges = [published_share(each / BINS_PER_DOUBLING) for each in (low, (low + high) // 2, high)]
    return (edges[1] - edges[0]) / (edges[2] - edges[0])


class LiteralEstimates:
    """The same as `DurationEstimates` for jobs that state no duration."""

    def __init__(self, half_lives: Sequence[float] = HALF_LIVES) -> None:
        self.half_lives = half_lives
        self.learned: dict[tuple[object, ...], Group] = {}

    def groups(self, job: Job) -> list[Group]:
        """Return the groups of a job, the broadest first, each the parent of the next."""
        size = math.ceil(math.log2(job.gpus))
        model = job.profile.name
        keys: list[tuple[object, ...]] = [("all",), ("size", size), ("model", model, size)]
        keys += [("tenant", job.tenant, size), ("same", job.tenant, model, job.gpus), ("recent", job.tenant)]
        found: list[Group] = []
        for key, half_life in zip(keys, self.half_lives, strict=True):
            recent = key[0] == "recent"
            group = self.learned.setdefault(
                key,
                Group(
                    half_life, (lambda _: 20.0) if recent else (lambda width: 5.0 * 1.5 ** math.log2(width)), None
                ),
            )
            group.parent = (
                found[-1] if found else None
            )  # of this job: a tenant's model may have sizes in one bucket
            found.append(group)
        return found

    def learn(self, job: Job, ran_s: float) -> None:
        """Learn that a job ended."""
        groups = self.groups(job)
        for group in groups:
            group.forget()
        at = next((each for each in range(BINS) if ran_s < 2.0 ** ((each + 1) / BINS_PER_DOUBLING)), BINS - 1)
        low, high = 0, BINS
        while high - low > 1:
            middle = (low + high) // 2
            groups[-1].take_in((low, high), int(at >= middle), 1.0)
            low, high = (middle, high) if at >= middle else (low, middle)

    def shares(self, job: Job) -> list[float]:
        """Return the share of each bin among jobs like this one."""
        narrowest = self.groups(job)[-1]

        def within(interval: Interval, mass: float) -> list[float]:
            low, high = interval
            if high - low == 1:
                return [mass]
            lower, middle = narrowest.lower_share(interval), (low + high) // 2
            return within((low, middle), mass * lower) + within((middle, high), mass * (1.0 - lower))

        return within((0, BINS), 1.0)

    def remaining(self, job: Job, ran_s: float) -> tuple[float, float, float, float]:
        """Return the mean and three quantiles of what remains, of a job with less than the longest duration."""
        shares = self.shares(job)

        def longer(than_s: float) -> float:
            """Return the share of jobs that run longer."""
            position = max(0.0, math.log2(max(than_s, 1.0)) * BINS_PER_DOUBLING)
            at = min(int(position), BINS - 1)
            return math.fsum(shares[at + 1 :]) + shares[at] * (1.0 - (position - at))

        alive = longer(ran_s)
        mean_s = 0.0  # the integral of the share that still runs
        edges = [2.0 ** (each / BINS_PER_DOUBLING / STEPS) for each in range(BINS * STEPS + 1)]
        steps = [ran_s, *(edge for edge in edges if edge > ran_s)]
        for begin, end in pairwise(steps):
            mean_s += (end - begin) * (longer(begin) + longer(end)) / 2 / alive
        quantiles = []
        for share in (0.1, 0.5, 0.9):
            low_s, high_s = max(ran_s, 1.0), edges[-1]
            for _ in range(100):
                middle_s = (low_s + high_s) / 2
                low_s, high_s = (
                    (middle_s, high_s) if longer(middle_s) > alive * (1.0 - share) else (low_s, middle_s)
                )
            quantiles.append(low_s - ran_s)
        low_s, median_s, high_s = quantiles
        return mean_s, low_s, median_s, high_s
