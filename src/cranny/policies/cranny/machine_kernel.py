"""Machines of one job, compiled: what using a machine costs, the cheapest set of machines, and when one is free.

The clusters are arrays: `release_s[m, k]` is when GPU k of machine m is expected to be free, -inf if it is and inf
where there is no such GPU or the machine takes no jobs. Times are in seconds, costs in GPU-seconds.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cranny.core.jit import compiled, inlined, inside

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NONE = -1
# Machines that are taken first: of equal ones the cheapest; in use; idle; with the fewest jobs that use its links.
ANY, IN_USE, IDLE, QUIET = 0, 1, 2, 3
KINDS = (ANY, IN_USE, IDLE, QUIET)
# Rows of all whole numbers of a cluster in one array, (rows, machines + 1); see `ClusterArrays`.
FREE, SIZE, RACK, BY_RACK, ON_LINKS, RACK_FREE, RACK_START = range(7)


class ClusterArrays(NamedTuple):
    """Machines as a job sees them, (machines,) each; machines of a rack are together in `by_rack`."""

    free: Ints  # GPUs that the job may have
    size: Ints
    price: Floats  # GPU-seconds that each second of its use costs
    until_s: Floats  # when the last of its jobs is expected to end; -inf if it is idle
    rack: Ints
    by_rack: Ints
    rack_start: Ints  # (racks + 1,) where the machines of a rack begin in `by_rack`
    rack_free: Ints  # (racks,)
    on_links: Ints  # its jobs that are on other machines as well
    waste: Floats  # (largest size + 1,) GPUs of so many free ones that jobs like those seen leave idle


class MachineSet(NamedTuple):
    """Room for a set of machines, and how many GPUs are taken of each."""

    machines: Ints
    gpus: Ints
    having: Ints  # (largest size + 1,) room to count machines by their free GPUs


@inlined
def machine_terms(at: ClusterArrays, machine: int, gpus: int, now_s: float, seconds: float) -> tuple[float, float]:
    """Return what longer use of a machine costs that gives `gpus` GPUs for some time, and what worse holes do."""
    free = at.free[machine]
    longer_s = now_s + seconds - max(now_s, at.until_s[machine])
    return at.price[machine] * max(0.0, longer_s), (at.waste[free - gpus] - at.waste[free]) * seconds


@inlined
def machine_cost(at: ClusterArrays, machine: int, gpus: int, now_s: float, seconds: float) -> float:
    """Return what `gpus` GPUs of a machine cost for some time: longer use of the machine, and worse holes."""
    use, holes = machine_terms(at, machine, gpus, now_s, seconds)
    return float(use + holes)


@inlined
def _better(at: ClusterArrays, machine: int, cost: float, best: int, least: float) -> bool:
    """Say whether a machine is cheaper; of equals, one that leaves the largest later job more room."""
    if best == NONE or cost != least:
        return best == NONE or cost < least
    if at.free[machine] != at.free[best]:
        return bool(at.free[machine] < at.free[best])
    return bool(at.rack_free[at.rack[machine]] < at.rack_free[at.rack[best]])


@compiled
def cheapest_machines(
    at: ClusterArrays, gpus: int, now_s: float, seconds: float
) -> tuple[int, float, float, int, float, float]:
    """Return the machine on which a job costs least and the next best; NONE if none has room for all of it.

    Each with its two terms: what its longer use costs, and what worse holes do.
    """
    return _cheapest(at, gpus, now_s, seconds)


@compiled
def cheapest_of_all(
    ints: Ints, floats: Floats, gpus: int, now_s: float, seconds: float
) -> tuple[int, float, float, int, float, float]:
    """Return the same of all machines: each array that Python hands over costs as much as scanning 50 machines."""
    machines = ints.shape[1] - 1
    at = ClusterArrays(
        ints[FREE, :machines],
        ints[SIZE, :machines],
        floats[:machines],
        floats[machines : 2 * machines],
        ints[RACK, :machines],
        ints[BY_RACK, :machines],
        ints[RACK_START],
        ints[RACK_FREE],
        ints[ON_LINKS, :machines],
        floats[2 * machines :],
    )
    return _cheapest(at, gpus, now_s, seconds)


@inlined
def _cheapest(
    at: ClusterArrays, gpus: int, now_s: float, seconds: float
) -> tuple[int, float, float, int, float, float]:
    best, least, second, more = NONE, 0.0, NONE, 0.0
    for machine in range(len(at.free)):
        if at.free[machine] >= gpus:
            cost = machine_cost(at, machine, gpus, now_s, seconds)
            if _better(at, machine, cost, best, least):
                second, more = best, least
                best, least = machine, cost
            elif _better(at, machine, cost, second, more):
                second, more = machine, cost
    use, holes, second_use, second_holes = 0.0, 0.0, 0.0, 0.0
    if best != NONE:
        use, holes = machine_terms(at, best, gpus, now_s, seconds)
    if second != NONE:
        second_use, second_holes = machine_terms(at, second, gpus, now_s, seconds)
    return best, use, holes, second, second_use, second_holes


@inlined
def _of_kind(at: ClusterArrays, machine: int, kind: int) -> bool:
    """Say whether a machine may be taken if only those IN_USE are, or only IDLE ones."""
    if kind == IN_USE:
        return bool(at.free[machine] < at.size[machine])
    return bool(kind != IDLE or at.free[machine] == at.size[machine])


@inlined
def _preferred(at: ClusterArrays, kind: int, machine: int, cost: float, best: int, least: float) -> bool:
    """Say whether a machine is taken before another one that holds the rest as well, or has as many free."""
    if kind == QUIET and best != NONE and at.on_links[machine] != at.on_links[best]:
        return bool(at.on_links[machine] < at.on_links[best])
    return _better(at, machine, cost, best, least)


@inside
def _fill(
    at: ClusterArrays,
    first: int,
    past: int,
    kind: int,
    gpus: int,
    now_s: float,
    seconds: float,
    into: MachineSet,
    used: int,
) -> tuple[int, int]:
    """Take machines of `by_rack[first:past]`: the cheapest that holds the rest, else the one with the most free.

    If only those IN_USE are to be taken, or only IDLE ones, the others are passed over. Returns how many machines
    there are then, and the GPUs missing.
    """
    while gpus > 0:
        best, least, fits = NONE, 0.0, False
        for place in range(first, past):
            machine = at.by_rack[place]
            free = at.free[machine]
            if free == 0 or not _of_kind(at, machine, kind):
                continue
            holds = free >= gpus
            if fits and not holds:
                continue
            if not holds and best != NONE and free < at.free[best]:
                continue
            taken = False
            for other in range(used):
                taken = taken or into.machines[other] == machine
            if taken:
                continue
            cost = machine_cost(at, machine, min(gpus, free), now_s, seconds)
            more = holds != fits or (not holds and free != at.free[best])
            if best == NONE or more or _preferred(at, kind, machine, cost, best, least):
                best, least, fits = machine, cost, holds
        if best == NONE:
            break
        into.machines[used] = best
        into.gpus[used] = min(gpus, at.free[best])
        gpus -= into.gpus[used]
        used += 1
    return used, gpus


@inside
def _take_whole(
    at: ClusterArrays, kind: int, free: int, most: int, now_s: float, seconds: float, into: MachineSet, used: int
) -> None:
    """Take the `most` preferred of all machines with so many free GPUs, in the order in which `_fill` would."""
    found = 0
    for place in range(len(at.by_rack)):
        machine = at.by_rack[place]
        if at.free[machine] != free or not _of_kind(at, machine, kind):
            continue
        cost = machine_cost(at, machine, free, now_s, seconds)
        rank = found
        while rank > 0:
            other = into.machines[used + rank - 1]
            if not _preferred(at, kind, machine, cost, other, machine_cost(at, other, free, now_s, seconds)):
                break
            if rank < most:
                into.machines[used + rank] = other
            rank -= 1
        if rank < most:
            into.machines[used + rank] = machine
        found = min(found + 1, most)
    into.gpus[used : used + most] = free


@inside
def _fill_all(
    at: ClusterArrays, kind: int, gpus: int, now_s: float, seconds: float, into: MachineSet, used: int
) -> tuple[int, int]:
    """Take machines of all racks as `_fill` does, all that have the same number of free GPUs at a time.

    On a large cluster that is faster than to look for one after the other.
    """
    having = into.having
    having[:] = 0
    for machine in range(len(at.free)):
        if _of_kind(at, machine, kind):
            having[at.free[machine]] += 1
    for free in range(len(having) - 1, 0, -1):
        whole = min(having[free], (gpus - 1) // free)  # as long as one would not hold the rest
        if whole:
            _take_whole(at, kind, free, whole, now_s, seconds, into, used)
            used += whole
            gpus -= whole * free
        if whole < having[free]:  # one holds the rest
            return _fill(at, 0, len(at.by_rack), kind, gpus, now_s, seconds, into, used)
    return used, gpus


@inside
def _cost(at: ClusterArrays, into: MachineSet, used: int, now_s: float, seconds: float) -> float:
    cost = 0.0
    for place in range(used):
        cost += machine_cost(at, into.machines[place], into.gpus[place], now_s, seconds)
    return cost


@compiled
def in_one_rack(
    at: ClusterArrays, kind: int, gpus: int, now_s: float, seconds: float, best: MachineSet, trial: MachineSet
) -> int:
    """Find the fewest machines within one rack, and of these the cheapest; 0 if no rack has room.

    Those IN_USE are taken before idle ones if that is the `kind`. Returns how many machines there are in `best`.
    """
    found, least, tightest = 0, 0.0, 0
    for rack in range(len(at.rack_free)):
        if at.rack_free[rack] < gpus:
            continue
        first, past = at.rack_start[rack], at.rack_start[rack + 1]
        used, missing = _fill(at, first, past, kind, gpus, now_s, seconds, trial, 0)
        if missing:
            used, missing = _fill(at, first, past, ANY, missing, now_s, seconds, trial, used)
        cost = _cost(at, trial, used, now_s, seconds)
        better = found == 0 or used < found
        if used == found:
            better = cost < least or (cost == least and at.rack_free[rack] < tightest)
        if better:
            found, least, tightest = used, cost, at.rack_free[rack]
            for place in range(used):
                best.machines[place] = trial.machines[place]
                best.gpus[place] = trial.gpus[place]
    return found


@compiled
def over_racks(at: ClusterArrays, gpus: int, now_s: float, seconds: float, into: MachineSet, taken: Ints) -> int:
    """Take racks with the most free GPUs, and for the rest the tightest that holds it; `taken` is (racks,)."""
    taken[:] = 0
    used = 0
    while gpus > 0:
        best = NONE
        for rack in range(len(at.rack_free)):
            free = at.rack_free[rack]
            if taken[rack] or not free:
                continue
            if best == NONE:
                best = rack
            elif free >= gpus:
                if at.rack_free[best] < gpus or free < at.rack_free[best]:
                    best = rack
            elif free > at.rack_free[best]:
                best = rack
        if best == NONE:
            return 0
        taken[best] = 1
        part = min(gpus, at.rack_free[best])
        used, missing = _fill(
            at, at.rack_start[best], at.rack_start[best + 1], ANY, part, now_s, seconds, into, used
        )
        gpus -= part - missing
    return used


@compiled
def of_racks(at: ClusterArrays, kind: int, shares: Ints, now_s: float, seconds: float, into: MachineSet) -> int:
    """Take so many GPUs of each rack, which has them; those of a kind first. `shares` is (racks,)."""
    used = 0
    for rack in range(len(shares)):
        if shares[rack] > 0:
            first, past = at.rack_start[rack], at.rack_start[rack + 1]
            used, missing = _fill(at, first, past, kind, shares[rack], now_s, seconds, into, used)
            if missing:
                used, missing = _fill(at, first, past, ANY, missing, now_s, seconds, into, used)
    return used


@compiled
def anywhere(at: ClusterArrays, kind: int, gpus: int, now_s: float, seconds: float, into: MachineSet) -> int:
    """Take machines of all racks as of one, those of a kind first."""
    used, missing = _fill_all(at, kind, gpus, now_s, seconds, into, 0)
    if missing and kind in (IN_USE, IDLE):  # all of the kind are taken
        used, missing = _fill_all(at, IDLE if kind == IN_USE else IN_USE, missing, now_s, seconds, into, used)
    return 0 if missing else used


@compiled
def first_ready(release_s: Floats, gpus: int, slots: Floats) -> tuple[int, float]:
    """Return the machine that first has so many GPUs free, and when; `slots` is room for those of one machine."""
    best, ready_s = NONE, np.inf
    width = release_s.shape[1]
    if gpus > width:
        return best, ready_s
    for machine in range(len(release_s)):
        filled = 0
        for k in range(width):  # the earliest `gpus` of its times, in order
            at_s = release_s[machine, k]
            if filled == gpus and at_s >= slots[gpus - 1]:
                continue
            place = min(filled, gpus - 1)
            while place > 0 and slots[place - 1] > at_s:
                slots[place] = slots[place - 1]
                place -= 1
            slots[place] = at_s
            filled = min(filled + 1, gpus)
        if slots[gpus - 1] < ready_s:
            best, ready_s = machine, slots[gpus - 1]
    return best, ready_s


@compiled
def first_rack_ready(
    release_s: Floats,
    size: Ints,
    by_rack: Ints,
    rack_start: Ints,
    gpus: int,
    due_s: float,
    best: Ints,
    order: Ints,
) -> tuple[int, float]:
    """Find the fewest machines of a rack that hold a job, in the rack where they are free first, before `due_s`.

    All but the last give all their GPUs, and the last what is missing. `release_s` is (machines, GPUs), in order;
    `order` is room for machines. Returns how many machines there are in `best`, and when they are free.
    """
    found, first_s = 0, due_s
    for rack in range(len(rack_start) - 1):
        count = 0  # machines of the rack, in the order in which they are wholly free
        for place in range(rack_start[rack], rack_start[rack + 1]):
            machine = by_rack[place]
            whole_s = release_s[machine, size[machine] - 1]
            rank = count
            while rank > 0 and release_s[order[rank - 1], size[order[rank - 1]] - 1] > whole_s:
                order[rank] = order[rank - 1]
                rank -= 1
            order[rank] = machine
            count += 1
        used, rest, ready_s = 0, gpus, -np.inf
        while used < count and size[order[used]] <= rest:
            rest -= size[order[used]]
            ready_s = max(ready_s, release_s[order[used], size[order[used]] - 1])
            used += 1
        if rest > 0:
            if used == count:
                continue
            last = used
            for rank in range(used, count):
                if release_s[order[rank], rest - 1] < release_s[order[last], rest - 1]:
                    last = rank
            order[used] = order[last]
            ready_s = max(ready_s, release_s[order[used], rest - 1])
            used += 1
        if ready_s < first_s:
            found, first_s = used, ready_s
            for rank in range(used):
                best[rank] = order[rank]
    return found, first_s


@compiled
def set_releases(
    ints: Ints, floats: Floats, width: int, machine: int, gpus: int, end_s: float, taken: int
) -> None:
    """Set when some GPUs of a machine, as bits, are expected to be free, and note that some were `taken`.

    `floats` has price and end of use of each machine, the waste, and when GPUs are free, `width` for each machine.
    """
    machines = ints.shape[1] - 1
    first = 2 * machines + width + 1 + machine * width
    bits, until_s = np.uint64(gpus), -np.inf
    for k in range(ints[SIZE, machine]):
        if bits >> np.uint64(k) & np.uint64(1):
            floats[first + k] = end_s
        until_s = max(until_s, floats[first + k])
    floats[machines + machine] = until_s
    ints[FREE, machine] -= taken
    ints[RACK_FREE, ints[RACK, machine]] -= taken
