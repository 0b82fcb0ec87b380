"""A memo of what a placer computed, found again by a key of a few whole numbers."""

from collections.abc import Sequence

import numpy as np

from cranny.core.fast.placement_arrays import MemoTable
from cranny.core.jit import compiled, inside
from cranny.model.arrays import Ints

SLOTS = 1 << 16
MOST_ROWS = SLOTS // 2
MOST_NUMBERS = 1 << 22  # in all entries together
AT_ONCE = 256  # entries that one draft may need; those must fit


class Memo:
    """Keeps entries; when there are too many, all are dropped."""

    def __init__(self, width: int, longest: int) -> None:
        """Make the table for keys of so many numbers, and for entries of at most so many."""
        self.table = MemoTable(
            slot=np.full(SLOTS, -1, dtype=np.int64),
            key=np.zeros((MOST_ROWS, width), dtype=np.int64),
            start=np.zeros(MOST_ROWS, dtype=np.int64),
            entry=np.zeros(max(MOST_NUMBERS, AT_ONCE * longest), dtype=np.int64),
        )
        self._rows = self._numbers = 0

    def add(self, key: Ints, entry: Sequence[int]) -> None:
        """Add an entry whose key is not in the table yet."""
        if self._rows == MOST_ROWS or self._numbers + len(entry) > len(self.table.entry):
            self.table.slot[:] = -1
            self._rows = self._numbers = 0
        row, past = self._rows, self._numbers + len(entry)
        self.table.key[row] = key
        self.table.start[row] = self._numbers
        self.table.entry[self._numbers : past] = entry
        self.table.slot[_slot(self.table, key)] = row
        self._rows, self._numbers = row + 1, past


@inside
def find(table: MemoTable, key: Ints) -> int:
    """Return where the entry of a key begins, or -1 if there is none."""
    row = table.slot[_slot(table, key)]
    return int(table.start[row]) if row >= 0 else -1


@compiled
def _slot(table: MemoTable, key: Ints) -> int:
    """Return the slot that a key is in, or the free one where it belongs."""
    mixed = 0
    for number in key:
        mixed = (mixed * 1_000_003 + number) & 0xFFFFFFFF
    last = len(table.slot) - 1
    slot = (mixed ^ (mixed >> 15)) & last
    while table.slot[slot] >= 0:
        row = table.key[table.slot[slot]]
        same = True
        for i in range(len(key)):
            same = same and row[i] == key[i]
        if same:
            break
        slot = (slot + 1) & last
    return int(slot)
