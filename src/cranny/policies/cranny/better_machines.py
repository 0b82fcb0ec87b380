"""Waits for better machines than those that are free: for one machine, one rack, or whole machines.

A job that can start on several machines may wait until better ones are free, where it would take less, as would
jobs whose links it would share. They are kept for it. Until then it takes no others that become free: these are
left to jobs that did not choose to wait. It waits no longer in all than what that saves, so it loses at most as
much again.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np

from cranny.core.constraints import Constraints
from cranny.core.machine_set import members
from cranny.core.snapshot import Snapshot
from cranny.model.arrays import Floats, Ints
from cranny.model.job import Job
from cranny.policies.cranny.free_gpus import FreeGpus
from cranny.policies.cranny.machine_kernel import first_rack_ready, first_ready
from cranny.policies.cranny.placing import Placing, Priced
from cranny.policies.cranny.promised_starts import PromisedStart, PromisedStarts
from cranny.policies.cranny.type_costs import TypeCosts

if TYPE_CHECKING:
    from cranny.policies.cranny import Cranny


class BetterMachines:
    """Keeps machines for jobs that wait for them."""

    def __init__(
        self, policy: "Cranny", gpus: FreeGpus, types: TypeCosts, placing: Placing, promises: PromisedStarts
    ) -> None:
        self._policy = policy
        self._gpus = gpus
        self._types = types
        self._placing = placing
        self._promises = promises
        # By the ids of waiting jobs.
        self.since_s: dict[str, float] = {}  # since when they could have started
        self.due_s: dict[str, float] = {}  # until when those wait at most for which machines are kept

    def wait(self, job: Job, view: Snapshot, seconds: float, now: Priced) -> bool:
        """Keep machines for a job that can start now, if it should wait for them; say whether it does.

        `seconds` is what it would take on one machine with GPUs of speed 1, and `now` where it would start now.
        """
        constraints = self._policy.rules.constraints_of(job.id)
        spread = constraints is not None and constraints.spread > 1
        if not self._policy.wait or now.effect.slowdown <= 1.0 or spread:
            return False
        saved_s = (now.effect.slowdown - self._placing.slowdown_alone(job)) * now.length_s
        saved_s += now.effect.others_gpu_s / job.gpus
        due_s = self.since_s.setdefault(job.id, view.now_s) + saved_s
        if due_s <= view.now_s:
            return False
        slower = self._types.slower_machines(job, seconds, now.length_s)
        release_s = self._releases(job, view, constraints, slower)
        if job.gpus <= int(self._gpus.size.max()):
            machines, ready_s = self._first_machine(job, release_s)
        else:
            machines, ready_s = self._first_rack(job, release_s, due_s)
        # If they are free now, the job goes elsewhere for other reasons.
        if not view.now_s < ready_s < due_s:
            return False
        constrained = constraints is not None and constraints.required
        self._promises.make(
            PromisedStart(
                job.id,
                job.gpus,
                ready_s,
                machines,
                constrained=constrained,
                chosen=True,
                eligible=view.eligible(job),
            )
        )
        self.due_s[job.id] = due_s
        return True

    def _first_machine(self, job: Job, release_s: Floats) -> tuple[tuple[int, ...], float]:
        """Return the machine that first has room for a job, and when."""
        machine, ready_s = first_ready(release_s, job.gpus, self._placing.room.slots)
        return (int(machine),), float(ready_s)

    def _first_rack(self, job: Job, release_s: Floats, due_s: float) -> tuple[tuple[int, ...], float]:
        """Return the fewest machines of a rack that hold a job, where they are free first, and when, by some time.

        If no rack is so large, they are the fewest of all machines.
        """
        gpus, room = self._gpus, self._placing.room
        in_order = np.sort(np.where(gpus.there, release_s, math.inf), axis=1)
        by_rack, rack_start = gpus.by_rack, gpus.rack_start
        if self._placing.best_slowdown(job) == math.inf:
            by_rack = np.argsort(in_order[np.arange(len(gpus.size)), gpus.size - 1], kind="stable")
            rack_start = np.array([0, len(by_rack)])
        machines: Ints = room.best.machines
        used, ready_s = first_rack_ready(
            in_order, gpus.size, by_rack, rack_start, job.gpus, due_s, machines, room.trial.machines
        )
        return tuple(machines[:used].tolist()), ready_s

    def _releases(
        self, job: Job, view: Snapshot, constraints: Constraints | None, slower: Sequence[int]
    ) -> Floats:
        """Return when GPUs are expected to be free that a job may use; not those kept for others, or slower."""
        kept = [*self._promises.kept_from(job.id, view.now_s, math.inf), *slower]
        if constraints is not None:
            kept += members(constraints.excluded)
        return self._gpus.releases_for(job, view, kept)

    # -- what is known of waiting jobs ---------------------------------------------------------------------

    def started(self, job_id: str) -> None:
        """Forget a job that waits no longer."""
        if self.since_s:
            self.since_s.pop(job_id, None)
            self.due_s.pop(job_id, None)

    def keep(self, job_ids: AbstractSet[str]) -> None:
        """Forget all but some jobs."""
        for known in (self.since_s, self.due_s):
            for job_id in known.keys() - job_ids:
                known.pop(job_id)
