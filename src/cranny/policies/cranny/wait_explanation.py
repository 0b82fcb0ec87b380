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
    due_s: Mapping[str, float]  # until when it waits for one; inf if it cannot start before something ends
    stopped: frozenset[str]  # jobs that ran before, and were stopped for others
    head: str | None = None  # the first job of the queue that did not fit
    constrained_head: str | None = None  # the first that its constraints let wait
    estimated_s: float = math.inf  # when the first running job is expected to end whose end is only estimated

    def without(self, job_id: str) -> "WaitMemory":
        """Return the same without what is known of a job."""
        return self._replace(
            promises=tuple(each for each in self.promises if each.job_id != job_id),
            since_s={each: since_s for each, since_s in self.since_s.items() if each != job_id},
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
        due_s = self.due_s.get(job_id, math.inf)
        if promise.machines and job_id in self.since_s and due_s < math.inf:
            names = ", ".join([self.cluster.machines[machine].name for machine in promise.machines])
            racks = {self.cluster.rack_of[machine] for machine in promise.machines}
            where = "on fewer machines" if len(racks) > 1 else "in one rack"
            where = "on one machine" if len(promise.machines) == 1 else where
            saves = f"{where} it takes {due_s - self.since_s[job_id]:,.0f} s less"
            return f"waits for {names}, with room expected at {promise.start_s:,.0f} s: {saves}"
        return self._promise(promise, now_s)

    def _promise(self, promise: PromisedStart, now_s: float) -> str:
        """Say what was promised, how sure that is, and whether it has passed."""
        at_s = f"at {promise.start_s:,.0f} s"
        if promise.start_s < now_s:
            return f"should have started {at_s}, but running jobs take longer than expected"
        if self.estimated_s <= promise.start_s:
            return f"is expected to start {at_s}, by estimates of how long running jobs still take"
        return f"is promised a start {at_s} at the latest"
