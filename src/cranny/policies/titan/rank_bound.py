"""How many ranks each machine can take at most within the bandwidth: a bound that mostly makes a search needless.

Two ranks that exchange more in a phase than passes between a machine and any other are both on it or both not. If
all groups of such ranks have a multiple of g ranks, the machine takes a multiple of g.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cranny.core.machine_set import FreeMachines, members
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.policies.titan.bandwidth import Bandwidth, Patterns, patterns

Objectives = tuple[int, int]  # O1, O2


class ExchangeLevels(NamedTuple):
    """What two ranks exchange in a phase, ascending, and the ranks that must be together if that does not pass."""

    level_bytes: tuple[float, ...]
    multiple: tuple[int, ...]  # (levels + 1,) that a machine takes a multiple of, if so many levels pass


class RankLimit(NamedTuple):
    """A machine on offer, and the ranks that it can take at most."""

    idle: bool
    machine: int
    free_gbps: float  # of its uplink
    ranks: int


@lru_cache(maxsize=256)
def exchange_levels(what: Patterns) -> ExchangeLevels:
    """Return the levels of what a job runs."""
    pairs = [(pattern.arrays, k_bytes) for pattern, k_bytes in what]
    sent = np.concatenate([each.share[each.phase] * k_bytes for each, k_bytes in pairs])
    a = np.concatenate([each.a for each, _ in pairs])
    b = np.concatenate([each.b for each, _ in pairs])
    level_bytes = np.unique(sent).tolist()
    group = np.arange(what[0][0].ranks)
    multiples = [1]  # if everything passes
    for level in reversed(level_bytes):
        at_level = sent == level
        for one, other in zip(a[at_level].tolist(), b[at_level].tolist(), strict=True):
            if group[one] != group[other]:
                group[group == group[one]] = group[other]
        multiples.append(int(np.gcd.reduce(np.bincount(group))))
    return ExchangeLevels(tuple(level_bytes), tuple(multiples[::-1]))


def rank_limits(job: Job, view: Snapshot, available: FreeMachines, bandwidth: Bandwidth) -> Iterator[RankLimit]:
    """Yield the machines on offer, those in use first."""
    levels = exchange_levels(patterns(job))
    offered = [
        (idle, free, machine, view.link_free_gbps(machine))
        for idle, sets in ((False, available.in_use[1:]), (True, available.idle[1:]))
        for free, machines in enumerate(sets, start=1)
        for machine in members(machines)
    ]
    # Nothing is faster between two machines than the link of either: so the second widest is the limit of all.
    fastest = sorted(gbps for *_, gbps in offered)[-2:][0]
    for idle, free, machine, gbps in offered:
        passing = bisect_right(levels.level_bytes, bandwidth.limit_bytes(min(gbps, fastest)))
        multiple = levels.multiple[passing]
        yield RankLimit(idle, machine, gbps, min(free, job.gpus) // multiple * multiple)


class RankBound(NamedTuple):
    """The ranks that machines can take at most, largest first."""

    in_use: list[int]
    idle: list[int]

    @classmethod
    def of(cls, limits: Iterable[RankLimit]) -> "RankBound":
        """Sort them."""
        found = sorted(((each.idle, each.ranks) for each in limits), reverse=True)
        return cls([ranks for idle, ranks in found if not idle], [ranks for idle, ranks in found if idle])

    def holds(self, ranks: int) -> bool:
        """Say whether all machines together could take so many ranks."""
        return sum(self.in_use) + sum(self.idle) >= ranks

    def is_least(self, objectives: Objectives, ranks: int) -> bool:
        """Say whether no placement of so many ranks can have less (O1, O2)."""
        idle, machines = objectives
        fewer_idle = idle > 0 and sum(self.idle[: idle - 1]) + sum(self.in_use) >= ranks
        others = machines - 1 - idle
        fewer = others >= 0 and sum(self.idle[:idle]) + sum(self.in_use[:others]) >= ranks
        return not fewer_idle and not fewer
