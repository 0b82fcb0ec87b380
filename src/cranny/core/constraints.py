"""Constraints on where a job runs: excluded machines, one rack, or several racks, and how many GPUs of a machine.

Machines that lack a feature or are reserved for others are excluded like those that a job names.

A parameter server belongs to its job: excluded machines and the one rack are for its server too.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from cranny.model.cluster import Cluster

SameRack = Literal["required", "preferred"]


class Constraints(NamedTuple):
    """What a job requires or prefers of its placement."""

    excluded: int = 0  # machines that it must not use, as a set
    same_rack: SameRack | None = None
    spread: int = 1  # racks that it is spread over, at least, with no more than its share of GPUs in any of them
    per_machine: int | None = None  # GPUs that it has on each of its machines, neither more nor fewer

    @property
    def required(self) -> bool:
        """Whether the job may not run just anywhere; a preference alone forbids nothing."""
        forbids = self.excluded != 0 or self.same_rack == "required" or self.spread > 1
        return forbids or self.per_machine is not None

    def allowed(self, cluster: Cluster) -> int:
        """Return the machines that the job may use, as a set."""
        return (1 << len(cluster.machines)) - 1 & ~self.excluded

    def met_by(self, gpus: int, free: Sequence[int]) -> bool:
        """Say whether a job finds room in racks with so many free GPUs on machines that it may use."""
        if self.same_rack == "required":
            return max(free, default=0) >= gpus
        return (sum(free) if self.spread == 1 else self.spread_over(gpus, free)) >= gpus

    def most_in_rack(self, gpus: int) -> int:
        """Return how many of a job's GPUs may be in one rack: its failure stops no more workers than these."""
        return -(-gpus // self.spread)

    def spread_over(self, gpus: int, free: Sequence[int]) -> int:
        """Return how many of a job's GPUs find room in racks with so many free; 0 if too few racks have any."""
        if min(gpus, _count(free)) < self.spread:
            return 0
        most = self.most_in_rack(gpus)
        return min(gpus, sum([min(each, most) for each in free]))


def _count(free: Sequence[int]) -> int:
    return sum([each > 0 for each in free])


def rack_shares(gpus: int, constraints: Constraints, free: Sequence[int], *, tightest: bool) -> list[int] | None:
    """Return how many GPUs a spread job takes of each rack, with so many free; None if that is impossible.

    It takes as few racks as it may, evenly: those that are fullest if `tightest`, else those that are emptiest. If
    these do not hold it, each of them gives one GPU, and then the emptiest racks as many as the constraint allows.
    """
    if constraints.spread_over(gpus, free) < gpus:
        return None
    order = sorted([rack for rack, each in enumerate(free) if each], key=lambda rack: (free[rack], rack))
    order = order if tightest else order[::-1]
    least, larger = divmod(gpus, constraints.spread)
    shares = [0] * len(free)
    for rack in [rack for rack in order if free[rack] > least][:larger]:
        shares[rack] = least + 1
    rest = [rack for rack in order if not shares[rack] and free[rack] >= least]
    for rack in rest[: constraints.spread - _count(shares)]:
        shares[rack] = least
    if sum(shares) == gpus:
        return shares
    emptiest = sorted(order, key=lambda rack: (-free[rack], rack))
    most = constraints.most_in_rack(gpus)
    shares = [0] * len(free)
    for rack in emptiest[: constraints.spread]:
        shares[rack] = 1
    for rack in emptiest:
        shares[rack] += min(gpus - sum(shares), min(free[rack], most) - shares[rack])
    return shares
