"""Compiled placers that take one machine after the other, each by the GPUs that are still missing."""

from cranny.core.fast.bit_sets import join, leave, lowest_with
from cranny.core.fast.communication_cost import communication_cost
from cranny.core.fast.placement_arrays import PARTS, WAIT, PlacementArrays, PlacementRequest
from cranny.core.jit import inside
from cranny.core.protocol import Drafter


def greedy(*, fewest: bool) -> Drafter:
    """Return the drafter of a placer that goes by its first choices alone, also for the rest of a job.

    With `fewest`, a job that takes more machines than it would in an empty cluster must wait.
    """
    return Drafter(draft, float(fewest), refuses_by_size=True)


@inside
def draft(arrays: PlacementArrays, request: PlacementRequest) -> int:
    """Take the lowest machine with the first of the wanted numbers of GPUs free, again and again."""
    machines, found = arrays.machines, arrays.draft
    size = len(machines.members) - 1
    most = (request.gpus + size - 1) // size if arrays.setting else request.gpus
    placed = parts = 0
    while placed < request.gpus and parts < most:
        left = request.gpus - placed
        free = _wanted(arrays, min(left, size))
        if not free:
            break
        machine = lowest_with(machines, free)
        leave(machines, free, machine)
        found.machine[parts] = machine
        found.gpus[parts] = min(free, left)
        for rank in range(placed, placed + found.gpus[parts]):
            found.part[rank] = parts
        placed += found.gpus[parts]
        parts += 1
    for part in range(parts):
        join(machines, machines.free[found.machine[part]], found.machine[part])
    if placed < request.gpus:
        return WAIT
    found.at[PARTS] = parts
    communication_cost(arrays, request)
    return parts


@inside
def _wanted(arrays: PlacementArrays, left: int) -> int:
    """Return the first of the wanted numbers of free GPUs that some machine has, or 0."""
    for free in arrays.choices[left]:
        if free == 0 or arrays.machines.members[free]:
            return int(free)
    return 0
