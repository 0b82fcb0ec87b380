"""Titan's bandwidth constraint, compiled: `bandwidth` once more, for drafts."""

import numpy as np

from cranny.core.fast.bit_sets import join, leave
from cranny.core.fast.communication_cost import begin_tally, tally
from cranny.core.fast.placement_arrays import LINKS, PEAK_BYTES, PlacementArrays, PlacementRequest
from cranny.core.jit import inside
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.policies.titan.bandwidth import SLACK


@inside
def is_quiet(arrays: PlacementArrays) -> bool:
    """Say whether the narrowest link lets the largest exchange pass: most drafts are far from any limit."""
    drafted, links = arrays.draft, arrays.links
    least_gbps = links.gbps[drafted.links[0]]
    for i in range(drafted.at[LINKS]):
        link = drafted.links[i]
        least_gbps = min(least_gbps, links.gbps[link] - links.use_gbps[link])
    return bool(drafted.cost[PEAK_BYTES] <= _limit_bytes(arrays, least_gbps))


@inside
def is_blocked(arrays: PlacementArrays, request: PlacementRequest) -> bool:
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
def hide_busy(arrays: PlacementArrays, request: PlacementRequest, hide: bool) -> None:  # noqa: FBT001 - a kernel
    """Take out the machines whose uplinks have less left than `Bandwidth.need_gbps`, or put them back."""
    links, patterns, free = arrays.links, arrays.patterns, arrays.machines.free
    phase = patterns.first_phase[request.pattern]
    smallest = patterns.share[phase] * request.k_bytes
    for later in range(phase + 1, patterns.past_phase[request.pattern]):
        smallest = min(smallest, patterns.share[later] * request.k_bytes)
    phase_budget_s = arrays.setting
    need_gbps = smallest * BITS_PER_BYTE / GIGA / phase_budget_s
    for machine in range(len(free)):
        if links.gbps[machine] - links.use_gbps[machine] < need_gbps:
            if hide:
                leave(arrays.machines, free[machine], machine)
            else:
                join(arrays.machines, free[machine], machine)
