"""What a placer learnt, to be found again by a key of a few whole numbers."""

from collections.abc import Sequence

import numpy as np

from cranny.core.fast.placement_arrays import Ints, Known
from cranny.core.jit import compiled, inside

SLOTS = 1 << 16
MOST_ROWS = SLOTS // 2
MOST_NUMBERS = 1 << 22  # in all entries together
AT_ONCE = 256  # entries that one draft may need; those must fit


class Memory:
    """Keeps entries; when there are too many, it forgets all and begins again."""

    def __init__(self, width: int, longest: int) -> None:
        """Make room for keys of so many numbers, and for entries of at most so many."""
        self.known = Known(
            slot=np.full(SLOTS, -1, dtype=np.int64),
            key=np.zeros((MOST_ROWS, width), dtype=np.int64),
            start=np.zeros(MOST_ROWS, dtype=np.int64),
            entry=np.zeros(max(MOST_NUMBERS, AT_ONCE * longest), dtype=np.int64),
        )
        self._rows = self._numbers = 0

    def learn(self, key: Ints, entry: Sequence[int]) -> None:
        """Remember an entry that is not known yet."""
        if self._rows == MOST_ROWS or self._numbers + len(entry) > len(self.known.entry):
            self.known.slot[:] = -1
            self._rows = self._numbers = 0
        row, past = self._rows, self._numbers + len(entry)
        self.known.key[row] = key
        self.known.start[row] = self._numbers
        self.known.entry[self._numbers : past] = entry
        self.known.slot[_slot(self.known, key)] = row
        self._rows, self._numbers = row + 1, past


@inside
def find(known: Known, key: Ints) -> int:
    """Return where the entry of a key begins, or -1 if it is not known."""
    row = known.slot[_slot(known, key)]
    return int(known.start[row]) if row >= 0 else -1


@compiled
def _slot(known: Known, key: Ints) -> int:
    """Return the slot that a key is in, or the free one where it belongs."""
    mixed = 0
    for number in key:
        mixed = (mixed * 1_000_003 + number) & 0xFFFFFFFF
    last = len(known.slot) - 1
    slot = (mixed ^ (mixed >> 15)) & last
    while known.slot[slot] >= 0:
        row = known.key[known.slot[slot]]
        same = True
        for i in range(len(key)):
            same = same and row[i] == key[i]
        if same:
            break
        slot = (slot + 1) & last
    return int(slot)
