"""Bounded exact search, for when the bandwidth constraint forbids the unconstrained optimum.

Pairs (O1, O2) are tried from the best on. For each, sets of machines are enumerated by *kind*: machines with the
same free GPUs behind equally free links are interchangeable. For each set, ranks are given machines one by one,
and a branch ends as soon as some phase overloads a pair of machines. The first level with a solution is the
optimum in (O1, O2); what is left of the node budget goes into less traffic.

Three rules leave out sets that need not be looked at:
- A set that the roomiest machines left cannot complete is not begun.
- A machine takes no more ranks than `rank_bound` says.
- Beside a machine below the same switch, idle if it is idle, with no fewer GPUs free behind a link that is no
  less free, a machine is only used if that one is: else they could change places.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cranny.core.machine_set import FreeMachines
from cranny.core.partition import order
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import exchange_graph
from cranny.model.arrays import Floats, Ints
from cranny.model.collective import Pattern
from cranny.model.job import Job
from cranny.policies.titan.bandwidth import Bandwidth, Exchange, Patterns, exchanges, patterns
from cranny.policies.titan.rank_bound import Objectives, exchange_levels, rank_limits

if TYPE_CHECKING:
    from cranny.policies.titan.search_kernel import OfferedMachines, RankArrays, SearchArrays

ANY = (1 << 40, 0)  # more than any


class FeasiblePlacement(NamedTuple):
    """A placement within the bandwidth, with its O1 and O2."""

    objectives: Objectives
    machines: tuple[int, ...]


class SearchResult(NamedTuple):
    """What a search found, and whether there is nothing with less (O1, O2)."""

    found: FeasiblePlacement | None
    proven: bool


def search(
    job: Job, view: Snapshot, available: FreeMachines, bandwidth: Bandwidth, below: Objectives | None, nodes: int
) -> SearchResult:
    """Find the placement with the least (O1, O2) within the bandwidth, as far as the node budget reaches.

    Only placements with less than `below` are searched.
    """
    from cranny.policies.titan import search_kernel

    ranks = _rank_arrays(patterns(job), exchange_graph(job))
    names, machines = _offered(job, view, available, bandwidth)
    if not names:
        return SearchResult(None, proven=True)
    arrays = _buffers(ranks, machines, nodes)
    objectives = search_kernel.run(machines, ranks, arrays, below or ANY)
    if objectives[0] < 0:
        return SearchResult(None, proven=bool(arrays.nodes[0] > 0))
    found = FeasiblePlacement(objectives, tuple([names[machine] for machine in arrays.best.tolist()]))
    return SearchResult(found, proven=True)  # all that is less was searched before


@lru_cache(maxsize=256)
def _rank_arrays(what: Patterns, graph: Pattern) -> "RankArrays":
    """List what the ranks exchange with those before them, phase by phase."""
    from cranny.policies.titan.search_kernel import RankArrays

    ranks = np.array(order(graph), dtype=np.int64)
    place = np.argsort(ranks)
    columns: list[list[Ints | Floats]] = []
    phases = 0
    for pattern, k_bytes in what:
        pairs = pattern.arrays
        sent = pairs.share[pairs.phase] * k_bytes
        back = np.where(pairs.exchange[pairs.phase], sent, 0.0)
        total = sent * pairs.times[pairs.phase]
        columns.append([place[pairs.a], place[pairs.b], pairs.phase + phases, sent, back, total])
        phases += len(pairs.share)
    a, b, phase, sent, back, total = (np.concatenate(column) for column in zip(*columns, strict=True))
    late, early = np.maximum(a, b), np.minimum(a, b)
    by_place = np.argsort(late, kind="stable")
    levels = exchange_levels(what)
    return RankArrays(
        ranks,
        np.searchsorted(late[by_place], np.arange(len(ranks) + 1)),
        early[by_place],
        phase[by_place],
        np.where(a > b, sent, back)[by_place],
        np.where(a > b, back, sent)[by_place],
        total[by_place],
        _twins(what, ranks),
        np.array(levels.level_bytes),
        np.array(levels.multiple),
    )


def _twins(what: Patterns, ranks: Ints) -> Ints:
    """Return for each place an earlier one whose rank exchanges the same with all others; -1 if there is none."""
    seen: dict[tuple[Exchange, ...], int] = {}
    twin = np.full(len(ranks), -1)
    for at, rank in enumerate(ranks.tolist()):
        key = tuple(sorted(exchanges(what)[rank]))
        twin[at] = seen.get(key, -1)
        seen[key] = at
    return twin


def _offered(
    job: Job, view: Snapshot, available: FreeMachines, bandwidth: Bandwidth
) -> tuple[list[int], "OfferedMachines"]:
    """Group interchangeable machines: with the same room, switch, and as free an uplink."""
    from cranny.policies.titan.search_kernel import OfferedMachines

    groups: dict[tuple[int, float, bool, int], list[int]] = {}
    for idle, machine, gbps, room in rank_limits(job, view, available, bandwidth):
        group = groups.setdefault((-room, -gbps, idle, view.cluster.parent[machine]), [])
        if room and len(group) < job.gpus:
            group.append(machine)
    # Machines with much room and bandwidth first: they are the likeliest to suffice.
    ranked = sorted(
        ((key, group) for key, group in groups.items() if group), key=lambda item: (*item[0][:2], item[1])
    )
    names = [machine for _, group in ranked for machine in group]
    paths = [view.cluster.paths[machine] for machine in names]
    links = np.full((len(names), max(map(len, paths), default=0)), -1)
    limit_bytes = np.zeros(links.shape)
    for at, path in enumerate(paths):
        links[at, : len(path)] = path
        limit_bytes[at, : len(path)] = [bandwidth.limit_bytes(view.link_free_gbps(link)) for link in path]
    rooms, gbps_of, idles, switches = zip(*(key for key, _ in ranked), strict=True) if ranked else ((),) * 4
    return names, OfferedMachines(
        np.array([view.free_on(machine) for machine in names], dtype=np.int64),
        links,
        limit_bytes,
        np.cumsum([0, *(len(group) for _, group in ranked)]),
        -np.array(rooms, dtype=np.int64),
        np.array(idles, dtype=np.int64),
        np.array(switches, dtype=np.int64),
        -np.array(gbps_of, dtype=float),
    )


def _buffers(ranks: "RankArrays", machines: "OfferedMachines", nodes: int) -> "SearchArrays":
    """Make what the search keeps."""
    from cranny.policies.titan.search_kernel import SearchArrays

    gpus, count, kinds = len(ranks.ranks), len(machines.free), len(machines.room)
    most = min(gpus, count)  # machines of a set
    phases, exchanges = int(ranks.phase.max(initial=0)) + 1, len(ranks.phase)
    return SearchArrays(
        nodes=np.array([nodes]),
        least=np.array([np.inf]),
        best=np.zeros(gpus, dtype=np.int64),
        between_bytes=np.zeros((count, count)),
        roomiest=np.zeros((2, kinds + 1, count + 1), dtype=np.int64),
        better=np.zeros((kinds, kinds), dtype=bool),
        taken=np.zeros(kinds + 1, dtype=np.int64),
        missing=np.zeros((kinds + 1, 3), dtype=np.int64),
        members=np.zeros(most, dtype=np.int64),
        alike=np.zeros(most, dtype=np.int64),
        option=np.zeros((gpus, most), dtype=np.int64),
        added=np.zeros((gpus, most)),
        options=np.zeros(gpus, dtype=np.int64),
        tried=np.zeros(gpus, dtype=np.int64),
        crossing=np.zeros(gpus + 1),
        member_of=np.zeros(gpus, dtype=np.int64),
        ranks_on=np.zeros(most, dtype=np.int64),
        inside=np.zeros(most),
        listed=np.zeros(most, dtype=bool),
        load=np.zeros((phases, most, most)),
        undo_first=np.zeros(gpus + 1, dtype=np.int64),
        undo_at=np.zeros((2 * exchanges, 3), dtype=np.int64),
        undo_bytes=np.zeros(2 * exchanges),
    )
