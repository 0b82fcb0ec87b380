"""All sets of machines that one job could have, compiled: found in one call, and priced in another.

Each array that Python hands over costs as much as scanning 50 machines, so a call for each set takes longer than
what it does.
"""

import numpy as np

from cranny.core.jit import compiled, inside
from cranny.model.arrays import Floats, Ints
from cranny.policies.cranny.machine_kernel import (
    KINDS,
    ClusterArrays,
    MachineSet,
    anywhere,
    in_one_rack,
    machine_cost,
    machine_terms,
    over_racks,
)

MOST_SETS = 2 * len(KINDS) + 1
# Where sets may be: anywhere, in one rack as well, in one rack if one has room, in one rack alone.
ANYWHERE, RACKS_TOO, RACK_FIRST, RACK_ONLY = range(4)


@compiled
def candidate_sets(
    at: ClusterArrays,
    where: int,
    gpus: int,
    now_s: float,
    seconds: float,
    trial: MachineSet,
    racks: Ints,
    found: Ints,
    used: Ints,
) -> int:
    """Find sets of machines that hold a job; return how many.

    Set i is `found[i, 0, :used[i]]`, with `found[i, 1, :used[i]]` GPUs of each machine. `racks`, (racks,), and
    `trial` are room to compute in.
    """
    count = 0
    if where != ANYWHERE:
        for kind in KINDS:
            used[count] = in_one_rack(at, kind, gpus, now_s, seconds, _set(found, count, trial), trial)
            count += used[count] > 0
        if where == RACK_ONLY or (where == RACK_FIRST and count):
            return count
        if not count:
            used[count] = over_racks(at, gpus, now_s, seconds, _set(found, count, trial), racks)
            count += used[count] > 0
    for kind in KINDS:
        used[count] = anywhere(at, kind, gpus, now_s, seconds, _set(found, count, trial))
        count += used[count] > 0
    return count


@inside
def _set(found: Ints, number: int, room: MachineSet) -> MachineSet:
    """Return one of the sets, to be filled."""
    return MachineSet(found[number, 0], found[number, 1], room.having)


@compiled
def set_terms(at: ClusterArrays, chosen: Ints, past: Ints, now_s: float, seconds: Floats, terms: Floats) -> None:
    """Write what sets of machines cost in all, and of that: idle machines, longer use, and holes, (sets, 4).

    `chosen`, (machines of all sets, 2), are machines and the GPUs taken of each; those of a set end before
    `past[i]`, and it is held for `seconds[i]`.
    """
    first = 0
    for number in range(len(past)):
        cost, opened, longer, worse = 0.0, 0.0, 0.0, 0.0
        for place in range(first, past[number]):
            machine, gpus = chosen[place, 0], chosen[place, 1]
            cost += machine_cost(at, machine, gpus, now_s, seconds[number])
            use, holes = machine_terms(at, machine, gpus, now_s, seconds[number])
            if at.until_s[machine] == -np.inf:
                opened += use
            else:
                longer += use
            worse += holes
        terms[number, 0], terms[number, 1], terms[number, 2], terms[number, 3] = cost, opened, longer, worse
        first = past[number]
