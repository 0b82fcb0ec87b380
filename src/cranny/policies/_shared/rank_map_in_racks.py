"""A map of a job's ranks to the machines that it has, for every collective and aware of racks.

Ranks are divided among the switches below the root first, then among those below each of them, down to machines,
so that ranks which exchange most are near each other. That map, the one that does not know of racks (Titan's), and
the ranks in order, are compared by the seconds that the job would communicate alone: those of the slowest link of
each phase. The best is improved by swaps of two ranks. Of maps that take equally long, the one with the least
traffic between machines is taken, and then the one that keeps links busy for the least time.

A map depends on the shape of what the job has and not on which machines these are, so it is cached by shape.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from cranny.core.flows import isolated_rate, parameter_server
from cranny.core.partition import EPSILON, REFINE_RANKS, order, split, weights
from cranny.core.traffic import BITS_PER_BYTE, GIGA, TreeShape, exchange_graph, tree_above
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.collective import Pattern, pattern
from cranny.model.job import Job

if TYPE_CHECKING:
    from cranny.policies._shared.rank_map_kernel import MapProblem  # which takes a second to import

CACHED = 8192  # maps; one of 64 ranks takes about 1 kB
# What a search may take: about 1 ms, which is 30 rounds of 8 ranks, 10 of 16, and some swaps of 1,024.
STEPS = 200_000
ROUNDS = 30

Local = tuple[int, ...]  # the machine of each rank, counted in the order in which machines are given


def mapped_in_racks(job: Job, cluster: Cluster, counts: Mapping[int, int]) -> tuple[int, ...]:
    """Return the machine of each rank, given how many ranks each machine takes.

    The job takes no longer, alone on its links, than with the ranks in the order of `counts`.
    """
    machines = tuple(counts)
    if len(machines) == 1:
        return machines * job.gpus
    if job.collective == "ina":  # only where the parameter server is matters: by default beside the first rank
        found = _server_first(cluster, machines)
        return tuple([machine for machine in found for _ in range(counts[machine])])
    ranks, shape = tuple(counts.values()), tree_above(cluster, machines)[0]
    if job.collective == "hierarchical":
        local = _by_leaders(ranks, shape)
    else:
        local = _best_map(exchange_graph(job), ranks, shape)
    return tuple([machines[at] for at in local])


@lru_cache(maxsize=CACHED)
def _server_first(cluster: Cluster, machines: tuple[int, ...]) -> tuple[int, ...]:
    """Put the machine first that the parameter server can be beside at the highest rate."""
    kinds: dict[tuple[tuple[int, ...], float], int] = {}  # machines that are alike: the first of them
    for machine in machines:
        link, *above = cluster.paths[machine]
        kinds.setdefault((tuple(above), cluster.uplink_gbps[link]), machine)

    def rate_gbps(server: int) -> float:
        return isolated_rate(cluster, parameter_server(cluster, machines, server))[0]

    best = max(kinds.values(), key=rate_gbps)
    return (best, *(machine for machine in machines if machine != best))


@lru_cache(maxsize=CACHED)
def _by_leaders(ranks: tuple[int, ...], shape: TreeShape) -> Local:
    """Return the map of `hierarchical`, in which one rank of each machine exchanges with those of the others."""
    leaders = pattern("halving-doubling", len(ranks))
    found = _best_map(leaders, (1,) * len(ranks), shape)
    largest_first = _largest_first(ranks)  # as the map that knows no racks has them
    chosen = _cheapest(problem_of(leaders, shape), [found, tuple(largest_first)])
    return tuple([at for at in chosen for _ in range(ranks[at])])


def _largest_first(ranks: Sequence[int]) -> list[int]:
    return sorted(range(len(ranks)), key=lambda at: -ranks[at])


def _rack_by_rack(ranks: Sequence[int], shape: TreeShape) -> Local:
    """Return the map of ranks in order, with the machines of each switch one after the other."""
    machines = sorted(range(len(ranks)), key=lambda at: shape.paths[at][::-1])
    return tuple([at for at in machines for _ in range(ranks[at])])


@lru_cache(maxsize=CACHED)
def _best_map(what: Pattern, ranks: tuple[int, ...], shape: TreeShape) -> Local:
    """Return the best map that is found of a pattern, with so many ranks on each machine."""
    if what.collective == "ring":  # a link between ranks carries at least one pair each way, and here no more
        return _rack_by_rack(ranks, shape)
    from cranny.policies._shared.rank_map_kernel import empty_tally, search

    problem = problem_of(what, shape)
    found = _cheapest(problem, candidates(what, ranks, shape))
    trials, least = np.array([found, found]), np.zeros((2, 2))
    search(problem, empty_tally(problem), trials, _draws(), least, ROUNDS, STEPS)
    return _cheapest(problem, [found, tuple(trials[0].tolist())])


@cache
def _draws() -> Floats:
    """Return the random numbers of all searches."""
    return np.random.default_rng(0).random(1024)


def candidates(what: Pattern, ranks: Sequence[int], shape: TreeShape) -> Iterator[Local]:
    """Yield maps: ranks in order in two ways, divided among machines, and divided among racks first."""
    yield tuple([at for at in range(len(ranks)) for _ in range(ranks[at])])
    yield _rack_by_rack(ranks, shape)
    yield _one_level(what, ranks)
    from_root = [path[::-1] for path in shape.paths]
    for refine in (False, True) if what.ranks <= REFINE_RANKS else (False,):
        local = np.empty(what.ranks, dtype=np.int64)
        _divide(what, np.array(order(what)), range(len(ranks)), ranks, from_root, 0, local, refine=refine)
        yield tuple(local.tolist())


def _one_level(what: Pattern, ranks: Sequence[int]) -> Local:
    """Return the map of `rank_map`, which knows machines and no racks."""
    machines = _largest_first(ranks)
    sizes = tuple([ranks[at] for at in machines])
    if what.ranks <= REFINE_RANKS:
        return tuple([machines[part] for part in split(what, sizes).part])
    local = np.empty(what.ranks, dtype=np.int64)  # as `split` does, which would also count what crosses
    local[np.array(order(what))] = np.repeat(machines, sizes)
    return tuple(local.tolist())


def _divide(
    what: Pattern,
    members: Ints,
    machines: Sequence[int],
    ranks: Sequence[int],
    from_root: Sequence[tuple[int, ...]],
    level: int,
    local: Ints,
    *,
    refine: bool,
) -> None:
    """Divide some ranks, those near each other which exchange most, among the subtrees of a level; and again."""
    if len(machines) == 1:
        local[members] = machines[0]
        return

    def link(at: int) -> int:
        return from_root[at][level]

    subtrees = [list(below) for _, below in groupby(sorted(machines, key=link), key=link)]
    sizes = [sum(ranks[at] for at in below) for below in subtrees]
    by_size = sorted(range(len(subtrees)), key=lambda index: -sizes[index])
    part = np.repeat(by_size, [sizes[index] for index in by_size])
    if refine and len(subtrees) > 1:
        from cranny.core.partition_kernel import improve

        matrix = weights(what)[np.ix_(members, members)]
        improve(matrix, part, np.array(sizes), EPSILON * float(matrix.sum()))
    if len(subtrees) == len(machines):  # each is one machine
        local[members] = np.array([below[0] for below in subtrees])[part]
        return
    for index, below in enumerate(subtrees):
        _divide(what, members[part == index], below, ranks, from_root, level + 1, local, refine=refine)


def problem_of(what: Pattern, shape: TreeShape) -> "MapProblem":
    """Return the pairs of a pattern and the links of a shape, as arrays."""
    from cranny.policies._shared.rank_map_kernel import MapProblem

    pairs = what.arrays
    depth = max(map(len, shape.paths))
    padded = [(*reversed(path), *[-1] * (depth - len(path))) for path in shape.paths]
    ends = np.concatenate([pairs.a, pairs.b])
    by_rank = np.argsort(ends, kind="stable")
    return MapProblem(
        ends[: len(pairs.a)],  # copies, all of one layout: Numba compiles for each anew
        ends[len(pairs.a) :],
        *pairs[2:],
        pair_of=by_rank % max(1, len(pairs.a)),
        first_of=np.searchsorted(ends[by_rank], np.arange(what.ranks + 1)),
        link_at=np.array(padded, dtype=np.int64),
        s_per_byte=BITS_PER_BYTE / GIGA / np.array(shape.gbps),
    )


def _cheapest(problem: "MapProblem", maps: Iterable[Local]) -> Local:
    """Return the best of some maps; of equals, the first."""
    from cranny.policies._shared.rank_map_kernel import cheapest, empty_tally

    listed = list(maps)
    return listed[cheapest(problem, empty_tally(problem), np.array(listed))]
