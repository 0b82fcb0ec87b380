"""Machines of one job for the policy cranny, taken one after the other as its pages say."""

from collections.abc import Iterable
from typing import NamedTuple

ANY, IN_USE, IDLE, QUIET = 0, 1, 2, 3
Taken = list[tuple[int, int]]  # machines, and the GPUs taken of each


class Machines(NamedTuple):
    """Machines, (machines,) each."""

    free: list[int]
    size: list[int]
    until_s: list[float]
    rack: list[int]
    on_links: list[int]
    waste: list[float]  # of each number of free GPUs

    def cost(self, machine: int, gpus: int, now_s: float, seconds: float) -> float:
        """Return what GPUs of a machine cost: its longer use, and worse holes."""
        longer_s = max(0.0, now_s + seconds - max(now_s, self.until_s[machine]))
        free = self.free[machine]
        return self.size[machine] * longer_s + (self.waste[free - gpus] - self.waste[free]) * seconds

    def rack_free(self, rack: int) -> int:
        """Return the free GPUs of a rack."""
        return sum(free for free, own in zip(self.free, self.rack, strict=True) if own == rack)


def take(at: Machines, among: Iterable[int], kind: int, gpus: int, now_s: float, seconds: float) -> Taken | None:
    """Take the cheapest machine that holds the rest, else the one with the most free; those of a kind first."""
    left, taken = list(among), []
    while gpus > 0:
        there = [machine for machine in left if at.free[machine]]
        idle = {machine for machine in there if at.free[machine] == at.size[machine]}
        preferred = {
            IN_USE: [each for each in there if each not in idle],
            IDLE: [each for each in there if each in idle],
        }
        there = preferred.get(kind) or there
        if not there:
            return None
        most = min(gpus, max(at.free[machine] for machine in there))
        holding = [machine for machine in there if at.free[machine] >= most]

        def rank(machine: int, most: int = most) -> tuple[float, ...]:
            quiet = at.on_links[machine] if kind == QUIET else 0
            cost = at.cost(machine, most, now_s, seconds)
            return quiet, cost, at.free[machine], at.rack_free(at.rack[machine])

        best = min(holding, key=rank)
        taken.append((best, most))
        gpus -= most
        left.remove(best)
    return taken


def in_one_rack(at: Machines, kind: int, gpus: int, now_s: float, seconds: float) -> Taken | None:
    """Return the fewest machines within one rack, of these the cheapest, and of these of the fullest rack."""
    options = []
    for rack in range(max(at.rack) + 1):
        members = [machine for machine, own in enumerate(at.rack) if own == rack]
        taken = take(at, members, kind, gpus, now_s, seconds)
        if taken is not None:
            cost = sum(at.cost(machine, count, now_s, seconds) for machine, count in taken)
            options.append(((len(taken), cost, at.rack_free(rack)), taken))
    return min(options, key=lambda option: option[0])[1] if options else None
