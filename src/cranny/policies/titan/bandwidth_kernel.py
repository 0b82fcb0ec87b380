"""Titan's bandwidth constraint, compiled: `bandwidth` once more, for drafts."""

import numpy as np

from cranny.core.fast.bit_sets import join, leave
from cranny.core.fast.communication_cost import begin_tally, tally
from cranny.core.fast.placement_arrays import LINKS, PEAK_BYTES, Ask, Room
from cranny.core.jit import inside
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.policies.titan.bandwidth import SLACK


@inside
def is_quiet(room: Room) -> bool:
    """Say whether the narrowest link lets the largest exchange pass: most drafts are far from any limit."""
    drafted, links = room.draft, room.links
    least_gbps = links.gbps[drafted.links[0]]
    for i in range(drafted.at[LINKS]):
        link = drafted.links[i]
        least_gbps = min(least_gbps, links.gbps[link] - links.use_gbps[link])
    return bool(drafted.cost[PEAK_BYTES] <= _limit_bytes(room, least_gbps))


@inside
def is_blocked(room: Room, ask: Ask) -> bool:
    """Say whether two machines exchange more in some phase than passes between them in time."""
    drafted, talk = room.draft, room.talk
    for phase in range(talk.first_phase[ask.pattern], talk.past_phase[ask.pattern]):
        serial = begin_tally(drafted)
        for pair in range(talk.first_pair[phase], talk.first_pair[phase + 1]):
            a, b = drafted.part[talk.a[pair]], drafted.part[talk.b[pair]]
            if a != b:
                moved_bytes = tally(room, serial, phase, a, b) * talk.share[phase] * ask.k_bytes
                if moved_bytes > _limit_bytes(room, _gbps_between(room, drafted.machine[a], drafted.machine[b])):
                    return True
    return False


@inside
def _limit_bytes(room: Room, gbps: float) -> float:
    """Return what passes at this rate within the budget."""
    phase_budget_s = room.setting
    return max(0.0, gbps) * GIGA / BITS_PER_BYTE * phase_budget_s * SLACK


@inside
def _gbps_between(room: Room, a: int, b: int) -> float:
    """Return what running jobs leave on the narrowest link between two machines."""
    links = room.links
    least = np.inf
    while a != b:
        if links.level[a] < links.level[b]:
            a, b = b, a
        least = min(least, links.gbps[a] - links.use_gbps[a])
        a = links.parent[a]
    return float(least)


@inside
def hide_busy(room: Room, ask: Ask) -> None:
    """Take out the machines whose uplinks have less left than two ranks need."""
    for machine in range(len(room.machines.free)):
        if _is_busy(room, ask, machine):
            leave(room.machines, room.machines.free[machine], machine)


@inside
def show_busy(room: Room, ask: Ask) -> None:
    """Put them back."""
    for machine in range(len(room.machines.free)):
        if _is_busy(room, ask, machine):
            join(room.machines, room.machines.free[machine], machine)


@inside
def _is_busy(room: Room, ask: Ask, machine: int) -> bool:
    """Say whether a machine's uplink has less left than `Bandwidth.need_gbps`."""
    links, talk = room.links, room.talk
    phase = talk.first_phase[ask.pattern]
    smallest = talk.share[phase] * ask.k_bytes
    for later in range(phase + 1, talk.past_phase[ask.pattern]):
        smallest = min(smallest, talk.share[later] * ask.k_bytes)
    phase_budget_s = room.setting
    need_gbps = smallest * BITS_PER_BYTE / GIGA / phase_budget_s
    return bool(links.gbps[machine] - links.use_gbps[machine] < need_gbps)
