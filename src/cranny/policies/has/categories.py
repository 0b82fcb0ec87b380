"""Categories of HAS/JPS (TPDS 2024), Algorithm 1: how many workers each job gets, in the paper's order.

Psi holds every way to write K as a sum of S positive numbers. The last number changes slowest, the second
fastest, and the first is what is left. So the place of a category in Psi can be worked out, and Psi need not be
written down: JPS draws places.
"""

from collections.abc import Iterator
from math import comb


def size(workers: int, jobs: int) -> int:
    """Return the size of Psi, K - 1 over S - 1."""
    return comb(workers - 1, jobs - 1)


def categories(workers: int, jobs: int) -> Iterator[tuple[int, ...]]:
    """Yield the categories as Algorithm 1 finds them."""
    counts = [workers - jobs + 1] + [1] * (jobs - 1)  # initialization
    while True:
        yield tuple(counts)  # line 2
        for i in range(1, jobs):  # lines 3-8; a number set back to 1 lets the next one grow
            most = workers - i - sum(counts[i + 1 :])  # Eq. 15
            if counts[i] < most:
                counts[i] += 1
                break
            counts[i] = 1
        else:  # line 1: all numbers are 1 again, the first category comes back
            return
        counts[0] = workers - sum(counts[1:])  # line 9


def category(workers: int, jobs: int, place: int) -> tuple[int, ...]:
    """Return the category at a place of Psi, counted from 0."""
    counts = [0] * jobs
    left = workers
    for i in range(jobs - 1, 0, -1):
        count = 1
        while (below := comb(left - count - 1, i - 1)) <= place:  # categories with this number here
            place -= below
            count += 1
        counts[i] = count
        left -= count
    counts[0] = left
    return tuple(counts)
