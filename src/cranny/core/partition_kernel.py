"""Splits of ranks among parts, compiled: by swaps and moves, grown at random, and the best of all.

`matrix` is what each two ranks exchange; `caps` the most ranks of each part, and none may stay empty. Differences
of up to `slack` are rounding.
"""

import numpy as np

from cranny.core.jit import allocating, compiled
from cranny.model.arrays import Floats, Ints

MOST_STEPS = 400


@compiled
def crossing(matrix: Floats, part: Ints) -> float:
    """Return what crosses parts."""
    total = 0.0
    for i in range(len(part)):
        for j in range(i):
            if part[i] != part[j]:
                total += matrix[i, j]
    return total


@allocating
def improve(matrix: Floats, part: Ints, caps: Ints, slack: float) -> None:
    """Swap two ranks, or move one to a part below its cap, whichever saves most, while anything saves.

    Of equals a swap comes first, then the lowest ranks.
    """
    exchanged = np.zeros((len(part), len(caps)))  # of each rank with each part
    size = np.zeros(len(caps), np.int64)
    for i in range(len(part)):
        size[part[i]] += 1
        for j in range(len(part)):
            exchanged[i, part[j]] += matrix[i, j]
    for _ in range(MOST_STEPS):
        by_swap, one, other = _best_swap(matrix, part, exchanged, slack)
        by_move, mover, target = _best_move(part, caps, size, exchanged, slack)
        if max(by_swap, by_move) <= slack:
            return
        if by_swap >= by_move - slack:
            first, second = part[one], part[other]
            _move(matrix, part, size, exchanged, one, second)
            _move(matrix, part, size, exchanged, other, first)
        else:
            _move(matrix, part, size, exchanged, mover, target)


@compiled
def _best_swap(matrix: Floats, part: Ints, exchanged: Floats, slack: float) -> tuple[float, int, int]:
    """Return the most that a swap saves, and the ranks; of equals the lowest."""
    most, one, other = -np.inf, 0, 0
    for i in range(len(part)):
        own = exchanged[i, part[i]]
        for j in range(i + 1, len(part)):
            if part[i] != part[j]:
                saved = (
                    exchanged[i, part[j]] - own + exchanged[j, part[i]] - exchanged[j, part[j]] - 2 * matrix[i, j]
                )
                if saved > most + slack:
                    most, one, other = saved, i, j
    return most, one, other


@compiled
def _best_move(part: Ints, caps: Ints, size: Ints, exchanged: Floats, slack: float) -> tuple[float, int, int]:
    """Return the most that a move saves, the rank and where it goes; of equals the lowest."""
    most, mover, target = -np.inf, 0, 0
    for i in range(len(part)):
        if size[part[i]] > 1:
            own = exchanged[i, part[i]]
            for to in range(len(caps)):
                if to != part[i] and size[to] < caps[to] and exchanged[i, to] - own > most + slack:
                    most, mover, target = exchanged[i, to] - own, i, to
    return most, mover, target


@compiled
def _move(matrix: Floats, part: Ints, size: Ints, exchanged: Floats, rank: int, target: int) -> None:
    """Move a rank to another part."""
    for other in range(len(part)):
        exchanged[other, part[rank]] -= matrix[other, rank]
        exchanged[other, target] += matrix[other, rank]
    size[part[rank]] -= 1
    size[target] += 1
    part[rank] = target


@allocating
def grow(matrix: Floats, caps: Ints, draws: Floats, slack: float, enough: float) -> Ints:
    """Grow parts rank by rank with what each exchanges most, and improve them, for each row of random draws.

    Return the best, or the first that crosses no more than `enough`.
    """
    best, part = np.empty(len(matrix), np.int64), np.empty(len(matrix), np.int64)
    least = np.inf
    for i in range(len(draws)):
        _grow_one(matrix, caps, draws[i], slack, part)
        improve(matrix, part, caps, slack)
        crosses = crossing(matrix, part)
        if crosses < least - slack:
            least = crosses
            best[:] = part
        if least <= enough:
            break
    return best


@allocating
def _grow_one(matrix: Floats, caps: Ints, draws: Floats, slack: float, part: Ints) -> None:
    """Grow parts of random sizes in random order: each from a random rank, then what exchanges most with it."""
    n, parts = len(part), len(caps)
    part[:] = -1
    pull = np.empty(n)  # what a rank exchanges with the part that grows
    later, left, draw = np.sum(caps), n, 0
    for number, target in enumerate(np.argsort(draws[:parts], kind="mergesort")):
        later -= caps[target]
        least, most = max(1, left - later), min(caps[target], left - (parts - number - 1))
        size = least + int(draws[parts + number] * (most - least + 1))
        pull[:] = 0.0
        for _ in range(size):
            rank = _strongest(part, pull, slack, int(draws[2 * parts + draw] * n))
            part[rank] = target
            pull += matrix[rank]
            draw += 1
        left -= size


@compiled
def _strongest(part: Ints, pull: Floats, slack: float, begin: int) -> int:
    """Return the rank in no part with the strongest pull; of equals the first from `begin` on, round and round."""
    n = len(part)
    best = -1
    for i in range(n):
        rank = begin + i if begin + i < n else begin + i - n
        if part[rank] < 0 and (best < 0 or pull[rank] > pull[best] + slack):
            best = rank
    return best


@allocating
def least_split(matrix: Floats, caps: Ints) -> Ints:
    """Find the parts that keep most inside: part by part, over all sets of ranks that those so far may hold."""
    n, parts = len(matrix), len(caps)
    every = (1 << n) - 1
    inside, size = np.zeros(1 << n), np.zeros(1 << n, np.int64)
    for ranks in range(1, 1 << n):
        first = 0
        while not ranks >> first & 1:
            first += 1
        rest = ranks & (ranks - 1)
        inside[ranks], size[ranks] = inside[rest], size[rest] + 1
        for rank in range(first + 1, n):
            if rest >> rank & 1:
                inside[ranks] += matrix[first, rank]
    kept = np.full((parts + 1, 1 << n), -np.inf)  # the most that the parts so far keep if together they hold a set
    kept[0, 0] = 0.0
    chosen = np.zeros((parts, 1 << n), np.int64)
    for number in range(parts):
        for ranks in range(1, 1 << n):
            own = ranks
            while own:
                if size[own] <= caps[number] and kept[number, ranks ^ own] + inside[own] > kept[number + 1, ranks]:
                    kept[number + 1, ranks] = kept[number, ranks ^ own] + inside[own]
                    chosen[number, ranks] = own
                own = (own - 1) & ranks
    part = np.empty(n, np.int64)
    left = every
    for number in range(parts - 1, -1, -1):
        own = chosen[number, left]
        left ^= own
        for rank in range(n):
            if own >> rank & 1:
                part[rank] = number
    return part
