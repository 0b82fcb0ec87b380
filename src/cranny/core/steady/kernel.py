"""Water-filling, compiled: from scratch, and after a job came or went only where that changes something.

The level of a resource is the rate at which the jobs that still rise use it up; infinite if they never do. A full
link holds its jobs at its level; a switch without memory only makes them use more of their links. So rates and
levels follow from each other, and whatever happens at a level follows from lower levels alone.

That gives one method for both tasks. Some rates and levels are assumed, and resources whose level might be wrong
wait in a heap. The lowest comes first: its level is worked out from the rates assumed, what changes is written
down, and resources that feel the change above this level join the heap. When it is empty everything fits together.
"""

from typing import Any

import numpy as np

from cranny.core.compiled import compiled
from cranny.core.steady.flows import Floats, Flows, Ints
from cranny.core.steady.net import CHANGED, FREE_USE, NONE, NOT_QUEUED, QUEUED, UPDATE, Net

# Levels closer than this, relatively, are the same: what is left of rounding must not set off changes.
SAME = 1e-12
FULL = 1e-15
LOOKS = 20  # at each resource, in the mean, before an update gives up; a guard that no case we know of needs
ALL = -1  # looks, however many
STEPS = 100  # when looking for a level; a few are enough, as what a link carries is made of straight pieces


@compiled
def put(net: Net, job: int, most: float, flows: Flows) -> None:
    """Let a job in, at all that it would take, without looking yet at what that means."""
    net.jobs[job].most = most
    net.jobs[job].rate = most
    net.jobs[job].held_by = NONE
    net.jobs[job].first_of = NONE
    for i in range(len(flows.resource)):
        use = net.at[FREE_USE]
        net.at[FREE_USE] = net.uses[use].next_of
        resource = flows.resource[i]
        net.uses[use].job, net.uses[use].resource = job, resource
        net.uses[use].root, net.uses[use].leaf = flows.root[i], flows.leaf[i]
        net.uses[use].merged, net.uses[use].few, net.uses[use].many = flows.merged[i], flows.few[i], flows.many[i]
        after = net.resources[resource].first_use
        net.uses[use].last_on, net.uses[use].next_on = NONE, after
        if after != NONE:
            net.uses[after].last_on = use
        net.resources[resource].first_use = use
        net.uses[use].next_of = net.jobs[job].first_of
        net.jobs[job].first_of = use


@compiled
def add(net: Net, job: int, most: float, flows: Flows) -> bool:
    """Let a job in and bring all rates up to date; say whether that was reasonable work."""
    forget_changes(net)
    put(net, job, most, flows)
    _note(net, job, 0.0)
    use = net.jobs[job].first_of
    while use != NONE:
        _more(net, net.uses[use].resource, 0.0)
        use = net.uses[use].next_of
    return _settle(net, LOOKS * len(net.resources))


@compiled
def remove(net: Net, job: int) -> bool:
    """Take a job out and bring all rates up to date; say whether that was reasonable work."""
    forget_changes(net)
    use = net.jobs[job].first_of
    while use != NONE:
        resource, before, after = net.uses[use].resource, net.uses[use].last_on, net.uses[use].next_on
        if before == NONE:
            net.resources[resource].first_use = after
        else:
            net.uses[before].next_on = after
        if after != NONE:
            net.uses[after].last_on = before
        _less(net, resource, 0.0)
        follows = net.uses[use].next_of
        net.uses[use].next_of = net.at[FREE_USE]
        net.uses[use].job = NONE
        net.at[FREE_USE] = use
        use = follows
    net.jobs[job].first_of = NONE
    net.jobs[job].rate = 0.0
    net.jobs[job].held_by = NONE
    return _settle(net, LOOKS * len(net.resources))


@compiled
def solve(net: Net, jobs: Ints) -> None:
    """Work out the rates of these jobs, all there are, from scratch."""
    for i in range(net.at[QUEUED]):
        net.resources[net.heap[i]].queued_at = NOT_QUEUED
    net.at[QUEUED] = 0
    net.at[UPDATE] += 1
    for job in jobs:
        _note(net, job, net.jobs[job].rate)
        net.jobs[job].rate = net.jobs[job].most
        net.jobs[job].held_by = NONE
    for resource in range(len(net.resources)):
        net.resources[resource].level = np.inf if net.resources[resource].gbps else 0.0
        if net.resources[resource].first_use != NONE:
            _more(net, resource, 0.0)
    _settle(net, ALL)


@compiled
def carried(net: Net, load: Floats, flows: Floats) -> None:
    """Write down what each resource carries, in Gbps and in flows."""
    for resource in range(len(net.resources)):
        next_use = net.resources[resource].first_use
        while next_use != NONE:
            use = net.uses[next_use]
            rate = net.jobs[use.job].rate
            load[resource] += _load(net, use, rate)
            flows[resource] += _flows_below(net, use, rate)
            next_use = use.next_on


@compiled
def _settle(net: Net, looks: int) -> bool:
    """Look at waiting resources, lowest first, until none is left; give up after so many looks."""
    while net.at[QUEUED]:
        if not looks:
            return False
        looks -= 1
        resource = net.heap[0]
        floor = net.resources[resource].key
        _unqueue(net, resource)
        if resource < net.links:
            _look_at_link(net, resource, floor)
        else:
            _look_at_switch(net, resource, floor)
    return True


@compiled
def _look_at_link(net: Net, link: int, floor: float) -> None:
    """Correct the level of a link and the rates of the jobs it holds, as far as that is due at this level."""
    old = net.resources[link].level
    new = _fill(net, link, floor)
    if _same(new, old):
        new = old
    if new > old:  # its jobs go on beyond the old level
        if floor < old:
            _queue(net, link, old)
            return
        net.resources[link].level = new
        use = net.resources[link].first_use
        while use != NONE:
            job = net.uses[use].job
            if net.jobs[job].held_by == link and net.jobs[job].rate != new:
                _raise(net, job, new)
            use = net.uses[use].next_on
    if new == np.inf:
        return
    if new > floor and not _same(new, floor):
        _queue(net, link, new)
        return
    net.resources[link].level = new
    use = net.resources[link].first_use
    while use != NONE:
        job = net.uses[use].job
        rate = net.jobs[job].rate
        if rate > new and (net.jobs[job].held_by == link or not _same(rate, new)):
            _hold(net, job, link, new)
        use = net.uses[use].next_on


@compiled
def _look_at_switch(net: Net, switch: int, floor: float) -> None:
    """Correct the level at which a switch has no memory left, as far as that is due at this level."""
    old = net.resources[switch].level
    new = _fill(net, switch, floor)
    if _same(new, old):
        return
    first = min(old, new)
    if floor < first and not _same(floor, first):
        _queue(net, switch, first)
        return
    net.resources[switch].level = new
    on_switch = net.resources[switch].first_use
    while on_switch != NONE:
        job = net.uses[on_switch].job
        if net.jobs[job].rate > first:
            use = net.jobs[job].first_of
            while use != NONE:
                if net.uses[use].root == switch or net.uses[use].leaf == switch:
                    if new < old:
                        _more(net, net.uses[use].resource, first)
                    else:
                        _less(net, net.uses[use].resource, first)
                use = net.uses[use].next_of
        on_switch = net.uses[on_switch].next_on


@compiled
def _raise(net: Net, job: int, rate: float) -> None:
    """Raise a job to a rate that its link now allows, or to all it would take."""
    level = net.jobs[job].rate
    _note(net, job, level)
    net.jobs[job].rate = min(rate, net.jobs[job].most)
    if net.jobs[job].most <= rate:
        net.jobs[job].held_by = NONE
    use = net.jobs[job].first_of
    while use != NONE:
        _more(net, net.uses[use].resource, level)
        use = net.uses[use].next_of


@compiled
def _hold(net: Net, job: int, link: int, rate: float) -> None:
    """Hold a job at the rate that a link allows."""
    _note(net, job, net.jobs[job].rate)
    net.jobs[job].rate = rate
    net.jobs[job].held_by = link
    use = net.jobs[job].first_of
    while use != NONE:
        _less(net, net.uses[use].resource, rate)
        use = net.uses[use].next_of


@compiled
def _more(net: Net, resource: int, level: float) -> None:
    """Have a resource looked at that is used more above a level: its own level may fall to just there."""
    own = net.resources[resource]
    if own.level < level and not _same(own.level, level):
        return
    if own.update == net.at[UPDATE]:
        level = max(level, own.sure)
    if own.queued_at == NOT_QUEUED or level < own.key:
        _queue(net, resource, level)


@compiled
def _less(net: Net, resource: int, level: float) -> None:
    """Have a resource looked at that is used less above a level: its own level may rise."""
    own = net.resources[resource].level
    if own == np.inf or (own < level and not _same(own, level)):
        return
    if net.resources[resource].queued_at == NOT_QUEUED:  # what waits comes early enough
        _queue(net, resource, max(own, level))


@compiled
def _same(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= SAME * min(a, b)


@compiled
def _fill(net: Net, resource: int, floor: float) -> float:
    """Return the level at which a resource is used up, not below a floor, as the rates are assumed now."""
    gbps = net.resources[resource].gbps
    if gbps == np.inf:
        return np.inf
    low, high, level = floor, np.inf, floor
    for _ in range(STEPS):
        load, above, steepest = _carries(net, resource, level)
        over = load - gbps
        if level == floor and over < 0.0 and steepest:
            net.resources[resource].sure = floor - (1.0 - SAME) * over / steepest
            net.resources[resource].update = net.at[UPDATE]
        if abs(over) <= FULL * gbps or (over > 0.0 and level == floor):
            return level
        if over < 0.0:
            low = level
            if above == 0.0 and high == np.inf:
                return np.inf
            guess = level - over / above if above else high
        else:
            high = level
            below = _flows_to(net, resource, level)
            guess = level - over / below if below else low
        if not low < guess < high:
            if guess == level:  # as close as numbers get
                return level
            guess = 0.5 * (low + high)
            if not low < guess < high:
                return high
        level = guess
    return level


@compiled
def _carries(net: Net, resource: int, level: float) -> tuple[float, float, float]:
    """Return what a resource carries when rates have risen to a level, and in how many flows they go on.

    Last come the flows of all jobs that may go on, if none of them found a switch with memory.
    """
    load = above = steepest = 0.0
    next_use = net.resources[resource].first_use
    while next_use != NONE:
        use = net.uses[next_use]
        job = net.jobs[use.job]
        rate = job.most if job.held_by == resource else job.rate
        if rate <= level:
            load += _load(net, use, rate)
        else:
            load += _load(net, use, level)
            above += _flows_above(net, use, level)
        if rate > level or _same(rate, level):  # at just this level it may be let go by another link
            steepest += max(use.merged, use.few, use.many)
        next_use = use.next_on
    return load, above, steepest


@compiled
def _flows_to(net: Net, resource: int, level: float) -> float:
    """Return in how many flows the rates of a resource's jobs came to a level."""
    below = 0.0
    next_use = net.resources[resource].first_use
    while next_use != NONE:
        use = net.uses[next_use]
        job = net.jobs[use.job]
        rate = job.most if job.held_by == resource else job.rate
        if level <= rate:
            below += _flows_below(net, use, level)
        next_use = use.next_on
    return below


@compiled
def _load(net: Net, use: Any, rate: float) -> float:
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


@compiled
def _flows_above(net: Net, use: Any, rate: float) -> float:
    """Return the flows in which a use goes on from a rate."""
    if use.root != NONE and rate < net.resources[use.root].level:
        return float(use.merged)
    return float(use.few if use.leaf != NONE and rate < net.resources[use.leaf].level else use.many)


@compiled
def _flows_below(net: Net, use: Any, rate: float) -> float:
    """Return the flows in which a use came to a rate."""
    if use.root != NONE and _not_above(rate, net.resources[use.root].level):
        return float(use.merged)
    few = use.leaf != NONE and _not_above(rate, net.resources[use.leaf].level)
    return float(use.few if few else use.many)


@compiled
def _not_above(a: float, b: float) -> bool:
    return a <= b or _same(a, b)


@compiled
def _note(net: Net, job: int, rate: float) -> None:
    """Note that a job's rate changes."""
    if not net.jobs[job].is_changed:
        net.jobs[job].is_changed = 1
        net.jobs[job].was = rate
        net.changed[net.at[CHANGED]] = job
        net.at[CHANGED] += 1


@compiled
def forget_changes(net: Net) -> None:
    """Begin to note changes of rates anew."""
    for i in range(net.at[CHANGED]):
        net.jobs[net.changed[i]].is_changed = 0
    net.at[CHANGED] = 0
    net.at[UPDATE] += 1


@compiled
def _queue(net: Net, resource: int, key: float) -> None:
    """Put a resource on the heap, or further to its front."""
    place = net.resources[resource].queued_at
    if place == NOT_QUEUED:
        place = net.at[QUEUED]
        net.at[QUEUED] += 1
    net.resources[resource].key = key
    while place:
        parent = (place - 1) // 2
        above = net.heap[parent]
        if net.resources[above].key <= key:
            break
        _seat(net, above, place)
        place = parent
    _seat(net, resource, place)


@compiled
def _unqueue(net: Net, resource: int) -> None:
    """Take the first resource off the heap."""
    net.resources[resource].queued_at = NOT_QUEUED
    net.at[QUEUED] -= 1
    size = net.at[QUEUED]
    if not size:
        return
    moved = net.heap[size]
    place, child = 0, 1
    while child < size:
        if child + 1 < size and net.resources[net.heap[child + 1]].key < net.resources[net.heap[child]].key:
            child += 1
        if net.resources[moved].key <= net.resources[net.heap[child]].key:
            break
        _seat(net, net.heap[child], place)
        place, child = child, 2 * child + 1
    _seat(net, moved, place)


@compiled
def _seat(net: Net, resource: int, place: int) -> None:
    net.heap[place] = resource
    net.resources[resource].queued_at = place
