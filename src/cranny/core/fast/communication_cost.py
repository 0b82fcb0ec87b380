"""What a draft would cost: `core.traffic.communication` once more, for jobs of one pattern, compiled.

The sums are taken in the same order, so the outcome is the same to the last bit.
"""

from cranny.core.fast.placement_arrays import (
    COMM_S,
    CROSS_BYTES,
    LINKS,
    PARTS,
    PEAK_BYTES,
    PHASES,
    Ask,
    Draft,
    Room,
)
from cranny.core.jit import compiled, inside
from cranny.core.traffic import BITS_PER_BYTE, GIGA


@compiled
def weigh(room: Room, ask: Ask) -> None:
    """Work out what a draft sends over which links, how long that takes, and the most between two machines."""
    draft, talk, k_bytes = room.draft, room.talk, ask.k_bytes
    _find_links(room)
    cross_share = comm_s = peak = 0.0
    for phase in range(talk.first_phase[ask.pattern], talk.past_phase[ask.pattern]):
        share, times = talk.share[phase], talk.times[phase]
        pairs, most = _count(room, phase)
        cross_share += pairs * (share * times)
        comm_s += _use_links(room, phase) * times
        peak = max(peak, most * share)
    comm_s *= k_bytes
    draft.cost[CROSS_BYTES] = cross_share * k_bytes
    draft.cost[COMM_S] = comm_s
    draft.cost[PEAK_BYTES] = peak * k_bytes
    gbps_per_byte = BITS_PER_BYTE / GIGA / (ask.iteration_s + comm_s)
    for i in range(draft.at[LINKS]):
        draft.gbps[i] = draft.sent[i] * k_bytes * gbps_per_byte


@inside
def _find_links(room: Room) -> None:
    """List the links above the machines of the draft."""
    draft, parent = room.draft, room.links.parent
    count = 0
    for part in range(draft.at[PARTS]):
        node = draft.machine[part]
        while parent[node] != node and not draft.marked[node]:
            draft.marked[node] = True
            draft.links[count] = node
            draft.sent[count] = 0.0
            count += 1
            node = parent[node]
    for i in range(count):
        draft.marked[draft.links[i]] = False
    draft.at[LINKS] = count


@inside
def _count(room: Room, phase: int) -> tuple[int, int]:
    """Count the pairs of a phase that pass each link; return all that cross, and the most of two machines."""
    draft, talk = room.draft, room.talk
    serial = begin_tally(draft)
    crossing = most = 0
    for pair in range(talk.first_pair[phase], talk.first_pair[phase + 1]):
        a, b = draft.part[talk.a[pair]], draft.part[talk.b[pair]]
        if a != b:
            crossing += 1
            _pass(room, draft.machine[a], draft.machine[b])
            most = max(most, tally(room, serial, phase, a, b))
    return crossing, most


@inside
def _pass(room: Room, sender: int, receiver: int) -> None:
    """Count a pair on the links from one machine up to where the ways meet, and down to the other."""
    parent, level, draft = room.links.parent, room.links.level, room.draft
    while sender != receiver:
        if level[sender] >= level[receiver]:
            draft.up[sender] += 1.0
            sender = parent[sender]
        else:
            draft.down[receiver] += 1.0
            receiver = parent[receiver]


@inside
def begin_tally(draft: Draft) -> int:
    """Return from where on entries of the tally belong to the phase that begins."""
    draft.at[PHASES] += 1
    return int(draft.at[PHASES] * len(draft.machine) ** 2)


@inside
def tally(room: Room, serial: int, phase: int, a: int, b: int) -> int:
    """Count a pair between two parts; return how many there are so far in this phase, in this direction.

    In an exchange both directions count together.
    """
    draft = room.draft
    if room.talk.exchange[phase] and a > b:
        a, b = b, a
    entry = serial + a * draft.at[PARTS] + b
    last = len(draft.pair) - 1
    slot = entry & last
    while draft.pair[slot] >= serial and draft.pair[slot] != entry:
        slot = (slot + 1) & last
    if draft.pair[slot] < serial:
        draft.pair[slot] = entry
        draft.tally[slot] = 0
    draft.tally[slot] += 1
    return int(draft.tally[slot])


@inside
def _use_links(room: Room, phase: int) -> float:
    """Add what a phase sends over each link, and forget the counts; return how long it takes, per byte of K."""
    draft, talk = room.draft, room.talk
    share, times, exchange = talk.share[phase], talk.times[phase], talk.exchange[phase]
    slowest_s = 0.0
    for i in range(draft.at[LINKS]):
        link = draft.links[i]
        up, down = draft.up[link], draft.down[link]
        busier = (up + down if exchange else max(up, down)) * share
        slowest_s = max(slowest_s, busier * room.links.s_per_byte[link])
        draft.sent[i] += times * busier
        draft.up[link] = draft.down[link] = 0.0
    return slowest_s
