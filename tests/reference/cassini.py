"""CASSINI by the book: Table 1 by trying every rotation, Eq. 2 angle by angle, and Theorem 1 on curves."""

import itertools
from collections.abc import Sequence

Table = Sequence[Sequence[float]]  # demand of each job at each angle


def score(table: Table, rotations: Sequence[int], capacity: float) -> float:
    """Return Eq. 2 for jobs rotated by so many angles each."""
    angles = len(table[0])
    excess = 0.0
    for angle in range(angles):
        demand = sum(row[(angle - rotation) % angles] for row, rotation in zip(table, rotations, strict=True))
        excess += max(demand - capacity, 0.0)
    return 1.0 - excess / (angles * capacity)


def best(table: Table, rotations: Sequence[int], capacity: float) -> tuple[float, tuple[int, ...]]:
    """Return the best score and the first rotations that reach it, of so many for each job (Eq. 4)."""
    every = itertools.product(*map(range, rotations))
    return max(((score(table, turned, capacity), turned) for turned in every), key=lambda found: found[0])
