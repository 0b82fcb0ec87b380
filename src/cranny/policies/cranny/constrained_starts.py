"""When and where a job can first start whose constraints do not let it run just anywhere.

Such a job is promised machines, and not only a number of GPUs: others could take those that it may have for ever,
however many are left elsewhere.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.constraints import Constraints
from cranny.model.arrays import Floats, Ints


class FirstStart(NamedTuple):
    """When enough GPUs are expected to be free, on which machines, and how many there; inf if never."""

    start_s: float
    machines: tuple[int, ...] = ()
    gpus_on: tuple[int, ...] = ()

    @classmethod
    def on(cls, start_s: float, gpus: Iterable[int]) -> "FirstStart":
        """Return a start on GPUs of some machines, each named for each of its GPUs."""
        counts = Counter(gpus)
        machines = tuple(sorted(counts))
        return cls(start_s, machines, tuple([counts[machine] for machine in machines]))


NEVER = FirstStart(math.inf)


def first_start(gpus: int, constraints: Constraints, release_s: Floats, racks: Sequence[Ints]) -> FirstStart:
    """Return the first start of a job; `release_s` is (machines, GPUs), inf where it may not run."""
    if constraints.per_machine is not None:
        release_s = _together(release_s, constraints.per_machine)
    if constraints.spread > 1:
        return _first_spread(gpus, constraints, release_s, racks)
    groups: Iterable[Ints] = (np.arange(len(release_s)),)
    if constraints.same_rack == "required":
        groups = racks
    return min((_first_within(gpus, release_s, machines) for machines in groups), key=lambda each: each.start_s)


def _together(release_s: Floats, count: int) -> Floats:
    """Return when so many GPUs of each machine are expected to be free together; its others never are."""
    joint = np.full_like(release_s, math.inf)
    if count <= release_s.shape[1]:
        joint[:, :count] = np.sort(release_s, axis=1)[:, count - 1 : count]
    return joint


def _first_within(gpus: int, release_s: Floats, machines: Ints) -> FirstStart:
    """Return when so many GPUs of some machines are expected to be free; of equal ones the first are taken."""
    times_s = release_s[machines].ravel()
    if gpus > len(times_s):
        return NEVER
    first = np.argsort(times_s, kind="stable")[:gpus]
    start_s = float(times_s[first[-1]])
    if start_s == math.inf:
        return NEVER
    return FirstStart.on(start_s, machines[first // release_s.shape[1]].tolist())


def _first_spread(gpus: int, constraints: Constraints, release_s: Floats, racks: Sequence[Ints]) -> FirstStart:
    """Return when so many GPUs are expected to be free over enough racks, with no more than a share in any."""
    most, width = constraints.most_in_rack(gpus), release_s.shape[1]
    firsts: list[tuple[float, int]] = []  # when one GPU of a rack is free, and the machine that has it
    others: list[tuple[float, int]] = []  # the further ones that the job may have
    for machines in racks:
        times_s = release_s[machines].ravel()
        earliest = np.argsort(times_s, kind="stable")[:most]
        found = [(float(times_s[at]), int(machines[at // width])) for at in earliest if times_s[at] < math.inf]
        firsts += found[:1]
        others += found[1:]
    firsts.sort()
    rest = sorted([*firsts[constraints.spread :], *others])
    chosen = [*firsts[: constraints.spread], *rest[: gpus - constraints.spread]]
    if len(firsts) < constraints.spread or len(chosen) < gpus:
        return NEVER
    return FirstStart.on(max(chosen)[0], (machine for _, machine in chosen))
