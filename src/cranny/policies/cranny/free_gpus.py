"""The cluster as the policy sees it: which GPUs are free, and when the others are expected to be."""

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import ALL, Snapshot
from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.job import Job

if TYPE_CHECKING:
    from cranny.policies.cranny.machine_kernel import ClusterArrays

LATE_S = 60.0  # that a job which should have ended is expected to run on, at least


class FreeGpus:
    """Free GPUs, and expected ends of running jobs, kept up to date from view to view."""

    def __init__(self, cluster: Cluster) -> None:
        from cranny.policies.cranny import machine_kernel as kernel  # compiles, so it is imported where it is used

        self.cluster = cluster
        sizes = [machine.gpus for machine in cluster.machines]
        count, racks, largest = len(sizes), len(cluster.rack_nodes), max(sizes)
        # All numbers are in two arrays, which kernels take in less time than many, and have names here.
        self.ints = np.zeros((kernel.RACK_START + 1, count + 1), np.int64)
        self.floats = np.zeros(2 * count + largest + 1 + count * largest)
        rows = self.ints[:, :count]
        self.free, self.size, self.rack, self.by_rack, self.on_links = rows[: kernel.RACK_FREE]
        self.rack_free, self.rack_start = self.ints[kernel.RACK_FREE, :racks], self.ints[-1, : racks + 1]
        self.price, self.until_s = self.floats[:count], self.floats[count : 2 * count]
        self.waste = self.floats[2 * count : 2 * count + largest + 1]
        # (machines, GPUs) see `machine_kernel`
        self.release_s = self.floats[2 * count + largest + 1 :].reshape(count, largest)
        self.free[:] = self.size[:] = self.price[:] = sizes
        self.there = np.arange(largest) < self.size[:, None]  # (machines, GPUs) which GPUs exist
        self.release_s[:] = np.where(self.there, -math.inf, math.inf)
        self.jobs_on_links = 0  # that run on several machines
        self.total = sum(sizes)  # free GPUs of all machines
        self.until_s[:] = -math.inf
        self.rack[:] = cluster.rack_of
        self.by_rack[:] = np.argsort(self.rack, kind="stable")
        self.rack_start[:] = np.searchsorted(self.rack[self.by_rack], np.arange(racks + 1))
        self.racks = np.split(self.by_rack, self.rack_start[1:-1])  # the machines of each
        self.rack_free[:] = np.bincount(self.rack, weights=self.size)
        self._up, self._width = ALL, largest
        self._takes_jobs: Flags = np.ones((count, 1), bool)
        self._set_releases = kernel.set_releases
        # Everything as the kernels take it for a job that may not use all machines; it shows later changes, too.
        self.arrays = kernel.ClusterArrays(
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
        sign, held = -1 if end_s == -math.inf else 1, running.held
        if len(held) > 1:
            self.jobs_on_links += sign
            self.on_links[list(held)] += sign
        up, width = self._up, self._width
        for machine, gpus in held.items():
            taken = sign * gpus.bit_count() if up == ALL or up >> machine & 1 else 0
            self.total -= taken
            signed = gpus - (1 << 64) if gpus >> 63 else gpus  # as compiled code takes whole numbers
            self._set_releases(self.ints, self.floats, width, machine, signed, end_s, taken)

    def follow_machines(self, view: Snapshot) -> bool:
        """Take over which machines take jobs; say whether these are others than before."""
        changed = view.up_machines != self._up
        if changed:
            self._up = view.up_machines
            self._takes_jobs = view.membership(self._up)[:, None]  # (machines, 1)
            self.free[:] = view.free
            self.total = int(self.free.sum())
            self.rack_free[:] = np.bincount(self.rack, weights=self.free, minlength=len(self.rack_free))
        return changed

    def up_releases(self) -> Floats:
        """Return when each GPU is expected to be free, (machines, GPUs): never on a machine that takes no jobs."""
        return self.release_s if self._up == ALL else np.where(self._takes_jobs, self.release_s, math.inf)

    def seen_by(self, job: Job, view: Snapshot, kept: Mapping[int, int] | None = None) -> "ClusterArrays":
        """Return the machines that a job may use in a view or a what-if: of those kept, what is left."""
        eligible = view.eligible(job)
        if eligible == ALL and not view.is_what_if:
            if not kept:
                return self.arrays
            free = self.free.copy()
        else:
            free = view.usable(job, view.free).astype(np.int64)
        if kept:
            machines = list(kept)
            free[machines] = np.minimum(free[machines], list(kept.values()))
        return self._with_free(free)

    def only(self, at: "ClusterArrays", machines: Flags) -> "ClusterArrays":
        """Return some of the machines that a job may use."""
        return self._with_free(np.where(machines, at.free, 0))

    def _with_free(self, free: Ints) -> "ClusterArrays":
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
        from cranny.policies.cranny.candidate_sets_kernel import MOST_SETS
        from cranny.policies.cranny.machine_kernel import MachineSet

        def machine_set() -> MachineSet:
            return MachineSet(
                np.zeros(machines, np.int64), np.zeros(machines, np.int64), np.zeros(width + 1, np.int64)
            )

        self.best, self.trial = machine_set(), machine_set()
        self.racks: Ints = np.zeros(racks, np.int64)
        self.sets: Ints = np.zeros((MOST_SETS, 2, machines), np.int64)  # all that a job could have
        self.used: Ints = np.zeros(MOST_SETS, np.int64)  # machines of each
        self.slots: Floats = np.zeros(width)
