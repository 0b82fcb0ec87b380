"""Machines on which no job uses links, for a part of one that shares those of its machine with others."""

from collections.abc import Collection, Mapping

import numpy as np

from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.policies.cranny.free_gpus import FreeGpus

MOST = 16


def unshared(
    job: Job, counts: Mapping[int, int], machine: int, view: Snapshot, gpus: FreeGpus, kept: Collection[int]
) -> list[int]:
    """Return machines for a job's GPUs of another: first those in its racks, and where fewest GPUs must leave."""
    needed = counts[machine]
    there = view.membership(view.eligible(job) & view.up_machines)
    there[[*kept, *counts]] = False
    found = np.flatnonzero(there & (gpus.on_links == 0) & (gpus.size >= needed))
    free = view.free[found]
    far = ~np.isin(gpus.rack[found], gpus.rack[[each for each in counts if each != machine]])
    order = np.lexsort((free, np.maximum(needed - free, 0), far))
    machines: list[int] = found[order[:MOST]].tolist()
    return machines
