"""Which of some things to take, so that they fit and are worth most."""

from collections.abc import Sequence

import numpy as np


def most_valuable(sizes: Sequence[int], values: Sequence[float], room: int) -> list[int]:
    """Return the indices, rising, of things that are worth most together and need no more than `room`.

    Among equally good choices, earlier things are preferred. Takes time in proportion to things times room.
    """
    if sum(sizes) <= room:
        return list(range(len(sizes)))
    best = np.zeros(room + 1)  # worth of the things from here on, by room
    taken = np.zeros((len(sizes), room + 1), dtype=np.bool_)
    for thing in range(len(sizes) - 1, -1, -1):
        size = sizes[thing]
        if size > room:
            continue
        if size:
            with_it = best[: room + 1 - size] + values[thing]
            better = with_it >= best[size:]
            taken[thing, size:] = better
            best[size:] = np.where(better, with_it, best[size:])
        elif values[thing] >= 0.0:
            taken[thing] = True
            best += values[thing]
    chosen = []
    left = room
    for thing, size in enumerate(sizes):
        if taken[thing, left]:
            chosen.append(thing)
            left -= size
    return chosen
