"""Constraints on where a job runs: excluded machines, and rack affinity.

A parameter server belongs to its job: a job's constraints hold for its server too.
"""

from typing import Literal, NamedTuple

from cranny.model.cluster import Cluster

SameRack = Literal["required", "preferred"]


class Constraints(NamedTuple):
    """What a job requires or prefers of its placement."""

    excluded: int = 0  # machines that it must not use, as a set
    same_rack: SameRack | None = None

    @property
    def required(self) -> bool:
        """Whether the job may not run just anywhere; a preference alone forbids nothing."""
        return self.excluded != 0 or self.same_rack == "required"

    def allowed(self, cluster: Cluster) -> int:
        """Return the machines that the job may use, as a set."""
        return (1 << len(cluster.machines)) - 1 & ~self.excluded
