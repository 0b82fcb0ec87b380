"""The least traffic of any division of ranks among machines, by trying them all."""

from collections.abc import Iterator, Sequence

import numpy as np

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
