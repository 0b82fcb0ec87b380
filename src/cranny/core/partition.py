"""Which ranks share a machine, so that as little as possible crosses machines: a graph partition.

Parts hold up to `caps` ranks each and none may stay empty. The sizes of the parts come from a dynamic
programme over a lower bound of what a part of c ranks must send outside; the ranks come from an order that
suits the collective, cut into pieces, and then from swaps and moves as long as these help. If the bound is not
reached, few ranks are split in every way, and more ranks from many beginnings.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cranny.model.arrays import Floats, Ints
from cranny.model.collective import Pattern
from cranny.model.errors import InputError

# Beyond this many ranks a swap step costs more than it saves; the cut order alone is then used.
REFINE_RANKS = 64
# Up to this many ranks all splits are tried if the bound is not reached.
EXACT_RANKS = 10
# Of more ranks, up to this many, so many splits are grown at random and improved.
GROWN_RANKS, GROWN = 32, 64
# Ranks x parts beyond which their sizes are not searched for: many parts leave hardly any choice.
MOST_CHOICES = 4096
# Numbers of a matrix of ranks that are in memory at once.
BLOCK = 1 << 20
# Differences below this share of all that is exchanged are rounding, which depends on the order of additions.
EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class Split:
    """The part of each rank, and the share of K that crosses parts."""

    part: tuple[int, ...]
    sizes: tuple[int, ...]  # ranks of each part
    cross_share: float


@lru_cache(maxsize=512)
def weights(pattern: Pattern) -> Floats:
    """Return how much each two ranks exchange in all phases together, (ranks, ranks)."""
    matrix = np.zeros((pattern.ranks, pattern.ranks))
    pairs, shares = pattern.edges
    matrix[pairs[:, 0], pairs[:, 1]] = shares
    matrix[pairs[:, 1], pairs[:, 0]] = shares
    matrix.setflags(write=False)
    return matrix


@lru_cache(maxsize=512)
def order(pattern: Pattern) -> tuple[int, ...]:
    """Return the ranks in an order that keeps those together which exchange most."""
    if pattern.collective == "halving-doubling":
        return _halving_doubling_order(pattern.ranks)
    if pattern.collective == "tree":  # depth first: subtrees stay together
        return tuple(sorted(range(pattern.ranks), key=lambda rank: f"{rank + 1:b}"))
    return tuple(range(pattern.ranks))


def _halving_doubling_order(n: int) -> tuple[int, ...]:
    """Bit-reversed order: the first halving step moves most, so ranks that exchange in it are neighbours.

    A rank that folds into another for n not a power of two comes right after it.
    """
    core = 1 << (n.bit_length() - 1)
    extra, bits = n - core, core.bit_length() - 1
    ranks = []
    for place in range(core):
        survivor = int(f"{place:0{bits}b}"[::-1], 2) if bits else 0
        ranks += [2 * survivor, 2 * survivor + 1] if survivor < extra else [survivor + extra]
    return tuple(ranks)


@lru_cache(maxsize=512)
def boundary(pattern: Pattern, most: int) -> tuple[float, ...]:
    """Return for each c up to `most` a lower bound of what c ranks send to the others; entry 0 is unused."""
    n = pattern.ranks
    power_of_two = n & (n - 1) == 0
    if pattern.collective == "halving-doubling" or (
        pattern.collective == "gloo-halving-doubling" and power_of_two
    ):
        return _halving_doubling_boundary(n, most)
    pairs, shares = pattern.edges
    if pattern.collective == "ring" and n > 2:
        return (0.0, *(2 * float(shares[0]) if c < n else 0.0 for c in range(1, most + 1)))
    # Any graph: c ranks keep at most their c-1 heaviest edges each, and lose the rest.
    row = np.concatenate([pairs[:, 0], pairs[:, 1]])
    weight = np.concatenate([shares, shares])
    by_row = np.lexsort((-weight, row))  # of each rank the heaviest first
    row, weight = row[by_row], weight[by_row]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = np.zeros((n, most))  # [rank, c-1]: by its c-1 heaviest edges
    near = place < most - 1
    kept[row[near], place[near] + 1] = weight[near]
    lost = _degrees(pattern)[:, None] - np.cumsum(kept, axis=1)
    cheapest = (np.sort(lost[:, c - 1])[:c].cumsum()[-1] for c in range(1, most + 1))  # the c that lose least
    return (0.0, *(max(0.0, float(each)) for each in cheapest))


def _degrees(pattern: Pattern) -> Floats:
    """Return what each rank exchanges in all, (ranks,): added over all other ranks, few rows at a time."""
    n = pattern.ranks
    pairs, shares = pattern.edges
    rows = max(1, BLOCK // n)
    degree = np.empty(n)
    for first in range(0, n, rows):
        block = np.zeros((min(rows, n - first), n))
        for a, b in ((0, 1), (1, 0)):
            here = (pairs[:, a] >= first) & (pairs[:, a] < first + rows)
            block[pairs[here, a] - first, pairs[here, b]] = shares[here]
        degree[first : first + rows] = block.sum(axis=1)
    return degree


def _halving_doubling_boundary(n: int, most: int) -> tuple[float, ...]:
    """Bound the boundary of c ranks of halving-doubling.

    The phases form a cube whose edges weigh 1, 1/2, 1/4, ... by direction. No c corners of it have a smaller
    boundary than the first c in bit-reversed order (Harper; tests check it by brute force). For n not a power
    of two, c ranks are some corners and some ranks that fold into corners; a folded rank whose corner is
    elsewhere sends 2 K.
    """
    core = 1 << (n.bit_length() - 1)
    degree = 2 * (1 - 1 / core)
    # The corner that comes k-th keeps an edge for each bit set in k: bit j weighs 2**-j.
    near = min(core, most)
    kept = np.cumsum([sum(0.5**j for j in range(core.bit_length()) if k >> j & 1) for k in range(near)])
    corners = np.arange(near + 1) * degree - 2 * np.concatenate([[0.0], kept])
    bound = [0.0]
    for c in range(1, most + 1):
        options = (
            corners[c - folded] + 2.0 * max(0, folded - (c - folded))
            for folded in range(max(0, c - core), min(c, n - core) + 1)
        )
        bound.append(float(max(0.0, min(options))))
    return tuple(bound)


def _least_sums(pattern: Pattern, caps: tuple[int, ...]) -> Iterator[tuple[int, Floats]]:
    """Yield for no part, one, two, ... the least sum of boundaries when these hold k ranks, and the first k.

    Only those k are there with which every part, these and the rest, gets one rank at least and its cap at most.
    """
    n, held, rest = pattern.ranks, 0, sum(caps)
    out = np.array(boundary(pattern, min(max(caps), n)))
    low, best = 0, np.zeros(1)
    yield low, best
    for number, cap in enumerate(caps, 1):
        held, rest = held + cap, rest - cap
        first, last = max(number, n - rest), min(held, n - (len(caps) - number))
        width, most = last - first + 1, min(cap, n)
        before = np.full(width + most, np.inf)  # the best of first - most, first - most + 1, ...
        begin = max(low, first - most)
        before[begin - first + most : low + len(best) - first + most] = best[begin - low : width + first - low]
        rows = sliding_window_view(before, width)[::-1]  # [c]: the best of k - c for each k
        low, best = first, np.full(width, np.inf)
        for c in range(1, most + 1, max(1, BLOCK // width)):
            some = slice(c, min(most + 1, c + max(1, BLOCK // width)))
            np.minimum(best, (rows[some] + out[some, None]).min(axis=0), out=best)
        yield low, best


def _check_caps(n: int, caps: tuple[int, ...]) -> None:
    if not len(caps) <= n <= sum(caps) or min(caps) < 1:
        raise InputError(f"{n} ranks cannot be split into parts of 1 to {', '.join(map(str, caps))} ranks")


def _bound(pattern: Pattern, caps: tuple[int, ...], sums: Floats) -> float:
    """Return the bound by the sum of all boundaries: every edge between two parts lies in two of them."""
    return max(float(sums[-1]) / 2, _least_cut(pattern, caps))


@lru_cache(maxsize=16384)
def crossing_bound(pattern: Pattern, caps: tuple[int, ...]) -> float:
    """Return a lower bound of what must cross parts of at most `caps` ranks."""
    _check_caps(pattern.ranks, caps)
    sums = np.zeros(1)
    for _, sums in _least_sums(pattern, caps):  # noqa: B007 - the last ones
        pass
    return _bound(pattern, caps, sums)


def lower_bound(pattern: Pattern, caps: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
    """Return the same bound, and the sizes of parts that have this sum of boundaries."""
    _check_caps(pattern.ranks, caps)
    out = np.array(boundary(pattern, min(max(caps), pattern.ranks)))
    if sum(caps) == pattern.ranks:  # there is no choice
        return _bound(pattern, caps, out[list(caps)].cumsum()), caps
    sums = list(_least_sums(pattern, caps))
    sizes: list[int] = []
    left = pattern.ranks
    for cap, (low, before) in zip(reversed(caps), reversed(sums[:-1]), strict=True):
        first, last = max(1, left - (low + len(before) - 1)), min(cap, left - low)
        choices = before[left - last - low : left - first - low + 1][::-1] + out[first : last + 1]
        sizes.append(first + int(choices.argmin()))
        left -= sizes[-1]
    return _bound(pattern, caps, sums[-1][1]), tuple(reversed(sizes))


def _least_cut(pattern: Pattern, caps: tuple[int, ...]) -> float:
    """Return a bound by the number of edges that must be cut."""
    n, (_, shares) = pattern.ranks, pattern.edges
    if pattern.collective == "parameter-server" and n > 1:  # exact: only the server's part saves anything
        return float(shares[0]) * (n - min(max(caps), n - len(caps) + 1))
    # Cutting an edge makes at most one more piece of a graph.
    cuts = len(caps) - _components(pattern)
    return float(shares[shares > 0].min()) * cuts if cuts > 0 else 0.0


@lru_cache(maxsize=512)
def _components(pattern: Pattern) -> int:
    """Count the connected components of the ranks."""
    leader = list(range(pattern.ranks))

    def find(rank: int) -> int:
        while leader[rank] != rank:
            leader[rank] = leader[leader[rank]]
            rank = leader[rank]
        return rank

    pairs, shares = pattern.edges
    for a, b in pairs[shares > 0].tolist():
        leader[find(a)] = find(b)
    return sum(leader[rank] == rank for rank in range(pattern.ranks))


@lru_cache(maxsize=16384)
def split(pattern: Pattern, caps: tuple[int, ...]) -> Split:
    """Divide the ranks among parts of at most `caps` ranks so that little crosses; caps are largest first."""
    if pattern.ranks * len(caps) > MOST_CHOICES:
        return _cut(pattern, _fill(pattern.ranks, caps), caps, 0.0)
    bound, sizes = lower_bound(pattern, caps)
    slack = _slack(weights(pattern))
    best = _cut(pattern, sizes, caps, bound + slack)
    for other in (_fill(pattern.ranks, caps), _level(pattern.ranks, caps)):
        if best.cross_share <= bound + slack:
            break
        if other != sizes:
            found = _cut(pattern, other, caps, bound + slack)
            best = found if found.cross_share < best.cross_share - slack else best
    if best.cross_share > bound + slack and pattern.ranks <= GROWN_RANKS:
        found = _split(pattern, _search(weights(pattern), np.array(caps), bound + slack), len(caps))
        best = found if found.cross_share < best.cross_share - slack else best
    return best


def _search(matrix: Floats, caps: Ints, enough: float) -> Ints:
    """Try all splits of few ranks; grow some of more, and improve them.

    Swaps and moves end at splits that no single one improves, and which these are depends on the first.
    """
    from cranny.core.partition_kernel import grow, least_split

    if len(matrix) <= EXACT_RANKS:
        return least_split(matrix, caps)
    return grow(matrix, caps, _draws(), _slack(matrix), enough)


@cache
def _draws() -> Floats:
    """Return random numbers for each split that is grown: for each rank, and two for each part."""
    return np.random.default_rng(0).random((GROWN, 3 * GROWN_RANKS))


def _split(pattern: Pattern, part: Ints, parts: int) -> Split:
    """Return the split with these parts."""
    return Split(
        tuple(part.tolist()), tuple(np.bincount(part, minlength=parts).tolist()), _crossing(pattern, part)
    )


def _slack(matrix: Floats) -> float:
    """Return how much two sums of what ranks exchange may differ and still be equal."""
    return EPSILON * float(matrix.sum())


def _fill(n: int, caps: tuple[int, ...]) -> tuple[int, ...]:
    """Fill the first parts, leaving at least one rank for each of the rest."""
    sizes = []
    for later, cap in zip(range(len(caps) - 1, -1, -1), caps, strict=True):
        sizes.append(min(cap, n - later))
        n -= sizes[-1]
    return tuple(sizes)


def _level(n: int, caps: tuple[int, ...]) -> tuple[int, ...]:
    """Make the parts as equal as their caps allow."""
    sizes = [0] * len(caps)
    rest = sorted(range(len(caps)), key=lambda part: caps[part])
    for done, part in enumerate(rest):
        sizes[part] = min(caps[part], -(-n // (len(caps) - done)))
        n -= sizes[part]
    return tuple(sizes)


def _cut(pattern: Pattern, sizes: tuple[int, ...], caps: tuple[int, ...], enough: float) -> Split:
    """Cut the collective's order into pieces of these sizes, largest first; improve them if too much crosses."""
    part = np.empty(pattern.ranks, dtype=np.int64)
    start = 0
    ranks = np.array(order(pattern))
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        part[ranks[start : start + sizes[index]]] = index
        start += sizes[index]
    if pattern.ranks <= REFINE_RANKS and _crossing(pattern, part) > enough:
        from cranny.core.partition_kernel import improve

        improve(weights(pattern), part, np.array(caps), _slack(weights(pattern)))
    return _split(pattern, part, len(caps))


def _crossing(pattern: Pattern, part: Ints) -> float:
    """Return the share of K that crosses parts."""
    pairs, shares = pattern.edges
    return float(shares[part[pairs[:, 0]] != part[pairs[:, 1]]].sum())
