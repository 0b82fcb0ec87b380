"""Machines for the jobs of a log that names none: first fit, by the literal rule."""

from collections.abc import Sequence
from typing import NamedTuple


class LoggedRun(NamedTuple):
    """A run of a log: GPUs, and when it held them."""

    gpus: int
    start_s: float
    end_s: float


def first_fit(runs: Sequence[LoggedRun], gpus_per_machine: int) -> list[dict[str, int]]:
    """Return the GPUs that each run holds on each machine, in the order of `runs`.

    In the order of their starts, a run gets as many empty machines as it fills, and what is left of it goes to the
    first machine with room. There is always another machine.
    """
    free: list[int] = []
    held: list[dict[int, int]] = [{} for _ in runs]
    running: set[int] = set()
    for now in sorted(range(len(runs)), key=lambda index: (runs[index].start_s, index)):
        for other in [each for each in running if runs[each].end_s <= runs[now].start_s]:
            running.remove(other)
            for machine, gpus in held[other].items():
                free[machine] += gpus
        left = runs[now].gpus
        while left:
            part = min(left, gpus_per_machine)
            fits = [machine for machine, room in enumerate(free) if room >= part and machine not in held[now]]
            if not fits:
                free.append(gpus_per_machine)
                fits = [len(free) - 1]
            held[now][fits[0]] = part
            free[fits[0]] -= part
            left -= part
        running.add(now)
    return [{f"n{machine}": gpus for machine, gpus in each.items()} for each in held]


def written(held: dict[str, int]) -> str:
    """Write machines as traces do."""
    return " ".join(f"{machine}:{gpus}" for machine, gpus in held.items())
