"""The exact search of `search`, compiled: sets of machines by kind, then a machine for each rank, depth first."""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled, inside
from cranny.model.arrays import Flags, Floats, Ints

EPSILON = 1e-9
IN_USE, IDLE = 0, 1


class RankArrays(NamedTuple):
    """The ranks in the order in which they are placed, and what each exchanges with those before it."""

    ranks: Ints  # (ranks,)
    first: Ints  # (ranks + 1,) of the exchanges of each place in the order
    earlier: Ints  # (exchanges,) each: with the rank at this place,
    phase: Ints  # in this phase,
    sent: Floats  # so many bytes out
    got: Floats  # and in,
    total: Floats  # and all times that the phase comes
    twin: Ints  # (ranks,) an earlier place whose rank exchanges the same with all others; -1 if there is none
    level_bytes: Floats  # (levels,) what two ranks exchange in a phase, ascending
    multiple: Ints  # (levels + 1,) ranks that a machine takes a multiple of, if fewer of these levels pass


class OfferedMachines(NamedTuple):
    """Machines on offer, kind after kind, those with much room and bandwidth first."""

    free: Ints  # (machines,)
    links: Ints  # (machines, levels of the tree) from the machine up; -1 beyond the last
    limit_bytes: Floats  # (machines, levels) what passes each of these links in a phase
    first: Ints  # (kinds + 1,) machine of each kind
    room: Ints  # (kinds,) each
    idle: Ints
    switch: Ints
    gbps: Floats


class SearchArrays(NamedTuple):
    """What the search keeps."""

    nodes: Ints  # (1,) that may still be searched
    least: Floats  # (1,) traffic of the best map so far
    best: Ints  # (ranks,) its machines
    between_bytes: Floats  # (machines, machines) what passes between two in a phase
    roomiest: Ints  # (2, kinds + 1, machines + 1) room of so many machines, idle or not, of this and later kinds
    better: Flags  # (kinds, kinds) the second must be used up before the first is used
    # The present set of machines: how many of each kind, and what is missing before each kind.
    taken: Ints  # (kinds + 1,)
    missing: Ints  # (kinds + 1, 3) idle machines, machines, room
    members: Ints  # (machines,) of the set
    alike: Ints  # (machines,) the first member that is like this one
    # The present map of ranks: for each place in the order, the members that its rank may be on, cheapest first.
    option: Ints  # (ranks, machines)
    added: Floats  # (ranks, machines) traffic
    options: Ints  # (ranks,)
    tried: Ints  # (ranks,)
    crossing: Floats  # (ranks + 1,) traffic so far
    member_of: Ints  # (ranks,)
    ranks_on: Ints  # (machines,) members
    inside: Floats  # (machines,) what the rank that is placed next exchanges with each member
    listed: Flags  # (machines,) whether an empty member like this one is among the options
    load: Floats  # (phases, machines, machines) bytes from member to member
    # The loads that each rank changed, as they were before.
    undo_first: Ints  # (ranks + 1,)
    undo_at: Ints  # (2 x exchanges, 3)
    undo_bytes: Floats  # (2 x exchanges,)


@compiled
def run(
    machines: OfferedMachines, ranks: RankArrays, arrays: SearchArrays, below: tuple[int, int]
) -> tuple[int, int]:
    """Search (O1, O2) from the best on; return the first with a map, or (-1, -1)."""
    _set_up(machines, arrays)
    count, gpus = len(machines.free), len(ranks.ranks)
    for idle in range(min(count, gpus) + 1):
        for total in range(max(idle, 1), min(count, gpus) + 1):
            if (idle, total) >= below:
                return -1, -1
            _search_sets(machines, ranks, arrays, idle, total)
            if arrays.least[0] < np.inf:
                return idle, total
            if arrays.nodes[0] <= 0:
                return -1, -1
    return -1, -1


@inside
def _spend(arrays: SearchArrays) -> bool:
    """Use up a node; say whether there was one."""
    arrays.nodes[0] -= 1
    return bool(arrays.nodes[0] >= 0)


@inside
def _set_up(machines: OfferedMachines, arrays: SearchArrays) -> None:
    """Compute what passes between machines, the most room of so many machines, and which kinds come first."""
    count, kinds = len(machines.free), len(machines.room)
    for a in range(count):
        for b in range(count):
            arrays.between_bytes[a, b] = min(_above(machines, a, b), _above(machines, b, a)) if a != b else 0.0
    arrays.roomiest[:] = -(1 << 40)
    for kind in range(kinds, -1, -1):
        for idle in range(2):
            arrays.roomiest[idle, kind, 0] = 0
            held = room = 0
            for later in range(kind, kinds):
                if machines.idle[later] == idle:
                    for _ in range(machines.first[later], machines.first[later + 1]):
                        held += 1
                        room += machines.room[later]
                        arrays.roomiest[idle, kind, held] = room
    for kind in range(kinds):
        for other in range(kind):  # which has no less room
            arrays.better[kind, other] = (
                machines.idle[other] == machines.idle[kind]
                and machines.switch[other] == machines.switch[kind]
                and machines.gbps[other] >= machines.gbps[kind]
            )


@inside
def _above(machines: OfferedMachines, a: int, b: int) -> float:
    """Return what passes the links above machine a that are not above b."""
    least = np.inf
    for i in range(machines.links.shape[1]):
        link, shared = machines.links[a, i], False
        for other in machines.links[b]:
            shared = shared or other == link
        if link >= 0 and not shared:
            least = min(least, machines.limit_bytes[a, i])
    return float(least)


@inside
def _search_sets(
    machines: OfferedMachines, ranks: RankArrays, arrays: SearchArrays, idle: int, total: int
) -> None:
    """Map the ranks to every set of `total` machines, `idle` of them idle, that has room for all."""
    taken, missing = arrays.taken, arrays.missing
    missing[0, 0], missing[0, 1], missing[0, 2] = idle, total, len(ranks.ranks)
    kind, arrived = 0, True
    while kind >= 0:
        if arrived:
            if missing[kind, 1] == 0:
                taken[kind] = 0
                if missing[kind, 2] <= 0:
                    _search_maps(machines, ranks, arrays, kind)
                if arrays.nodes[0] <= 0:
                    return
            else:
                taken[kind] = _most(machines, arrays, kind) + 1
        arrived = taken[kind] > 0
        if arrived:
            taken[kind] -= 1
            missing[kind + 1, 0] = missing[kind, 0] - taken[kind] * machines.idle[kind]
            missing[kind + 1, 1] = missing[kind, 1] - taken[kind]
            missing[kind + 1, 2] = missing[kind, 2] - taken[kind] * machines.room[kind]
            kind += 1
        else:
            kind -= 1


@inside
def _most(machines: OfferedMachines, arrays: SearchArrays, kind: int) -> int:
    """Return how many of a kind a set may have; -1 if no machines of this and later kinds complete it."""
    idle, total, room = arrays.missing[kind, 0], arrays.missing[kind, 1], arrays.missing[kind, 2]
    if idle > total or arrays.roomiest[IN_USE, kind, total - idle] + arrays.roomiest[IDLE, kind, idle] < room:
        return -1
    if not _spend(arrays):
        return -1
    for other in range(kind):
        if arrays.better[kind, other] and arrays.taken[other] < machines.first[other + 1] - machines.first[other]:
            return 0
    most = machines.first[kind + 1] - machines.first[kind]
    return int(min(most, idle if machines.idle[kind] else total - idle))


@inside
def _search_maps(machines: OfferedMachines, ranks: RankArrays, arrays: SearchArrays, kinds: int) -> None:
    """Map the ranks, depth first, to the machines taken of the first `kinds` kinds; keep a better map."""
    count = _gather(machines, arrays, kinds)
    arrays.nodes[0] -= count  # finding out whether there is room costs about as much
    if not _has_room(machines, ranks, arrays, count):
        return
    at, last = 0, len(ranks.ranks)
    _list_options(machines, ranks, arrays, at, count)
    while at >= 0:
        if at == last:
            arrays.least[0] = arrays.crossing[last]
            for place in range(last):
                arrays.best[ranks.ranks[place]] = arrays.members[arrays.member_of[place]]
            at -= 1
            _remove(arrays, at)
            continue
        option = arrays.tried[at]
        crossing = arrays.crossing[at] + arrays.added[at, option] if option < arrays.options[at] else np.inf
        if crossing < arrays.least[0] * (1 - EPSILON) and _spend(arrays):
            arrays.tried[at] += 1
            if _place(ranks, arrays, at, arrays.option[at, option]):
                at += 1
                arrays.crossing[at] = crossing
                if at < last:
                    _list_options(machines, ranks, arrays, at, count)
        else:  # options come cheapest first
            at -= 1
            if at >= 0:
                _remove(arrays, at)


@inside
def _gather(machines: OfferedMachines, arrays: SearchArrays, kinds: int) -> int:
    """List the machines of the set, with no rank on them; return how many they are."""
    count = 0
    for kind in range(kinds):
        begins = count
        for machine in range(machines.first[kind], machines.first[kind] + arrays.taken[kind]):
            arrays.members[count], arrays.alike[count] = machine, count
            for earlier in range(count - 1, begins - 1, -1):
                if machines.free[arrays.members[earlier]] == machines.free[machine]:
                    arrays.alike[count] = earlier
            arrays.ranks_on[count] = 0
            count += 1
    return count


@inside
def _has_room(machines: OfferedMachines, ranks: RankArrays, arrays: SearchArrays, count: int) -> bool:
    """Say whether the set could hold all ranks if each machine took no part of a group that it cannot part."""
    left = gpus = len(ranks.ranks)
    for a in range(count):
        most = 0.0
        for b in range(count):
            most = max(most, arrays.between_bytes[arrays.members[a], arrays.members[b]])
        level = 0
        while level < len(ranks.level_bytes) and ranks.level_bytes[level] <= most:
            level += 1
        multiple = ranks.multiple[level]
        room = min(machines.free[arrays.members[a]], gpus) // multiple * multiple
        if room == 0:
            return False
        left -= room
    return bool(left <= 0)


@inside
def _list_options(machines: OfferedMachines, ranks: RankArrays, arrays: SearchArrays, at: int, count: int) -> None:
    """List the members that a rank may be on and the traffic each adds, cheapest first."""
    inside_of, exchanged = arrays.inside, 0.0
    for member in range(count):
        inside_of[member] = 0.0
        arrays.listed[member] = False
    for i in range(ranks.first[at], ranks.first[at + 1]):
        exchanged += ranks.total[i]
        inside_of[arrays.member_of[ranks.earlier[i]]] += ranks.total[i]
    unused = 0
    for member in range(count):
        unused += arrays.ranks_on[member] == 0
    must_open = unused >= len(ranks.ranks) - at
    # Of two equal ranks, the later is on no earlier machine.
    begin = arrays.member_of[ranks.twin[at]] if ranks.twin[at] >= 0 else 0
    arrays.options[at] = arrays.tried[at] = 0
    for member in range(begin, count):
        occupied = arrays.ranks_on[member] > 0
        if arrays.ranks_on[member] == machines.free[arrays.members[member]] or (must_open and occupied):
            continue
        if not occupied:  # of interchangeable empty machines one is enough
            if arrays.listed[arrays.alike[member]]:
                continue
            arrays.listed[arrays.alike[member]] = True
        _insert(arrays, at, member, exchanged - inside_of[member])


@inside
def _insert(arrays: SearchArrays, at: int, member: int, added: float) -> None:
    """Insert an option where it belongs, after its equals."""
    place = arrays.options[at]
    while place > 0 and arrays.added[at, place - 1] > added:
        arrays.option[at, place], arrays.added[at, place] = (
            arrays.option[at, place - 1],
            arrays.added[at, place - 1],
        )
        place -= 1
    arrays.option[at, place], arrays.added[at, place] = member, added
    arrays.options[at] += 1


@inside
def _place(ranks: RankArrays, arrays: SearchArrays, at: int, member: int) -> bool:
    """Place a rank on a member; nothing has changed if that exceeds a limit."""
    arrays.undo_first[at + 1] = arrays.undo_first[at]
    fits = True
    for i in range(ranks.first[at], ranks.first[at + 1]):
        other = arrays.member_of[ranks.earlier[i]]
        if other != member:
            limit_bytes = arrays.between_bytes[arrays.members[member], arrays.members[other]]
            fits = _add_load(arrays, at, ranks.phase[i], member, other, ranks.sent[i]) <= limit_bytes and fits
            fits = _add_load(arrays, at, ranks.phase[i], other, member, ranks.got[i]) <= limit_bytes and fits
    arrays.member_of[at] = member
    arrays.ranks_on[member] += 1
    if not fits:
        _remove(arrays, at)
    return fits


@inside
def _add_load(arrays: SearchArrays, at: int, phase: int, a: int, b: int, moved: float) -> float:
    """Add what one member sends another in a phase; return all that it does."""
    if moved > 0.0:
        undo = arrays.undo_first[at + 1]
        arrays.undo_at[undo, 0], arrays.undo_at[undo, 1], arrays.undo_at[undo, 2] = phase, a, b
        arrays.undo_bytes[undo] = arrays.load[phase, a, b]
        arrays.undo_first[at + 1] += 1
        arrays.load[phase, a, b] += moved
    return float(arrays.load[phase, a, b])


@inside
def _remove(arrays: SearchArrays, at: int) -> None:
    """Remove the rank at this place, which was placed last."""
    for undo in range(arrays.undo_first[at + 1] - 1, arrays.undo_first[at] - 1, -1):
        arrays.load[arrays.undo_at[undo, 0], arrays.undo_at[undo, 1], arrays.undo_at[undo, 2]] = arrays.undo_bytes[
            undo
        ]
    arrays.ranks_on[arrays.member_of[at]] -= 1
