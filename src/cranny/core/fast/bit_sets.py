"""Compiled sets of machines and of GPUs: a bit each, in words of 64."""

import numpy as np

from cranny.core.fast.placement_arrays import MachineArrays
from cranny.core.jit import inside
from cranny.model.arrays import Bits


@inside
def join(machines: MachineArrays, free: int, machine: int) -> None:
    """Add a machine to the set of those with so many GPUs free."""
    word = machine // 64
    machines.sets[free, word] ^= bit_of(machine)
    machines.members[free] += 1
    machines.first_word[free] = min(machines.first_word[free], word)


@inside
def leave(machines: MachineArrays, free: int, machine: int) -> None:
    """Remove a machine from the set of those with so many GPUs free."""
    machines.sets[free, machine // 64] ^= bit_of(machine)
    machines.members[free] -= 1


@inside
def lowest_with(machines: MachineArrays, free: int) -> int:
    """Return the lowest machine with so many GPUs free; there must be one."""
    words, word = machines.sets[free], machines.first_word[free]
    while not words[word]:
        word += 1
    machines.first_word[free] = word
    return int(64 * word + lowest_bit(words[word]))


@inside
def lowest_between(words: Bits, first: int, past: int) -> int:
    """Return the lowest machine of a set from `first` to before `past`, or -1."""
    every = ~np.uint64(0)
    for word in range(first // 64, (past + 63) // 64):
        bits = words[word]
        if word == first // 64:
            bits &= every << np.uint64(first % 64)
        if bits:
            machine = int(64 * word + lowest_bit(bits))
            return machine if machine < past else -1
    return -1


@inside
def bit_of(machine: int) -> np.uint64:
    """Return the bit of a machine in its word."""
    return np.uint64(1) << np.uint64(machine % 64)


@inside
def lowest_slots(slots: np.uint64, count: int) -> np.uint64:
    """Return the lowest `count` of some bits."""
    rest = slots
    for _ in range(count):
        rest &= rest - np.uint64(1)
    return slots ^ rest


@inside
def count_bits(bits: np.uint64) -> int:
    """Count the bits that are set."""
    count = 0
    while bits:
        bits &= bits - np.uint64(1)
        count += 1
    return count


@inside
def lowest_bit(bits: np.uint64) -> int:
    """Return the place of the lowest bit of a number that has one."""
    place = 0
    while not bits & np.uint64(0xFF):
        bits >>= np.uint64(8)
        place += 8
    while not bits & np.uint64(1):
        bits >>= np.uint64(1)
        place += 1
    return place
