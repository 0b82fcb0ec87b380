"""The least traffic of any division of ranks among machines, by trying them all; and steps that improve one."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from cranny.model.arrays import Floats, Ints
from cranny.model.collective import Pattern


def crossing(pattern: Pattern, part: Sequence[int]) -> float:
    """Return the share of K that crosses parts, pair by pair and phase by phase."""
    return sum(phase.share * phase.times for phase in pattern.phases for a, b in phase.pairs if part[a] != part[b])


def least_crossing(pattern: Pattern, caps: Sequence[int]) -> float:
    """Return the least crossing share with at most `caps[i]` and at least one rank in part i."""
    return min(crossing(pattern, part) for part in divisions(pattern.ranks, caps))


def divisions(ranks: int, caps: Sequence[int]) -> Iterator[list[int]]:
    """Yield the part of each rank, for every allowed division."""

    def extend(part: list[int], room: list[int]) -> Iterator[list[int]]:
        if len(part) == ranks:
            if len(set(part)) == len(caps):
                yield part
            return
        for index in range(len(caps)):
            if room[index]:
                room[index] -= 1
                yield from extend([*part, index], room)
                room[index] += 1

    yield from extend([], list(caps))


def least_boundaries(pattern: Pattern) -> list[float]:
    """Return for each c the least share that any c ranks exchange with the others, from all sets of ranks."""
    sets = np.arange(1 << pattern.ranks)
    total = np.zeros(len(sets))
    for phase in pattern.phases:
        for a, b in phase.pairs:
            total += phase.share * phase.times * ((sets >> a ^ sets >> b) & 1)
    sizes = np.bitwise_count(sets)
    return [float(total[sizes == size].min()) for size in range(pattern.ranks + 1)]


def whole_table(out: Sequence[float], ranks: int, caps: Sequence[int]) -> tuple[float, tuple[int, ...]]:
    """Return the least sum of `out` over sizes of parts, and the sizes, from a table of all sums."""
    best = [0.0] + [np.inf] * ranks
    choices = []
    for cap in caps:
        sums = [[best[k - c] + out[c] for c in range(1, min(cap, k) + 1)] or [np.inf] for k in range(ranks + 1)]
        choices.append([1 + int(np.argmin(each)) for each in sums])
        best = [min(each) for each in sums]
    sizes: list[int] = []
    left = ranks
    for choice in reversed(choices):
        sizes.append(choice[left])
        left -= sizes[-1]
    return best[ranks], tuple(reversed(sizes))


@lru_cache(maxsize=16)
def _disjoint_sets(n: int) -> tuple[Ints, Ints, Ints]:
    """Return every two disjoint sets of n ranks as bit masks, ordered by union, and where each union begins."""
    sets = np.arange(1 << n)
    union, part = np.nonzero((sets[:, None] & sets) == sets)  # sets of ranks and their subsets
    return union - part, part, np.searchsorted(union, sets)


def least_split(matrix: Floats, caps: tuple[int, ...]) -> Ints:
    """Find the parts that keep most inside: part by part, over all sets of ranks that those so far may hold."""
    n = len(matrix)
    sets = np.arange(1 << n)
    holds = (sets[:, None] >> np.arange(n) & 1).astype(float)  # (sets, ranks)
    size = holds.sum(axis=1)
    inside = np.einsum("si,ij,sj->s", holds, matrix, holds) / 2
    before, part, first = _disjoint_sets(n)
    kept = np.where(sets == 0, 0.0, -np.inf)  # the most that the parts so far keep if together they hold a set
    steps = []
    for cap in caps:
        steps.append(kept)
        allowed = (size > 0) & (size <= cap)
        kept = np.maximum.reduceat(kept[before] + np.where(allowed, inside, -np.inf)[part], first)
    rest, chosen = sets[-1], np.empty(n, dtype=np.int64)
    for number in reversed(range(len(caps))):
        at = slice(first[rest], first[rest + 1] if rest < sets[-1] else None)
        allowed = (size[part[at]] > 0) & (size[part[at]] <= caps[number])
        gained = np.where(allowed, steps[number][before[at]] + inside[part[at]], -np.inf)
        picked = part[at][gained.argmax()]
        chosen[holds[picked] > 0] = number
        rest -= picked
    return chosen


def improved(matrix: Floats, part: Ints, caps: Ints, slack: float) -> Ints:
    """Swap two ranks, or move one to a part below its cap, whichever saves most, while anything saves.

    Of equals a swap comes first, then the lowest ranks.
    """
    part = part.copy()
    n, parts = len(part), len(caps)
    ranks = np.arange(n)
    while True:
        member = np.zeros((n, parts))
        member[ranks, part] = 1.0
        to_part = matrix @ member  # (ranks, parts) what a rank exchanges with each part
        own = to_part[ranks, part]
        toward = to_part[:, part]  # (i, j) what i exchanges with j's part
        saved = toward - own[:, None]
        swap = saved + saved.T - 2 * matrix
        swap[part[:, None] == part[None, :]] = -np.inf
        move = to_part - own[:, None]
        size = np.bincount(part, minlength=parts)
        move[:, size >= caps] = -np.inf
        move[size[part] <= 1] = -np.inf
        move[ranks, part] = -np.inf
        by_swap, by_move = swap.max(), move.max()
        if max(by_swap, by_move) <= slack:
            return part
        if by_swap >= by_move - slack:
            i, j = divmod(int((swap >= by_swap - slack).argmax()), n)
            part[i], part[j] = part[j], part[i]
        else:
            i, target = divmod(int((move >= by_move - slack).argmax()), parts)
            part[i] = target
