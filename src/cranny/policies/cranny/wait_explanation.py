"""Says why a job waits: what it was promised, which machine it waits for, or whose promise comes first.

Times are written `at 12,345 s`, as in a replay; the service writes them as durations from now.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from cranny.model.cluster import Cluster
from cranny.policies.cranny.promised_starts import PromisedStart


class WaitMemory(NamedTuple):
    """What is known of the waiting jobs of a cluster; a copy, which later decisions do not change."""

    cluster: Cluster
    promises: tuple[PromisedStart, ...]  # the earliest first
    since_s: Mapping[str, float]  # since when a job could have started on several machines, by its id
    due_s: Mapping[str, float]  # until when it waits for better machines at most
    stopped: frozenset[str]  # jobs that ran before, and were stopped for others
    head: str | None = None  # the first job of the queue that did not fit
    constrained_head: str | None = None  # the first that its constraints let wait
    estimated_s: float = math.inf  # when the first running job is expected to end whose end is only estimated

    def without(self, job_id: str) -> "WaitMemory":
        """Return the same without what is known of a job."""
        return self._replace(
            promises=tuple(each for each in self.promises if each.job_id != job_id),
            since_s={each: since_s for each, since_s in self.since_s.items() if each != job_id},
            due_s={each: due_s for each, due_s in self.due_s.items() if each != job_id},
            head=None if self.head == job_id else self.head,
            constrained_head=None if self.constrained_head == job_id else self.constrained_head,
        )

    def why(self, job_id: str, now_s: float, short: str | None) -> str:
        """Say in a few words why a job waits; `short` says that there are too few GPUs, if so."""
        mine = next((each for each in self.promises if each.job_id == job_id), None)
        before = next((each for each in self.promises if each.job_id != job_id), None)
        if mine is not None:
            reason = self._promised(mine, now_s)
            return f"{short}; {reason}" if short else reason
        if before is not None:
            behind = f"behind job {before.job_id!r}, which {self._promise(before, now_s)}"
            return f"{short}; {behind}" if short else f"{behind}; it might delay that"
        return short or "can start now"

    def _promised(self, promise: PromisedStart, now_s: float) -> str:
        """Say what a job was promised, and why."""
        job_id = promise.job_id
        if job_id in self.stopped:
            return f"was stopped for another job, and {self._promise(promise, now_s)}"
        if promise.chosen and promise.start_s > now_s:
            names = ", ".join([self.cluster.machines[machine].name for machine in promise.machines])
            racks = {self.cluster.rack_of[machine] for machine in promise.machines}
            where = "on fewer machines" if len(racks) > 1 else "in one rack"
            where = "on one machine" if len(promise.machines) == 1 else where
            waits = f"waits for {names}, with room expected at {promise.start_s:,.0f} s"
            if job_id not in self.since_s or job_id not in self.due_s:
                return waits
            return f"{waits}: {where} it takes {self.due_s[job_id] - self.since_s[job_id]:,.0f} s less"
        return self._promise(promise, now_s)

    def _promise(self, promise: PromisedStart, now_s: float) -> str:
        """Say what was promised, how sure that is, and whether it has passed."""
        at_s = f"at {promise.start_s:,.0f} s"
        if promise.start_s < now_s:
            return f"should have started {at_s}, but running jobs take longer than expected"
        if self.estimated_s <= promise.start_s:
            return f"is expected to start {at_s}, by estimates of how long running jobs still take"
        return f"is promised a start {at_s} at the latest"
