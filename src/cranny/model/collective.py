"""Collectives: which ranks communicate with which, in which phase, and how much.

Volumes are shares of K, the bytes that one rank reduces (the gradient). A phase is a set of pairs that
communicate at the same time. In an *exchange* both ends of a pair send `share` to each other; it counts once, as
the papers count it. Otherwise the first rank sends to the second.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.errors import unknown

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Phase:
    """Pairs that communicate at once, each moving `share` of K; the phase occurs `times` in a row."""

    pairs: tuple[Pair, ...]
    share: float
    exchange: bool
    times: int = 1


class PatternArrays(NamedTuple):
    """All pairs of a pattern, phase after phase, (pairs,) each; and the phases that they belong to."""

    a: Ints
    b: Ints
    phase: Ints  # (pairs,) index into what follows, (phases,) each
    share: Floats
    exchange: Flags
    times: Ints


@dataclass(frozen=True, eq=False)
class Pattern:
    """One run of a collective over ranks 0..ranks-1."""

    collective: str
    ranks: int
    phases: tuple[Phase, ...]

    @cached_property
    def arrays(self) -> PatternArrays:
        """The distinct phases as arrays; one that comes back, as in halving-doubling, counts its times."""
        distinct: dict[int, Phase] = {id(phase): phase for phase in self.phases}
        times = dict.fromkeys(distinct, 0)
        for phase in self.phases:
            times[id(phase)] += phase.times
        phases = list(distinct.values())
        pairs = [pair for phase in phases for pair in phase.pairs]
        sides = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return PatternArrays(
            sides[:, 0],
            sides[:, 1],
            np.repeat(np.arange(len(phases)), [len(phase.pairs) for phase in phases]),
            np.array([phase.share for phase in phases]),
            np.array([phase.exchange for phase in phases], dtype=bool),
            np.array(list(times.values()), dtype=np.int64),
        )

    @cached_property
    def edges(self) -> tuple[Ints, Floats]:
        """Each pair that ever communicates, (edges, 2), and its total share over all phases, (edges,)."""
        total: dict[Pair, float] = {}
        for phase in self.phases:
            volume = phase.share * phase.times
            for a, b in phase.pairs:
                pair = (a, b) if a < b else (b, a)
                total[pair] = total.get(pair, 0.0) + volume
        pairs = np.array(list(total), dtype=np.int64).reshape(-1, 2)
        return pairs, np.array(list(total.values()))

    def over(self, members: Iterable[int]) -> tuple[Phase, ...]:
        """Return the phases with rank i renamed to the i-th of `members`."""
        name = tuple(members)
        return tuple(
            Phase(tuple((name[a], name[b]) for a, b in phase.pairs), phase.share, phase.exchange, phase.times)
            for phase in self.phases
        )


def _ring(n: int) -> tuple[Phase, ...]:
    """Reduce-scatter then all-gather: 2(n-1) phases in which each rank passes K/n to the next."""
    if n == 2:  # the two neighbours are the same rank: an exchange
        return (Phase(((0, 1),), 1 / 2, exchange=True, times=2),)
    return (Phase(tuple((i, (i + 1) % n) for i in range(n)), 1 / n, exchange=False, times=2 * (n - 1)),)


def _halving_doubling(n: int) -> tuple[Phase, ...]:
    """Exchange K/2 with the farthest rank, K/4 with the next, ..., then all the way back.

    For n not a power of two, the first 2r ranks fold in pairs (0,1), (2,3), ... so that a power of two is
    left: the odd rank hands its gradient to the even one before, and gets the sum after, as MPI libraries do.
    """
    core = 1 << (n.bit_length() - 1)
    extra = n - core
    survivors = [2 * i for i in range(extra)] + list(range(2 * extra, n))
    halving = []
    distance, share = core // 2, 1 / 2
    while distance:
        pairs = tuple((survivors[i], survivors[i + distance]) for i in range(core) if not i & distance)
        halving.append(Phase(pairs, share, exchange=True))
        distance, share = distance // 2, share / 2
    middle = (*halving, *reversed(halving))
    if not extra:
        return middle
    fold = Phase(tuple((2 * i + 1, 2 * i) for i in range(extra)), 1.0, exchange=False)
    unfold = Phase(tuple((2 * i, 2 * i + 1) for i in range(extra)), 1.0, exchange=False)
    return (fold, *middle, unfold)


def _gloo_halving_doubling(n: int) -> tuple[Phase, ...]:
    """Exchange K/2 with the nearest rank, K/4 at distance 2, ..., then all the way back, as gloo does.

    The order of distances is the reverse of `_halving_doubling`, so most bytes pass between neighbours. For n not
    a power of two, the ranks form *binary blocks*, a power of two each, largest first, that halve on their own.
    Then each block hands its sums to the next larger one, smallest first: rank i of a block of M exchanges K/M
    with rank i mod m of the next smaller one, of m ranks.
    """
    sizes = [1 << bit for bit in reversed(range(n.bit_length())) if n >> bit & 1]
    starts = [sum(sizes[:block]) for block in range(len(sizes))]
    halving = []
    for step in range(sizes[0].bit_length() - 1):
        near = 1 << step
        ranks = (start + i for start, size in zip(starts, sizes, strict=True) for i in range(size) if near < size)
        halving.append(
            Phase(tuple((a, a + near) for a in ranks if not a & near), 0.5 ** (step + 1), exchange=True)
        )
    up, down = [], []
    for large, small in reversed(list(pairwise(range(len(sizes))))):
        pairs = [(starts[small] + i % sizes[small], starts[large] + i) for i in range(sizes[large])]
        up.append(Phase(tuple(pairs), 1 / sizes[large], exchange=False))
        down.append(Phase(tuple((b, a) for a, b in pairs), 1 / sizes[large], exchange=False))
    return (*halving, *up, *reversed(down), *reversed(halving))


def _tree(n: int) -> tuple[Phase, ...]:
    """Reduce along a binary tree (parent of i is (i-1)//2), deepest level first; broadcast back down."""
    levels: list[list[Pair]] = [[] for _ in range(n.bit_length() - 1)]
    for child in range(1, n):
        levels[(child + 1).bit_length() - 2].append((child, (child - 1) // 2))
    up = [Phase(tuple(level), 1.0, exchange=False) for level in reversed(levels)]
    down = [Phase(tuple((b, a) for a, b in level), 1.0, exchange=False) for level in levels]
    return (*up, *down)


def _parameter_server(n: int) -> tuple[Phase, ...]:
    """Each worker pushes its gradient to the server beside rank 0, then pulls the sum."""
    push = tuple((i, 0) for i in range(1, n))
    pull = tuple((0, i) for i in range(1, n))
    return (Phase(push, 1.0, exchange=False), Phase(pull, 1.0, exchange=False))


def _all_to_all(n: int) -> tuple[Phase, ...]:
    """Hand K/n to every other rank: in phase s, rank i sends to rank i+s."""
    return tuple(Phase(tuple((i, (i + s) % n) for i in range(n)), 1 / n, exchange=False) for s in range(1, n))


_FLAT: dict[str, Callable[[int], tuple[Phase, ...]]] = {
    "ring": _ring,
    "halving-doubling": _halving_doubling,
    "gloo-halving-doubling": _gloo_halving_doubling,
    "tree": _tree,
    "parameter-server": _parameter_server,
    "all-to-all": _all_to_all,
}

# Collectives whose pairs depend on the placement.
PLACED = ("hierarchical", "ina")
COLLECTIVES = (*_FLAT, *PLACED)
# Of a job that names none: what most people run, since NCCL sends large messages round a ring of ranks in order.
DEFAULT_COLLECTIVE = "ring"


@lru_cache(maxsize=4096)
def pattern(collective: str, ranks: int) -> Pattern:
    """Return the phases of a flat collective; a single rank has none."""
    if collective not in _FLAT:
        raise unknown("collective", collective, _FLAT)
    return Pattern(collective, ranks, _FLAT[collective](ranks) if ranks > 1 else ())


@lru_cache(maxsize=4096)
def placed(collective: str, machines: tuple[int, ...]) -> Pattern:
    """Reduce to the first rank of each machine, then between those, then broadcast inside.

    `machines` is the machine of each rank. Between machines, `hierarchical` is halving-doubling, and `ina`
    (in-network aggregation) sends everything to a parameter server: as patterns are blind to switches, to one
    beside rank 0 and without aggregation.
    """
    leader: dict[int, int] = {}
    members: list[Pair] = []
    for rank, machine in enumerate(machines):
        if leader.setdefault(machine, rank) != rank:
            members.append((rank, leader[machine]))
    across = "halving-doubling" if collective == "hierarchical" else "parameter-server"
    between = pattern(across, len(leader)).over(leader.values())
    reduce = (Phase(tuple(members), 1.0, exchange=False),) if members else ()
    spread = (Phase(tuple((b, a) for a, b in members), 1.0, exchange=False),) if members else ()
    return Pattern(collective, len(machines), (*reduce, *between, *spread))
