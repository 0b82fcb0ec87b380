"""Sets of machines as whole numbers, bit i for machine i.

Such a set is immutable, so a snapshot shares it at no cost, and picking the lowest machine costs the same for
a thousand machines as for ten thousand, within a microsecond.
"""

from collections.abc import Iterator
from typing import NamedTuple

_WINDOW = 64
_WINDOW_MASK = (1 << _WINDOW) - 1


def lowest(machines: int) -> int:
    """Return the lowest machine of a non-empty set."""
    return (machines & -machines).bit_length() - 1


def members(machines: int) -> Iterator[int]:
    """Yield the machines of a set from the lowest up, reading a window of the set at a time."""
    base = 0
    while machines:
        skip = lowest(machines)
        base += skip
        machines >>= skip
        window = machines & _WINDOW_MASK
        while window:
            low = window & -window
            yield base + low.bit_length() - 1
            window ^= low
        base += _WINDOW
        machines >>= _WINDOW


def within(machines: int, first: int, past: int) -> int:
    """Return the part of a set from machine `first` to before `past`."""
    return (machines >> first & (1 << (past - first)) - 1) << first


class FreeMachines(NamedTuple):
    """Machines by their free GPUs, as sets.

    `in_use[f]` are the non-idle machines with f GPUs free, `idle[g]` the idle machines of g GPUs.
    """

    in_use: tuple[int, ...]
    idle: tuple[int, ...]

    def only(self, machines: int) -> "FreeMachines":
        """Keep only the machines of a set."""
        return FreeMachines(
            tuple([group & machines for group in self.in_use]),
            tuple([group & machines for group in self.idle]),
        )

    @property
    def in_use_count(self) -> tuple[int, ...]:
        """How many non-idle machines have f GPUs free."""
        return tuple(map(int.bit_count, self.in_use))

    @property
    def idle_count(self) -> tuple[int, ...]:
        """How many idle machines have g GPUs."""
        return tuple(map(int.bit_count, self.idle))

    def counts_for(self, gpus: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Count non-idle and idle machines only as far as they matter to a job of this size.

        The largest come first, and counting ends when they hold the job: on a large cluster that is soon, and
        what follows from the counts can be cached.
        """
        in_use, missing = _count_until(self.in_use, gpus)
        return in_use, _count_until(self.idle, missing)[0]

    @property
    def gpus(self) -> int:
        """All free GPUs."""
        return self.gpus_in_use + _total(self.idle)

    @property
    def gpus_in_use(self) -> int:
        """Free GPUs on non-idle machines."""
        return _total(self.in_use)


def _count_until(groups: tuple[int, ...], gpus: int) -> tuple[tuple[int, ...], int]:
    """Count machines, largest first, until they hold `gpus`; return the counts and the GPUs still missing."""
    counts = [0] * len(groups)
    for size in range(len(groups) - 1, 0, -1):
        if gpus <= 0:
            break
        if groups[size]:
            counts[size] = min(groups[size].bit_count(), -(-gpus // size))
            gpus -= counts[size] * size
    return tuple(counts), gpus


def _total(groups: tuple[int, ...]) -> int:
    """Add up the free GPUs of machines that are grouped by how many they have."""
    total = 0
    for size, group in enumerate(groups):
        if group:
            total += size * group.bit_count()
    return total
