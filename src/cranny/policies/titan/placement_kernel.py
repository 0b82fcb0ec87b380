"""What `Titan.place` does, compiled; where only single racks, `merge` or `search` are left, it is asked itself.

Machines are alike, so an optimum in (O1, O2) is a number of machines for each number of free GPUs; idle ones have
all free. How ranks are divided among these is learnt from `partition.split`, once for each such choice.
"""

from collections.abc import Sequence

from cranny.core.fast.bit_sets import bit_of, join, leave, lowest_between, lowest_with
from cranny.core.fast.communication_cost import weigh
from cranny.core.fast.memo import find
from cranny.core.fast.placement_arrays import ASK, LEARN, LINKS, PARTS, Ask, Room
from cranny.core.jit import inside
from cranny.core.partition import split
from cranny.core.traffic import exchange_graph, renumber
from cranny.model.job import Job
from cranny.policies.titan.bandwidth import MANY_MACHINES
from cranny.policies.titan.bandwidth_kernel import hide_busy, is_blocked, is_quiet, show_busy
from cranny.policies.titan.search import MAX_MACHINES

BLOCKED = 0  # an answer besides those of all drafters: some link is too busy


def parts_of(job: Job, taken: Sequence[int]) -> list[int]:
    """Return how ranks are divided among `taken[f]` machines with f GPUs free each, as `_seat` reads it.

    The number of parts; their ranks in the order in which they are seated, below 0 for idle machines; their ranks
    in the order of their first; the part of each rank, in that order.
    """
    size = len(taken) - 1
    caps = [free for free in range(size, 0, -1) for _ in range(taken[free])]
    found = split(exchange_graph(job), tuple(caps))
    count, local = found.sizes, renumber(found.part)
    largest_first = sorted(range(len(caps)), key=count.__getitem__, reverse=True)
    seated = [-count[part] if part < taken[size] else count[part] for part in largest_first]
    return [len(caps), *seated, *(count[part] for part in dict.fromkeys(found.part)), *local]


@inside
def draft(room: Room, ask: Ask) -> int:
    """Draft the placement that is best in (O1, O2, traffic) among those within the bandwidth."""
    least = _least_idle(room, ask.gpus)
    answer = _try(room, ask, least)
    if answer != BLOCKED:
        return answer
    if len(room.machines.free) <= MAX_MACHINES:
        return ASK  # the paper's algorithms and the search may know better
    found, opened = _climb(room, ask, least)
    if found == LEARN:
        return LEARN
    quiet, fewer = _among_quiet(room, ask)
    if quiet == LEARN or (quiet != BLOCKED and (found == BLOCKED or (fewer, quiet) < (opened, found))):
        return quiet
    return _try(room, ask, opened) if found != BLOCKED else ASK


@inside
def _among_quiet(room: Room, ask: Ask) -> tuple[int, int]:
    """Draft a placement on machines whose uplinks are quiet; return the answer, and the idle machines it opens."""
    hide_busy(room, ask)
    answer, idle = BLOCKED, 0
    if _free_gpus(room) >= ask.gpus:
        idle = _least_idle(room, ask.gpus)
        answer = _try(room, ask, idle)
        if answer == BLOCKED:
            answer, idle = _climb(room, ask, idle)
    show_busy(room, ask)
    return answer, idle


@inside
def _climb(room: Room, ask: Ask, idle: int) -> tuple[int, int]:
    """Open more idle machines, as `Titan._climb` does; return the answer, and how many were opened."""
    size = len(room.machines.members) - 1
    most = min(room.machines.members[size], (ask.gpus + size - 1) // size)
    answer, more = BLOCKED, 1
    while answer == BLOCKED and idle < most:
        if _count_fewest(room, ask, idle) > MANY_MACHINES:
            more *= 2
        idle = min(idle + more, most)
        answer = _try(room, ask, idle)
    return answer, idle


@inside
def _try(room: Room, ask: Ask, idle: int) -> int:
    """Draft a placement that opens so many idle machines; say if it is blocked."""
    if _count_fewest(room, ask, idle) == 1:
        _seat_together(room, ask.gpus)
        return 1
    start = find(room.known, room.draft.key)
    if start < 0:
        return LEARN
    _seat(room, ask.gpus, start)
    weigh(room, ask)
    if is_quiet(room) or not is_blocked(room, ask):
        return int(room.draft.at[PARTS])
    return BLOCKED


@inside
def _free_gpus(room: Room) -> int:
    """Count the free GPUs."""
    members = room.machines.members
    total = 0
    for free in range(1, len(members)):
        total += free * members[free]
    return total


@inside
def _least_idle(room: Room, gpus: int) -> int:
    """Return O1 of `packing.fewest`: idle machines are opened only for what the others cannot hold."""
    members = room.machines.members
    size = len(members) - 1
    missing = gpus - (_free_gpus(room) - size * members[size])
    return int(max(0, (missing + size - 1) // size))


@inside
def _count_fewest(room: Room, ask: Ask, idle: int) -> int:
    """Count the machines of `packing.fewest_with` by their free GPUs; return how many they are.

    The counts are the key of what is known about the job's pattern, whose number stands before them.
    """
    members, key = room.machines.members, room.draft.key
    size = len(members) - 1
    key[0] = ask.pattern
    key[size] = idle
    count, left = idle, ask.gpus - size * idle
    for free in range(size - 1, 0, -1):
        key[free] = min(members[free], (left + free - 1) // free) if left > 0 else 0
        left -= free * key[free]
        count += key[free]
    return int(count)


@inside
def _seat_together(room: Room, gpus: int) -> None:
    """Put the whole job on the lowest idle machine, where it sends nothing."""
    drafted = room.draft
    drafted.machine[0] = lowest_with(room.machines, len(room.machines.members) - 1)
    drafted.gpus[0] = gpus
    drafted.at[PARTS], drafted.at[LINKS] = 1, 0
    drafted.cost[:] = 0.0


@inside
def _seat(room: Room, gpus: int, start: int) -> None:
    """Give each part a machine, as `_map` does: the tightest, close to the first."""
    machines, drafted, entry = room.machines, room.draft, room.known.entry
    size = len(machines.members) - 1
    parts = entry[start]
    near = -1
    for part in range(start + 1, start + 1 + parts):
        ranks = abs(entry[part])
        free = size if entry[part] < 0 else _tightest(room, ranks)
        machine = _close_by(room, free, near)
        leave(machines, free, machine)
        drafted.taken[ranks, machine // 64] ^= bit_of(machine)
        if near < 0 and room.links.level[machine] > 1:
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
def _tightest(room: Room, ranks: int) -> int:
    """Return the least number of free GPUs, at least `ranks`, that some machine has; there is one."""
    free = ranks
    while not room.machines.members[free]:
        free += 1
    return free


@inside
def _close_by(room: Room, free: int, near: int) -> int:
    """Return a machine with so many GPUs free, below the lowest switch above `near` that has one."""
    links = room.links
    if near >= 0:
        switch = links.parent[near]
        while links.parent[switch] != switch:
            machine = lowest_between(room.machines.sets[free], links.first[switch], links.past[switch])
            if machine >= 0:
                return machine
            switch = links.parent[switch]
    return lowest_with(room.machines, free)
