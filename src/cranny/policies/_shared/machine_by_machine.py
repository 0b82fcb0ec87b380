"""Machines taken one after the other, each by the GPUs that are still missing: what greedy placers share."""

from collections.abc import Callable, Iterable, Sequence

from cranny.core.machine_set import FreeMachines, lowest

# Which numbers of free GPUs the rest of a job looks for, in order, given its GPUs and the size of the largest
# machine, than which the rest is no larger.
Wanted = Callable[[int, int], Iterable[int]]


def take_machines(gpus: int, groups: Iterable[int], wanted: Wanted, most: int | None = None) -> list[int]:
    """Take the lowest machine with the first of the wanted numbers of free GPUs, again and again.

    `groups[f]` are machines with f GPUs free. The machine of each rank is returned, fewer than `gpus` of them
    where there are no more machines, or `most` of them are not enough.
    """
    left = list(groups)
    ranks: list[int] = []
    while len(ranks) < gpus and most != 0:
        missing, size = gpus - len(ranks), len(left) - 1
        free = next((free for free in wanted(min(missing, size), size) if left[free]), 0)
        if not free:
            break
        machine = lowest(left[free])
        left[free] ^= 1 << machine
        ranks += [machine] * min(missing, free)
        most = None if most is None else most - 1
    return ranks


def in_use_or_idle(available: FreeMachines) -> list[int]:
    """Return machines by their free GPUs, whether they are idle or not."""
    return [in_use | idle for in_use, idle in zip(available.in_use, available.idle, strict=True)]


def tightest(gpus: int, size: int) -> Sequence[int]:
    """Want the machine that is filled most tightly, else the emptiest."""
    return (*range(gpus, size + 1), *range(gpus - 1, 0, -1))


def roomiest(gpus: int, size: int) -> range:  # noqa: ARG001 - a `Wanted`
    """Want the machine with the most free GPUs."""
    return range(size, 0, -1)
