"""The cluster as the policy sees it: which GPUs are free, and when the others are expected to be."""

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import ALL, Snapshot
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.job import Job

if TYPE_CHECKING:
    from cranny.policies.cranny.machine_kernel import ClusterArrays

LATE_S = 60.0  # that a job which should have ended is expected to run on, at least


class FreeGpus:
    """Free GPUs, and expected ends of running jobs, kept up to date from view to view."""

    def __init__(self, cluster: Cluster) -> None:
        from cranny.policies.cranny.machine_kernel import ClusterArrays, set_releases  # compiles

        self.cluster = cluster
        sizes = [machine.gpus for machine in cluster.machines]
        self.size = np.array(sizes)
        self.there = np.arange(max(sizes)) < self.size[:, None]  # (machines, GPUs) which GPUs exist
        self.release_s = np.where(self.there, -math.inf, math.inf)  # (machines, GPUs) see `machine_kernel`
        self.free = self.size.copy()
        self.on_links = np.zeros(len(sizes), np.int64)
        self.jobs_on_links = 0  # that run on several machines
        self.total = sum(sizes)  # free GPUs of all machines
        self.price = self.size.astype(np.float64)
        self.until_s = np.full(len(sizes), -math.inf)
        self.rack = np.array(cluster.rack_of)
        self.by_rack = np.argsort(self.rack, kind="stable")
        self.rack_start = np.searchsorted(self.rack[self.by_rack], np.arange(len(cluster.rack_nodes) + 1))
        self.racks = np.split(self.by_rack, self.rack_start[1:-1])  # the machines of each
        self.rack_free = np.bincount(self.rack, weights=self.size).astype(np.int64)
        self.waste = np.zeros(max(sizes) + 1)
        self._up = ALL
        self._set_releases = set_releases
        # Everything as the kernels take it; it shows later changes, too.
        self.arrays = ClusterArrays(
            self.free,
            self.size,
            self.price,
            self.until_s,
            self.rack,
            self.by_rack,
            self.rack_start,
            self.rack_free,
            self.on_links,
            self.waste,
        )

    def set(self, running: Running, end_s: float) -> None:
        """Note that a running job is expected to end at a certain time, or with -inf that it has ended."""
        sign = -1 if end_s == -math.inf else 1
        if len(running.held) > 1:
            self.jobs_on_links += sign
            self.on_links[list(running.held)] += sign
        for machine, gpus in running.held.items():
            taken = sign * gpus.bit_count() if self._up >> machine & 1 else 0
            self.total -= taken
            self._set_releases(
                self.release_s,
                self.size,
                self.until_s,
                self.free,
                self.rack_free,
                machine,
                self.cluster.rack_of[machine],
                np.uint64(gpus),
                end_s,
                taken,
            )

    def follow_machines(self, view: Snapshot) -> bool:
        """Take over which machines take jobs; say whether these are others than before."""
        changed = view.up_machines != self._up
        if changed:
            self._up = view.up_machines
            self.free[:] = view.free
            self.total = int(self.free.sum())
            self.rack_free[:] = np.bincount(self.rack, weights=self.free, minlength=len(self.rack_free))
        return changed

    def seen_by(self, job: Job, view: Snapshot, kept: Collection[int] = ()) -> "ClusterArrays":
        """Return the machines that a job may use, without those kept, in a view or a what-if of it."""
        eligible = view.eligible(job)
        if eligible == ALL and not view.is_what_if:
            if not kept:
                return self.arrays
            free = self.free.copy()
        else:
            free = view.usable(job, view.free).astype(np.int64)
        free[list(kept)] = 0
        rack_free = np.bincount(self.rack, weights=free, minlength=len(self.rack_free)).astype(np.int64)
        return self.arrays._replace(free=free, rack_free=rack_free)

    def releases_for(self, job: Job, view: Snapshot, kept: Collection[int] = ()) -> Floats:
        """Return when each GPU that a job may use is expected to be free, (machines, GPUs).

        A job that runs longer than expected is expected to run as much longer again.
        """
        release_s, now_s = self.release_s, view.now_s
        late = (release_s <= now_s) & (release_s > -math.inf)
        if late.any():
            release_s = np.where(late, now_s + np.maximum(LATE_S, now_s - release_s), release_s)
        usable = view.eligible(job) & self._up
        if usable == ALL and not kept:
            return release_s
        there = view.membership(usable)
        there[list(kept)] = False
        return np.where(there[:, None], release_s, math.inf)


class Room:
    """Memory for sets of machines, so that kernels need not make any."""

    def __init__(self, machines: int, racks: int, width: int) -> None:
        from cranny.policies.cranny.machine_kernel import MachineSet

        def machine_set() -> MachineSet:
            return MachineSet(
                np.zeros(machines, np.int64), np.zeros(machines, np.int64), np.zeros(width + 1, np.int64)
            )

        self.best, self.trial = machine_set(), machine_set()
        self.racks: Ints = np.zeros(racks, np.int64)
        self.slots: Floats = np.zeros(width)
