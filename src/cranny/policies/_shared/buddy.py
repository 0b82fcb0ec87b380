"""Buddy blocks: free GPUs, or machines, of which a block of b begins at a multiple of b.

Positions are bits of a number. Two free blocks that are buddies are one free block of twice the size.
"""

from functools import lru_cache

from cranny.core.machine_set import lowest


def aligned(free: int, size: int) -> int:
    """Return where free blocks of a size begin, as bits; `free` has a bit for each free position."""
    starts, width = free, 1
    while width < size and starts:
        starts &= starts >> width
        width *= 2
        blocks = -(-starts.bit_length() // width)
        starts &= ((1 << blocks * width) - 1) // ((1 << width) - 1)  # the multiples of the width
    return starts


def smallest_block(free: int, size: int) -> tuple[int, int] | None:
    """Return where in the smallest free block that holds `size` a block begins, and how large that one is."""
    starts, width = aligned(free, size), size
    while starts:
        larger = aligned(free, width * 2)
        whole = starts & ~(larger | larger << width)  # not the half of a larger free block
        if whole:
            return lowest(whole), width
        starts, width = larger, width * 2
    return None


# The free GPUs of a machine are one of few numbers, seen again and again.
gpu_block = lru_cache(maxsize=65536)(smallest_block)
