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
    Draft,
    PlacementArrays,
    PlacementRequest,
)
from cranny.core.jit import compiled, inside
from cranny.core.traffic import BITS_PER_BYTE, GIGA


@compiled
def communication_cost(arrays: PlacementArrays, request: PlacementRequest) -> None:
    """Compute what a draft sends over which links, how long that takes, and the most between two machines."""
    draft, patterns, k_bytes = arrays.draft, arrays.patterns, request.k_bytes
    _find_links(arrays)
    cross_share = comm_s = peak = 0.0
    for phase in range(patterns.first_phase[request.pattern], patterns.past_phase[request.pattern]):
        share, times = patterns.share[phase], patterns.times[phase]
        pairs, most = _count(arrays, phase)
        cross_share += pairs * (share * times)
        comm_s += _use_links(arrays, phase) * times
        peak = max(peak, most * share)
    comm_s *= k_bytes
    draft.cost[CROSS_BYTES] = cross_share * k_bytes
    draft.cost[COMM_S] = comm_s
    draft.cost[PEAK_BYTES] = peak * k_bytes
    gbps_per_byte = BITS_PER_BYTE / GIGA / (request.iteration_s + comm_s)
    for i in range(draft.at[LINKS]):
        draft.gbps[i] = draft.sent[i] * k_bytes * gbps_per_byte


@inside
def _find_links(arrays: PlacementArrays) -> None:
    """List the links above the machines of the draft."""
    draft, parent = arrays.draft, arrays.links.parent
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
def _count(arrays: PlacementArrays, phase: int) -> tuple[int, int]:
    """Count the pairs of a phase that pass each link; return all that cross, and the most of two machines."""
    draft, patterns = arrays.draft, arrays.patterns
    serial = begin_tally(draft)
    crossing = most = 0
    for pair in range(patterns.first_pair[phase], patterns.first_pair[phase + 1]):
        a, b = draft.part[patterns.a[pair]], draft.part[patterns.b[pair]]
        if a != b:
            crossing += 1
            _pass(arrays, draft.machine[a], draft.machine[b])
            most = max(most, tally(arrays, serial, phase, a, b))
    return crossing, most


@inside
def _pass(arrays: PlacementArrays, sender: int, receiver: int) -> None:
    """Count a pair on the links from one machine up to the lowest common switch, and down to the other."""
    parent, level, draft = arrays.links.parent, arrays.links.level, arrays.draft
    while sender != receiver:
        if level[sender] >= level[receiver]:
            draft.up[sender] += 1.0
            sender = parent[sender]
        else:
            draft.down[receiver] += 1.0
            receiver = parent[receiver]


@inside
def begin_tally(draft: Draft) -> int:
    """Return the number from which entries of the tally belong to the phase that begins."""
    draft.at[PHASES] += 1
    return int(draft.at[PHASES] * len(draft.machine) ** 2)


@inside
def tally(arrays: PlacementArrays, serial: int, phase: int, a: int, b: int) -> int:
    """Count a pair between two parts; return how many there are so far in this phase, in this direction.

    In an exchange both directions count together.
    """
    draft = arrays.draft
    if arrays.patterns.exchange[phase] and a > b:
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
def _use_links(arrays: PlacementArrays, phase: int) -> float:
    """Add what a phase sends over each link, and reset the counts; return how long it takes, per byte of K."""
    draft, patterns = arrays.draft, arrays.patterns
    share, times, exchange = patterns.share[phase], patterns.times[phase], patterns.exchange[phase]
    slowest_s = 0.0
    for i in range(draft.at[LINKS]):
        link = draft.links[i]
        up, down = draft.up[link], draft.down[link]
        busier = (up + down if exchange else max(up, down)) * share
        slowest_s = max(slowest_s, busier * arrays.links.s_per_byte[link])
        draft.sent[i] += times * busier
        draft.up[link] = draft.down[link] = 0.0
    return slowest_s
