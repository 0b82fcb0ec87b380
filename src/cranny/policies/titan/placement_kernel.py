"""What `Titan.place` does, compiled; where only single racks, `merge` or `search` are left, it is asked itself.

Machines are alike, so an optimum in (O1, O2) is a number of machines for each number of free GPUs; idle ones have
all free. How ranks are divided among these is learnt from `partition.split`, once for each such choice.
"""

from collections.abc import Sequence

import numpy as np

from cranny.core.fast.bit_sets import bit_of, join, leave, lowest_between, lowest_with
from cranny.core.fast.communication_cost import begin_tally, communication_cost, tally
from cranny.core.fast.memo import find
from cranny.core.fast.placement_arrays import (
    FALLBACK,
    LINKS,
    NO_ENTRY,
    PARTS,
    PEAK_BYTES,
    WAIT,
    PlacementArrays,
    PlacementRequest,
)
from cranny.core.jit import inside
from cranny.core.partition import split
from cranny.core.traffic import BITS_PER_BYTE, GIGA, exchange_graph, renumber
from cranny.model.arrays import Ints
from cranny.model.job import Job
from cranny.policies.titan.bandwidth import MANY_MACHINES, SEARCHED_MACHINES, SLACK
from cranny.policies.titan.rank_bound import exchange_levels

BLOCKED = 0  # an answer besides those of all drafters: some link is too busy


def parts_of(job: Job, taken: Sequence[int]) -> list[int]:
    """Return how ranks are divided among `taken[f]` machines with f GPUs free each, as `_place_parts` reads it.

    The number of parts; their ranks in the order in which they are placed, below 0 for idle machines; their ranks
    in the order of their first; the part of each rank, in that order.
    """
    size = len(taken) - 1
    caps = [free for free in range(size, 0, -1) for _ in range(taken[free])]
    found = split(exchange_graph(job), tuple(caps))
    count, local = found.sizes, renumber(found.part)
    largest_first = sorted(range(len(caps)), key=count.__getitem__, reverse=True)
    placed = [-count[part] if part < taken[size] else count[part] for part in largest_first]
    return [len(caps), *placed, *(count[part] for part in dict.fromkeys(found.part)), *local]


def levels_of(job: Job, *, attainable: bool) -> list[int]:
    """Return what `_count_limits` reads of a job's `ExchangeLevels`, and whether an empty cluster would do.

    That; the number of levels; a phase of each; the ranks that a machine takes a multiple of if so many pass.
    """
    pattern = exchange_graph(job)
    levels = exchange_levels(((pattern, job.profile.grad_bytes),))
    sent = (pattern.arrays.share * job.profile.grad_bytes).tolist()
    return [attainable, len(levels.level_bytes), *map(sent.index, levels.level_bytes), *levels.multiple]


@inside
def draft(arrays: PlacementArrays, request: PlacementRequest) -> int:
    """Draft the placement that is best in (O1, O2, traffic) among those within the bandwidth."""
    least = _least_idle(arrays, request.gpus)
    answer = _try(arrays, request, least)
    if answer != BLOCKED:
        return answer
    is_searched = _open_machines(arrays) <= SEARCHED_MACHINES
    if is_searched:
        parts = arrays.draft.at[PARTS]  # of the draft that is blocked
        start = _find_levels(arrays, request)
        if start < 0:
            return NO_ENTRY
        _count_limits(arrays, request, start)
        if not _bound_holds(arrays, request):
            return (
                WAIT if arrays.memo.entry[start] else parts
            )  # as `Titan.place`: what is not attainable is waived
    machines = _count_fewest(arrays, request, least)
    found, opened = _open_idle(arrays, request, least)
    if found == NO_ENTRY:
        return NO_ENTRY
    quiet, fewer = _among_quiet(arrays, request)
    if quiet == NO_ENTRY:
        return NO_ENTRY
    is_quiet = quiet != BLOCKED and (found == BLOCKED or (fewer, quiet) < (opened, found))
    idle, parts = (fewer, quiet) if is_quiet else (opened, found)
    if parts == BLOCKED:
        return FALLBACK
    if is_searched and (idle, parts) != (least, machines) and not _is_least(arrays, request, idle, parts):
        return FALLBACK  # the paper's algorithms and the search may know better
    return parts if is_quiet else _try(arrays, request, opened)


@inside
def _among_quiet(arrays: PlacementArrays, request: PlacementRequest) -> tuple[int, int]:
    """Draft a placement on machines whose uplinks are quiet; return the answer, and the idle machines it opens."""
    _hide_busy(arrays, request, True)  # noqa: FBT003 - a kernel
    answer, idle = BLOCKED, 0
    if _free_gpus(arrays) >= request.gpus:
        idle = _least_idle(arrays, request.gpus)
        answer = _try(arrays, request, idle)
        if answer == BLOCKED:
            answer, idle = _open_idle(arrays, request, idle)
    _hide_busy(arrays, request, False)  # noqa: FBT003 - a kernel
    return answer, idle


@inside
def _open_idle(arrays: PlacementArrays, request: PlacementRequest, idle: int) -> tuple[int, int]:
    """Open more idle machines, as `Titan._open_idle` does; return the answer, and how many were opened."""
    size = len(arrays.machines.members) - 1
    most = min(arrays.machines.members[size], (request.gpus + size - 1) // size)
    answer, more = BLOCKED, 1
    while answer == BLOCKED and idle < most:
        if _count_fewest(arrays, request, idle) > MANY_MACHINES:
            more *= 2
        idle = min(idle + more, most)
        answer = _try(arrays, request, idle)
    return answer, idle


@inside
def _try(arrays: PlacementArrays, request: PlacementRequest, idle: int) -> int:
    """Draft a placement that opens so many idle machines; say if it is blocked."""
    if _count_fewest(arrays, request, idle) == 1:
        drafted = arrays.draft  # the whole job on the lowest idle machine, where it sends nothing
        drafted.machine[0] = lowest_with(arrays.machines, len(arrays.machines.members) - 1)
        drafted.gpus[0] = request.gpus
        drafted.at[PARTS], drafted.at[LINKS] = 1, 0
        drafted.cost[:] = 0.0
        return 1
    start = find(arrays.memo, arrays.draft.key)
    if start < 0:
        return NO_ENTRY
    _place_parts(arrays, request.gpus, start)
    communication_cost(arrays, request)
    if _is_quiet(arrays) or not _is_blocked(arrays, request):
        return int(arrays.draft.at[PARTS])
    return BLOCKED


@inside
def _find_levels(arrays: PlacementArrays, request: PlacementRequest) -> int:
    """Return where the entry of `levels_of` begins, or -1; its key is that of no machines."""
    key = arrays.draft.key
    key[0] = request.pattern
    key[1:] = 0
    key[1] = -1 - request.variant
    return find(arrays.memo, key)


@inside
def _count_limits(arrays: PlacementArrays, request: PlacementRequest, start: int) -> None:
    """Count machines by the ranks that they can take at most, as `rank_limits` does."""
    machines, links, limits, entry = arrays.machines, arrays.links, arrays.draft.limits, arrays.memo.entry
    size = len(machines.members) - 1
    limits[:] = 0
    widest = fastest = -1.0
    for machine in range(len(machines.free)):
        if machines.inside[machine] and machines.free[machine]:
            gbps = max(0.0, links.gbps[machine] - links.use_gbps[machine])
            if gbps > widest:
                fastest, widest = widest, gbps
            elif gbps > fastest:
                fastest = gbps
    if fastest < 0.0:
        fastest = widest
    first, levels = arrays.patterns.first_phase[request.pattern], entry[start + 1]
    for machine in range(len(machines.free)):
        free = machines.free[machine]
        if machines.inside[machine] and free:
            gbps = max(0.0, links.gbps[machine] - links.use_gbps[machine])
            limit_bytes = _limit_bytes(arrays, min(gbps, fastest))
            passing = 0
            while (
                passing < levels
                and arrays.patterns.share[first + entry[start + 2 + passing]] * request.k_bytes <= limit_bytes
            ):
                passing += 1
            multiple = entry[start + 2 + levels + passing]
            limits[int(free == size), min(free, request.gpus) // multiple * multiple] += 1


@inside
def _bound_holds(arrays: PlacementArrays, request: PlacementRequest) -> bool:
    """Say whether machines together could take all ranks, as `RankBound.holds` does."""
    in_use, idle = arrays.draft.limits[0], arrays.draft.limits[1]
    return _largest(in_use, len(arrays.machines.free)) + _largest(idle, len(arrays.machines.free)) >= request.gpus


@inside
def _is_least(arrays: PlacementArrays, request: PlacementRequest, opened: int, parts: int) -> bool:
    """Say whether no placement can have less (O1, O2), as `RankBound.is_least` does."""
    in_use, idle = arrays.draft.limits[0], arrays.draft.limits[1]
    every = len(arrays.machines.free)
    if opened > 0 and _largest(idle, opened - 1) + _largest(in_use, every) >= request.gpus:
        return False
    others = parts - 1 - opened
    return others < 0 or _largest(idle, opened) + _largest(in_use, others) < request.gpus


@inside
def _largest(count: Ints, most: int) -> int:
    """Add up the largest of so many numbers each, `most` of them."""
    total = 0
    for number in range(len(count) - 1, 0, -1):
        taken = min(count[number], most)
        total += number * taken
        most -= taken
    return total


@inside
def _free_gpus(arrays: PlacementArrays) -> int:
    """Count the free GPUs."""
    members = arrays.machines.members
    total = 0
    for free in range(1, len(members)):
        total += free * members[free]
    return total


@inside
def _open_machines(arrays: PlacementArrays) -> int:
    """Count the machines with free GPUs."""
    members = arrays.machines.members
    total = 0
    for free in range(1, len(members)):
        total += members[free]
    return total


@inside
def _least_idle(arrays: PlacementArrays, gpus: int) -> int:
    """Return O1 of `packing.fewest`: idle machines are opened only for what the others cannot hold."""
    members = arrays.machines.members
    size = len(members) - 1
    missing = gpus - (_free_gpus(arrays) - size * members[size])
    return int(max(0, (missing + size - 1) // size))


@inside
def _count_fewest(arrays: PlacementArrays, request: PlacementRequest, idle: int) -> int:
    """Count the machines of `packing.fewest_with` by their free GPUs; return how many they are.

    The counts are the key of what is known about the job's pattern, whose number stands before them.
    """
    members, key = arrays.machines.members, arrays.draft.key
    size = len(members) - 1
    key[0] = request.pattern
    key[size] = idle
    count, left = idle, request.gpus - size * idle
    for free in range(size - 1, 0, -1):
        key[free] = min(members[free], (left + free - 1) // free) if left > 0 else 0
        left -= free * key[free]
        count += key[free]
    key[size + 1 :] = 0  # of larger machines, which this job cannot use
    return int(count)


@inside
def _place_parts(arrays: PlacementArrays, gpus: int, start: int) -> None:
    """Place each part on a machine, as `_map` does: the tightest, close to the first."""
    machines, drafted, entry = arrays.machines, arrays.draft, arrays.memo.entry
    size = len(machines.members) - 1
    parts = entry[start]
    near = -1
    for part in range(start + 1, start + 1 + parts):
        ranks = abs(entry[part])
        free = size if entry[part] < 0 else ranks
        while not machines.members[free]:  # the tightest; there is one
            free += 1
        machine = _close_by(arrays, free, near)
        leave(machines, free, machine)
        drafted.taken[ranks, machine // 64] ^= bit_of(machine)
        if near < 0 and arrays.links.level[machine] > 1:
            near = machine
    for part in range(parts):  # in order of their first rank they take the machines from the lowest
        ranks = entry[start + 1 + parts + part]
        machine = lowest_between(drafted.taken[ranks], 0, len(machines.free))
        drafted.taken[ranks, machine // 64] ^= bit_of(machine)
        join(machines, machines.free[machine], machine)
        drafted.machine[part] = machine
        drafted.gpus[part] = ranks
    drafted.at[PARTS] = parts
    for rank in range(gpus):
        drafted.part[rank] = entry[start + 1 + 2 * parts + rank]


@inside
def _close_by(arrays: PlacementArrays, free: int, near: int) -> int:
    """Return a machine with so many GPUs free, below the lowest switch above `near` that has one."""
    links = arrays.links
    if near >= 0:
        switch = links.parent[near]
        while links.parent[switch] != switch:
            machine = lowest_between(arrays.machines.sets[free], links.first[switch], links.past[switch])
            if machine >= 0:
                return machine
            switch = links.parent[switch]
    return lowest_with(arrays.machines, free)


@inside
def _is_quiet(arrays: PlacementArrays) -> bool:
    """Say whether the narrowest link lets the largest exchange pass: most drafts are far from any limit."""
    drafted, links = arrays.draft, arrays.links
    least_gbps = links.gbps[drafted.links[0]]
    for i in range(drafted.at[LINKS]):
        link = drafted.links[i]
        least_gbps = min(least_gbps, links.gbps[link] - links.use_gbps[link])
    return bool(drafted.cost[PEAK_BYTES] <= _limit_bytes(arrays, least_gbps))


@inside
def _is_blocked(arrays: PlacementArrays, request: PlacementRequest) -> bool:
    """Say whether two machines exchange more in some phase than passes between them in time."""
    drafted, patterns = arrays.draft, arrays.patterns
    for phase in range(patterns.first_phase[request.pattern], patterns.past_phase[request.pattern]):
        serial = begin_tally(drafted)
        for pair in range(patterns.first_pair[phase], patterns.first_pair[phase + 1]):
            a, b = drafted.part[patterns.a[pair]], drafted.part[patterns.b[pair]]
            if a != b:
                moved_bytes = tally(arrays, serial, phase, a, b) * patterns.share[phase] * request.k_bytes
                if moved_bytes > _limit_bytes(
                    arrays, _gbps_between(arrays, drafted.machine[a], drafted.machine[b])
                ):
                    return True
    return False


@inside
def _limit_bytes(arrays: PlacementArrays, gbps: float) -> float:
    """Return what passes at this rate within the budget."""
    phase_budget_s = arrays.setting
    return max(0.0, gbps) * GIGA / BITS_PER_BYTE * phase_budget_s * SLACK


@inside
def _gbps_between(arrays: PlacementArrays, a: int, b: int) -> float:
    """Return what running jobs leave on the narrowest link between two machines."""
    links = arrays.links
    least = np.inf
    while a != b:
        if links.level[a] < links.level[b]:
            a, b = b, a
        least = min(least, links.gbps[a] - links.use_gbps[a])
        a = links.parent[a]
    return float(least)


@inside
def _hide_busy(arrays: PlacementArrays, request: PlacementRequest, hide: bool) -> None:  # noqa: FBT001 - a kernel
    """Take out the machines whose uplinks have less left than `Bandwidth.need_gbps`, or put them back."""
    links, patterns, free = arrays.links, arrays.patterns, arrays.machines.free
    phase = patterns.first_phase[request.pattern]
    smallest = patterns.share[phase] * request.k_bytes
    for later in range(phase + 1, patterns.past_phase[request.pattern]):
        smallest = min(smallest, patterns.share[later] * request.k_bytes)
    phase_budget_s = arrays.setting
    need_gbps = smallest * BITS_PER_BYTE / GIGA / phase_budget_s
    for machine in range(len(free)):
        if arrays.machines.inside[machine] and links.gbps[machine] - links.use_gbps[machine] < need_gbps:
            if hide:
                leave(arrays.machines, free[machine], machine)
            else:
                join(arrays.machines, free[machine], machine)
