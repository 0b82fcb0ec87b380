"""HiveD: virtual clusters made of cells, placed by buddy cell allocation.

H. Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020, Sec. 3. A tenant owns
cells, not a number of GPUs, so that what fits its own cluster always fits its part of the shared one.

Symbols:

    level-k cell         2**k GPUs of one machine that begin at a multiple of 2**k: GPU, pair, quad, ...;
                         above these come the machine and the rack
    VC                   the virtual cluster of a tenant
    preassigned cells    the machines that a VC owns; which ones they are is open until they are used
    free list            for each level the free cells that are not part of a larger free cell

A physical machine belongs to a VC from its first job there to its last. Other VCs cannot use it meanwhile, and no
VC has more machines than it owns; so there is always a machine left for a VC that owns one (safety, Sec. 3.3).

Algorithm 1: to get a level-k cell, take one from the free list of level k; if that is empty, get a cell of level
k+1 and split it. When a cell comes back it merges with its buddies. Free lists follow from the free GPUs, so
merging needs no code here.

Jobs ask for a number of GPUs, not for cells. We ask for the fewest cells: 5 = 4 + 1, on one machine if possible;
jobs larger than a machine take whole machines and cells for the rest.

Departure: VCs own machine cells only, and these as a share of the machines of each kind, rounded down.
Departure: no low-priority jobs on cells that other VCs own but do not use; a placer cannot stop them again.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cranny.core.machine_set import lowest, members, within
from cranny.core.protocol import lacks_gpus
from cranny.core.snapshot import FreeMachines, Snapshot
from cranny.model.cluster import Cluster, Machine
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement

Kind = tuple[int, str]  # GPUs of a machine and their type

# Shares such as 1/3 + 2/3 may miss a whole machine by rounding only.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Cells:
    """What a VC may use now."""

    in_use: tuple[int, ...]  # machines of the VC by their number of free GPUs
    idle: tuple[int, ...]  # idle machines by their number of GPUs
    left: dict[Kind, int] | None = None  # how many more idle machines of each kind it may have; None: any number
    taken: dict[int, int] = field(default_factory=dict)  # GPUs chosen so far for the job at hand

    def may_open(self, described: Machine) -> bool:
        """Say whether the VC owns one more machine of this kind."""
        return self.left is None or self.left.get(kind(described), 0) > 0


class HiveD:
    """Place a job on free cells of its tenant's virtual cluster.

    `vcs` gives each tenant its share of the machines, such as {"vision": 0.5, "speech": 0.25}; without it there
    is one virtual cluster that owns everything.
    """

    def __init__(self, vcs: Mapping[str, float] | None = None) -> None:
        if vcs is not None:
            for tenant, share in vcs.items():
                if not 0 <= share <= 1:
                    raise InputError(f"hived: the share of tenant {tenant!r} must be from 0 to 1, not {share!r}")
            if sum(vcs.values()) > 1 + TOLERANCE:
                raise InputError(f"hived: the shares of all tenants add up to {sum(vcs.values()):g}, more than 1")
        self.vcs = None if vcs is None else dict(vcs)
