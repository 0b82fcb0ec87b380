"""What a resource carries, as a line: of this its level follows, and each change of a rate edits it.

Jobs rise together, each up to its own rate. So what a resource carries grows with the level that they have risen
to, in straight pieces. One piece of each resource is known, near its level: `still + rising * rate` from `low` to
`high`. Drawing it takes all uses of the resource; it is drawn again only when the level turns out to be elsewhere.
"""

from typing import Any

import numpy as np

from cranny.core.jit import compiled, inlined
from cranny.network.steady.link_arrays import NONE, NOT_DRAWN, RateArrays

# Levels closer than this, relatively, are the same: what is left of rounding must not set off changes.
SAME = 1e-12
STEPS = 100  # when looking for a level; a few are enough


@compiled
def level_of(net: RateArrays, resource: int, floor: float) -> float:
    """Return the level at which a resource is used up, not below a floor, as the rates are assumed now."""
    own = net.resources[resource]
    if own.gbps == np.inf:
        return np.inf
    if own.edits < NOT_DRAWN:
        level = crossing(net, resource)
        if own.low <= level and (level <= own.high or level == np.inf):
            return max(level, floor)
    least, beyond = floor, np.inf
    level = own.level if floor < own.level < np.inf else floor
    for _ in range(STEPS):
        _draw(net, resource, level)
        level = crossing(net, resource)
        if level == np.inf:
            return level
        if level > own.high:
            least = own.high
        elif level < own.low and own.low > floor:
            beyond = own.low
        else:
            return max(level, floor)
        if not least <= level < beyond:
            level = least if beyond == np.inf else 0.5 * (least + beyond)
    return level


@compiled
def _draw(net: RateArrays, resource: int, level: float) -> None:
    """Draw the line that a resource's load follows from a level on."""
    own = net.resources[resource]
    own.low, own.high = 0.0, np.inf
    use = own.first_use
    while use != NONE:
        _bend(net, own, use, bound(net, net.uses[use].job, resource), level)
        use = net.uses[use].next_on
    own.still = own.rising = 0.0
    own.risers = own.loose = own.edits = 0
    use = own.first_use
    while use != NONE:
        job = net.uses[use].job
        _put(net, use, bound(net, job, resource), net.jobs[job].held_by != resource, 1)
        use = net.uses[use].next_on


@compiled
def _bend(net: RateArrays, own: Any, use: int, rate: float, level: float) -> None:
    """End a line where a use bends it: at the job's rate, and where switches have no memory left."""
    _end(own, rate, level)
    if net.uses[use].root != NONE:
        _end(own, net.resources[net.uses[use].root].level, level)
    if net.uses[use].leaf != NONE:
        _end(own, net.resources[net.uses[use].leaf].level, level)


@inlined
def _end(own: Any, rate: float, level: float) -> None:
    """End a line at a rate, above or below a level."""
    if own.low < rate < own.high:
        if _not_above(rate, level):
            own.low = rate
        else:
            own.high = rate


@compiled
def count(net: RateArrays, use: int, rate: float, loose: int, sign: int) -> None:
    """Add a use with a rate to the line of its resource, or take it off; it is loose unless that holds its job."""
    own = net.resources[net.uses[use].resource]
    if own.edits < NOT_DRAWN:
        own.edits += 1
        if sign > 0:
            _bend(net, own, use, rate, own.level)
        _put(net, use, rate, loose, sign)


@compiled
def _put(net: RateArrays, use: int, rate: float, loose: int, sign: int) -> None:
    """Add a use to a line that it does not bend, or take it off."""
    made = net.uses[use]
    own = net.resources[made.resource]
    if rate <= own.low:
        own.still += sign * load_of(net, made, rate)
        return
    flows = _flows_above(net, made, own.low)
    own.rising += sign * flows
    if made.root != NONE or made.leaf != NONE:
        own.still += sign * (load_of(net, made, own.low) - flows * own.low)
    own.risers += sign
    own.loose += sign * loose


@inlined
def recount(net: RateArrays, use: int, before: float, after: float) -> None:
    """Change the line of a resource as a job that it does not hold goes from one rate to another."""
    made = net.uses[use]
    own = net.resources[made.resource]
    if max(before, after) > own.low:
        count(net, use, before, 1, -1)
        count(net, use, after, 1, 1)
    elif own.edits < NOT_DRAWN:
        own.edits += 1
        if made.root == NONE and made.leaf == NONE:
            own.still += made.many * (after - before)
        else:
            own.still += load_of(net, made, after) - load_of(net, made, before)


@inlined
def crossing(net: RateArrays, resource: int) -> float:
    """Return the rate at which the line of a resource reaches what there is; its ends are a little blurred.

    It may lie beyond the ends, and is of no other use then.
    """
    own = net.resources[resource]
    if not own.risers or own.rising <= 0.0:  # risers may rise in no flows, while all is merged
        if own.still > own.gbps * (1.0 + SAME):
            return -np.inf
        return float(2.0 * own.high if own.risers else np.inf)
    level = float((own.gbps - own.still) / own.rising)
    for end in (own.low, own.high):
        if same(level, end):
            level = float(end)
    return level


@inlined
def bound(net: RateArrays, job: int, resource: int) -> float:
    """Return the rate that a job has or, if it is this resource that holds it, would have otherwise."""
    return float(net.jobs[job].most if net.jobs[job].held_by == resource else net.jobs[job].rate)


@inlined
def load_of(net: RateArrays, use: Any, rate: float) -> float:
    """Return what a use amounts to at a rate: each part of the rate in the flows that it rose in."""
    many = use.many * rate
    if use.leaf != NONE:
        many -= (use.many - use.few) * min(rate, net.resources[use.leaf].level)
    if use.root != NONE:
        merged = min(rate, net.resources[use.root].level)
        many += use.merged * merged - use.many * merged
        if use.leaf != NONE:
            many += (use.many - use.few) * min(merged, net.resources[use.leaf].level)
    return float(many)


@inlined
def _flows_above(net: RateArrays, use: Any, rate: float) -> float:
    """Return the flows in which a use goes on from a rate."""
    if use.root != NONE and rate < net.resources[use.root].level:
        return float(use.merged)
    return float(use.few if use.leaf != NONE and rate < net.resources[use.leaf].level else use.many)


@compiled
def flows_below(net: RateArrays, use: Any, rate: float) -> float:
    """Return the flows in which a use came to a rate."""
    if use.root != NONE and _not_above(rate, net.resources[use.root].level):
        return float(use.merged)
    few = use.leaf != NONE and _not_above(rate, net.resources[use.leaf].level)
    return float(use.few if few else use.many)


@inlined
def _not_above(a: float, b: float) -> bool:
    return a <= b or same(a, b)


@inlined
def same(a: float, b: float) -> bool:
    """Say whether two levels differ by no more than rounding."""
    return a == b or abs(a - b) <= SAME * min(a, b)
