"""Titan's two objectives by trying every set of machines."""

from collections.abc import Sequence
from itertools import combinations


def fewest(gpus: int, in_use: Sequence[int], idle: Sequence[int]) -> tuple[int, int] | None:
    """Return the least (idle machines opened, machines used) that hold a job, given what is free on each."""
    found = [
        (opened, opened + used)
        for opened in range(len(idle) + 1)
        for used in range(len(in_use) + 1)
        for of_idle in combinations(idle, opened)
        for of_used in combinations(in_use, used)
        if sum(of_idle) + sum(of_used) >= gpus
    ]
    return min(found, default=None)
