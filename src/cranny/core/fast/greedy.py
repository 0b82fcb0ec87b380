"""Placers that take one machine after the other, each by the GPUs that are still to be found: compiled."""

from cranny.core.fast.bit_sets import join, leave, lowest_with
from cranny.core.fast.communication_cost import weigh
from cranny.core.fast.placement_arrays import PARTS, WAIT, Ask, Room
from cranny.core.jit import inside
from cranny.core.protocol import Drafter


def greedy(*, fewest: bool) -> Drafter:
    """Return the drafter of a placer whose first choices are all that it goes by, also for the rest of a job.

    With `fewest`, a job that takes more machines than it would in an empty cluster must wait.
    """
    return Drafter(draft, float(fewest))


@inside
def draft(room: Room, ask: Ask) -> int:
    """Take the lowest machine with the first of the wanted numbers of GPUs free, again and again."""
    machines, found = room.machines, room.draft
    size = len(machines.members) - 1
    most = (ask.gpus + size - 1) // size if room.setting else ask.gpus
    placed = parts = 0
    while placed < ask.gpus and parts < most:
        left = ask.gpus - placed
        free = _wanted(room, min(left, size))
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
    if placed < ask.gpus:
        return WAIT
    found.at[PARTS] = parts
    weigh(room, ask)
    return parts


@inside
def _wanted(room: Room, left: int) -> int:
    """Return the first of the wanted numbers of free GPUs that some machine has, or 0."""
    for free in room.choices[left]:
        if free == 0 or room.machines.members[free]:
            return int(free)
    return 0
