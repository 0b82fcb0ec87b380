"""Water-filling, compiled: from scratch, and after a job came or went only where that changes something.

The level of a resource is the rate at which the jobs that still rise use it up; infinite if they never do. A full
link holds its jobs at its level; a switch without memory only makes them use more of their links. So rates and
levels follow from each other, and whatever happens at a level follows from lower levels alone.

That gives one method for both tasks. Some rates and levels are assumed, and resources whose level might be wrong
wait in a heap. The lowest comes first: its level is computed from the rates assumed, what changes is written
down, and resources that change above this level join the heap. When it is empty everything fits together.

What a resource carries near its level is a line, and a change of a rate edits the lines of the links that the job
uses. So the level nearly always follows at once, and most of these links need not be looked at.
"""

import numpy as np

from cranny.core.flows import Flows
from cranny.core.jit import compiled, inlined
from cranny.model.arrays import Floats, Ints
from cranny.network.steady.link_arrays import CHANGED, FREE_USE, NONE, NOT_DRAWN, NOT_QUEUED, QUEUED, RateArrays
from cranny.network.steady.piecewise import bound, count, crossing, flows_below, level_of, load_of, recount, same

LOOKS = 20  # at each resource, in the mean, before an update gives up; a guard that no case we know of needs
ALL = -1  # looks, however many


@compiled
def put(net: RateArrays, job: int, most: float, flows: Flows) -> None:
    """Add a job at the most that it would take, without updating rates."""
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
def add(net: RateArrays, job: int, most: float, flows: Flows) -> bool:
    """Add a job and update all rates; say whether that was reasonable work."""
    forget_changes(net)
    put(net, job, most, flows)
    _note(net, job, 0.0)
    use = net.jobs[job].first_of
    while use != NONE:
        count(net, use, most, 1, 1)
        _recheck(net, net.uses[use].resource, 0.0)
        use = net.uses[use].next_of
    return _settle(net, LOOKS * len(net.resources))


@compiled
def remove(net: RateArrays, job: int) -> bool:
    """Remove a job and update all rates; say whether that was reasonable work."""
    forget_changes(net)
    use = net.jobs[job].first_of
    while use != NONE:
        resource, before, after = net.uses[use].resource, net.uses[use].last_on, net.uses[use].next_on
        count(net, use, bound(net, job, resource), net.jobs[job].held_by != resource, -1)
        if before == NONE:
            net.resources[resource].first_use = after
        else:
            net.uses[before].next_on = after
        if after != NONE:
            net.uses[after].last_on = before
        _recheck(net, resource, 0.0)
        follows = net.uses[use].next_of
        net.uses[use].next_of = net.at[FREE_USE]
        net.uses[use].job = NONE
        net.at[FREE_USE] = use
        use = follows
    _release(net, job)
    net.jobs[job].first_of = NONE
    net.jobs[job].rate = 0.0
    return _settle(net, LOOKS * len(net.resources))


@compiled
def attempt(
    net: RateArrays, job: int, most: float, flows: Flows, others: Ints, rates: Floats
) -> tuple[int, float, bool]:
    """Add a job and remove it again; write which other jobs' rates it changed meanwhile, and to what.

    Returns how many these are, the job's own rate, and whether removing it was reasonable work. NONE if adding it
    was not, and then it is still there.
    """
    if not add(net, job, most, flows):
        return NONE, 0.0, False
    count, own = 0, net.jobs[job].rate
    for i in range(net.at[CHANGED]):
        other = net.changed[i]
        if other != job and net.jobs[other].rate != net.jobs[other].was:
            others[count], rates[count] = other, net.jobs[other].rate
            count += 1
    return count, own, remove(net, job)


@compiled
def solve(net: RateArrays, jobs: Ints) -> None:
    """Compute the rates of these jobs, all there are, from scratch."""
    net.at[QUEUED] = 0
    for job in jobs:
        _note(net, job, net.jobs[job].rate)
        net.jobs[job].rate = net.jobs[job].most
        net.jobs[job].held_by = NONE
    for resource in range(len(net.resources)):
        own = net.resources[resource]
        own.queued_at = NOT_QUEUED
        own.first_held = NONE
        own.edits = NOT_DRAWN
        own.level = np.inf if own.gbps else 0.0
    for resource in range(len(net.resources)):
        if net.resources[resource].first_use != NONE and net.resources[resource].queued_at == NOT_QUEUED:
            _update(net, resource, 0.0)
    _settle(net, ALL)


@compiled
def carried(net: RateArrays, load: Floats, flows: Floats) -> None:
    """Write down what each resource carries, in Gbps and in flows."""
    for resource in range(len(net.resources)):
        next_use = net.resources[resource].first_use
        while next_use != NONE:
            use = net.uses[next_use]
            rate = net.jobs[use.job].rate
            load[resource] += load_of(net, use, rate)
            flows[resource] += flows_below(net, use, rate)
            next_use = use.next_on


@compiled
def _settle(net: RateArrays, looks: int) -> bool:
    """Update queued resources, lowest first, until none is left; give up after so many updates."""
    while net.at[QUEUED]:
        if not looks:
            return False
        looks -= 1
        resource, floor = net.heap[0].resource, net.heap[0].key
        _unqueue(net, resource)
        _update(net, resource, floor)
    return True


@inlined
def _update(net: RateArrays, resource: int, floor: float) -> None:
    """Update a resource that is not in the heap."""
    if resource < net.links:
        _update_link(net, resource, floor)
    else:
        _update_switch(net, resource, floor)


@compiled
def _update_link(net: RateArrays, link: int, floor: float) -> None:
    """Correct the level of a link and the rates of the jobs it holds, as far as that is due at this level."""
    own = net.resources[link]
    old = own.level
    new = level_of(net, link, floor)
    if same(new, old):
        if not own.loose:
            return
        new = old
    due = min(old, new)
    if floor < due and not same(floor, due):
        _queue(net, link, due)
        return
    own.level = new
    if new != old:
        job = own.first_held
        while job != NONE:
            follows = net.jobs[job].next_held
            most = net.jobs[job].most
            _set(net, job, min(new, most), NONE if most <= new else link)
            job = follows
    if own.edits < NOT_DRAWN and not own.loose:
        return
    if new > old:  # others come later
        _queue(net, link, new)
        return
    use = own.first_use
    while use != NONE:
        job = net.uses[use].job
        rate = net.jobs[job].rate
        if rate > new and not same(rate, new):
            _set(net, job, new, link)
        use = net.uses[use].next_on


@compiled
def _update_switch(net: RateArrays, switch: int, floor: float) -> None:
    """Correct the level at which a switch has no memory left, as far as that is due at this level."""
    old = net.resources[switch].level
    new = level_of(net, switch, floor)
    if same(new, old):
        return
    due = min(old, new)
    if floor < due and not same(floor, due):
        _queue(net, switch, due)
        return
    _count_again(net, switch, new)
    on_switch = net.resources[switch].first_use
    while on_switch != NONE:
        job = net.uses[on_switch].job
        if net.jobs[job].rate > due:
            use = net.jobs[job].first_of
            while use != NONE:
                if net.uses[use].root == switch or net.uses[use].leaf == switch:
                    _recheck(net, net.uses[use].resource, due)
                use = net.uses[use].next_of
        on_switch = net.uses[on_switch].next_on


@compiled
def _count_again(net: RateArrays, switch: int, new: float) -> None:
    """Set the level of a switch, and change the lines of all uses that go on beyond it."""
    own = net.resources[switch]
    old = own.level
    on_switch = own.first_use
    while on_switch != NONE:
        job = net.uses[on_switch].job
        use = net.jobs[job].first_of
        while use != NONE:
            if net.uses[use].root == switch or net.uses[use].leaf == switch:
                resource = net.uses[use].resource
                rate = bound(net, job, resource)
                if rate > min(old, new):
                    loose = net.jobs[job].held_by != resource
                    own.level = old
                    count(net, use, rate, loose, -1)
                    own.level = new
                    count(net, use, rate, loose, 1)
            use = net.uses[use].next_of
        on_switch = net.uses[on_switch].next_on
    own.level = new


@compiled
def _set(net: RateArrays, job: int, rate: float, link: int) -> None:
    """Set a job's rate, and the link that holds it there."""
    before, held_by = net.jobs[job].rate, net.jobs[job].held_by
    most = net.jobs[job].most
    _note(net, job, before)
    net.jobs[job].rate = rate
    if held_by != link:
        _release(net, job)
        if link != NONE:  # it goes to the front of those that the link holds
            after = net.resources[link].first_held
            net.jobs[job].held_by, net.jobs[job].next_held, net.jobs[job].last_held = link, after, NONE
            net.resources[link].first_held = job
            if after != NONE:
                net.jobs[after].last_held = job
    level = min(before, rate)
    use = net.jobs[job].first_of
    while use != NONE:
        resource = net.uses[use].resource
        held, hold = held_by == resource, link == resource
        if held != hold:
            count(net, use, most if held else before, not held, -1)
            count(net, use, most if hold else rate, not hold, 1)
        elif not hold:
            recount(net, use, before, rate)
        _recheck(net, resource, level)
        use = net.uses[use].next_of


@compiled
def _release(net: RateArrays, job: int) -> None:
    """Take a job out of those that its link holds, if one does."""
    link, before, after = net.jobs[job].held_by, net.jobs[job].last_held, net.jobs[job].next_held
    if link == NONE:
        return
    net.jobs[job].held_by = NONE
    if before == NONE:
        net.resources[link].first_held = after
    else:
        net.jobs[before].next_held = after
    if after != NONE:
        net.jobs[after].last_held = before


@inlined
def _recheck(net: RateArrays, resource: int, level: float) -> None:
    """Queue a resource whose use changed above a level, unless its own level is sure to stay."""
    own = net.resources[resource]
    if own.gbps == np.inf or (own.level < level and not same(own.level, level)):
        return
    due = level
    if own.edits < NOT_DRAWN:
        new = crossing(net, resource)
        if new >= own.low:
            if same(new, own.level) and (new == np.inf or resource >= net.links or not own.loose):
                return
            due = max(level, min(new, own.level, own.high))
    if own.queued_at == NOT_QUEUED or due < net.heap[own.queued_at].key:
        _queue(net, resource, due)


@inlined
def _note(net: RateArrays, job: int, rate: float) -> None:
    """Note that a job's rate changes."""
    if not net.jobs[job].is_changed:
        net.jobs[job].is_changed = 1
        net.jobs[job].was = rate
        net.changed[net.at[CHANGED]] = job
        net.at[CHANGED] += 1


@compiled
def forget_changes(net: RateArrays) -> None:
    """Begin to note changes of rates anew."""
    for i in range(net.at[CHANGED]):
        net.jobs[net.changed[i]].is_changed = 0
    net.at[CHANGED] = 0


@compiled
def _queue(net: RateArrays, resource: int, key: float) -> None:
    """Put a resource on the heap, or further to its front."""
    place = net.resources[resource].queued_at
    if place == NOT_QUEUED:
        place = net.at[QUEUED]
        net.at[QUEUED] += 1
    while place:
        parent = (place - 1) // 2
        if net.heap[parent].key <= key:
            break
        _set_heap_entry(net, net.heap[parent].resource, net.heap[parent].key, place)
        place = parent
    _set_heap_entry(net, resource, key, place)


@compiled
def _unqueue(net: RateArrays, resource: int) -> None:
    """Take the first resource off the heap."""
    net.resources[resource].queued_at = NOT_QUEUED
    net.at[QUEUED] -= 1
    size = net.at[QUEUED]
    if not size:
        return
    moved, key = net.heap[size].resource, net.heap[size].key
    place, child = 0, 1
    while child < size:
        if child + 1 < size and net.heap[child + 1].key < net.heap[child].key:
            child += 1
        if key <= net.heap[child].key:
            break
        _set_heap_entry(net, net.heap[child].resource, net.heap[child].key, place)
        place, child = child, 2 * child + 1
    _set_heap_entry(net, moved, key, place)


@inlined
def _set_heap_entry(net: RateArrays, resource: int, key: float, place: int) -> None:
    net.heap[place].resource = resource
    net.heap[place].key = key
    net.resources[resource].queued_at = place
