"""Drives a scheduler through time without processes.

Jobs start at once and end when they have run for as long as they say; the policy is asked when it wants to be.
"""

import math
from collections.abc import Mapping
from typing import Any

from tests.reference.constraints import violated
from tests.reference.invariants import check

from cranny.backends.protocol import Ended
from cranny.model.cluster import Cluster
from cranny.service.executor import AttemptLaunched
from cranny.service.job_record import JobRecord
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler

RUNS_S = 100.0  # of jobs that do not say


class SchedulerDriver:
    """A scheduler under one policy, with the time and what is left of each job."""

    def __init__(self, cluster: Cluster, policy: Mapping[str, Any]) -> None:
        self.scheduler = Scheduler(cluster, "run", Limits())
        self.now_s = 0.0
        self.left_s: dict[str, float] = {}
        self.started_s: dict[str, float] = {}  # of the jobs that run
        self.first_start_s: dict[str, float] = {}
        self.stops: list[str] = []  # jobs that were stopped or moved, in order
        self._seen = 0
        self.scheduler.open(0.0)
        self.scheduler.set_policy(dict(policy), "root", 0.0)
        self._see()

    def submit(self, gpus: int, **spec: Any) -> str:
        """Submit a job; return its id."""
        record, _ = self.scheduler.submit("ann", {"command": ["true"], "gpus": gpus, **spec}, None, self.now_s)
        self.left_s.setdefault(record.id, float(spec.get("duration_s", RUNS_S)))
        self._see()
        return record.id

    def record(self, job_id: str) -> JobRecord:
        """Return the record of a job."""
        return self.scheduler.find(job_id)

    def machines(self, job_id: str) -> set[str]:
        """Return the names of the machines of a running job."""
        running = self.scheduler.engine.state.find(job_id)
        return {self.scheduler.cluster.machines[machine].name for machine in running.placement.machines}

    def why(self, job_id: str) -> str:
        """Return why a job waits."""
        return self.scheduler.engine.why_wait(job_id, self.now_s)

    def drain(self, machine: int) -> None:
        """Place no more jobs on a machine."""
        self.scheduler.drain(machine, "root", self.now_s)
        self._see()

    def resume(self, machine: int) -> None:
        """Place jobs on a machine again."""
        self.scheduler.resume(machine, "root", self.now_s)
        self._see()

    def cancel(self, job_id: str) -> None:
        """Cancel a job, whose processes go on for now."""
        self.scheduler.cancel(job_id, "root", self.now_s)
        self._see()

    def run_until(self, until_s: float) -> None:
        """Let time pass."""
        while True:
            ends = {job_id: at_s + self.left_s[job_id] for job_id, at_s in self.started_s.items()}
            end_s = min(ends.values(), default=math.inf)
            tick_s = self.scheduler.engine.next_tick_s(self.now_s)
            if min(end_s, tick_s) > until_s:
                break
            self.now_s = max(self.now_s, min(end_s, tick_s))
            if end_s <= tick_s:
                self.end(min(ends, key=lambda job_id: ends[job_id]))
            else:
                self.scheduler.tick(self.now_s)
                self._see()
        self.now_s = max(self.now_s, until_s)
        self.scheduler.tick(self.now_s)
        self._see()

    def end(self, job_id: str) -> None:
        """Let the processes of a running job exit."""
        record = self.record(job_id)
        del self.started_s[job_id]
        self.scheduler.attempt_ended(Ended(job_id, len(record.attempts), 0, "finished"), self.now_s)
        self._see()

    def _see(self) -> None:
        """Carry out what was decided, and check it."""
        scheduler = self.scheduler
        while self._seen < len(scheduler.rows):
            row = scheduler.rows[self._seen]
            self._seen += 1
            job_id = str(row.job)
            if row.kind in {"stopped", "moved"}:
                self.stops.append(job_id)
                self.left_s[job_id] -= row.at_s - self.started_s.pop(job_id)
            if row.kind in {"placed", "moved"}:
                self.started_s[job_id] = row.at_s
                self.first_start_s.setdefault(job_id, row.at_s)
        for record in scheduler.records.jobs.values():
            for attempt in list(record.leaving):
                scheduler.attempt_ended(Ended(record.id, attempt.number, 0, "cancelled"), self.now_s)
            if record.status == "starting":
                scheduler.attempt_launched(AttemptLaunched(record.id, len(record.attempts)), self.now_s)
        check(scheduler.engine.state)
        for job_id, running in scheduler.engine.state.running.items():
            spec = self.record(job_id).spec
            told = spec.constraints.model_dump(exclude_defaults=True)
            assert not violated(told, running.placement, scheduler.cluster), (job_id, told, running.placement)
        stopped = [self.record(job_id).spec for job_id in self.stops]
        assert not any(spec.never_stopped for spec in stopped)
        assert all(spec.may_stop for spec in stopped) or scheduler.records.policy["name"] != "cranny"
