"""What a policy remembers between decisions: how far jobs are, and how fast they train on each type of GPU.

A snapshot says since when a job runs and with which workers, but not how far it is. What is assumed:

- A job goes on at the speed that its workers and its own communication give it; others do not slow it down.
- One that goes on elsewhere loses its `restart_s` first. What a failure costs beyond that is not known here.
- Of a job that was there before this memory, its GPU-seconds count as if they had been those that it asked for.
- A job without a duration has as much left as it has done, and an hour at least.

Throughputs are relative to the type that a job's duration was measured on, as in `Job.speeds`. They begin with a
probe, and move with what workers report; HAS/JPS (TPDS 2024), Section III-C. A simulated job reports how fast it
really is at every decision, a live one whenever its shell calls `report`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import isolated
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import between
from cranny.policies._shared.heterogeneous.throughput_estimates import Estimates

UNKNOWN_S = 3600.0  # what a job without a duration has left at least
LEAST_LEFT = 0.01  # of its duration, for a job that runs longer than it should
SHORTEST_S = 1.0
NOTICED = 0.01  # a change of an estimate that is worth a new decision


@dataclass(slots=True)
class _Pace:
    """A stretch of running."""

    started_s: float
    placement: Placement  # a job may be moved at the moment it starts
    since_s: float  # up to when its progress is counted
    rate: float  # seconds of the job's duration that it does in one


class Memory:
    """Progress and throughputs of the jobs that are there."""

    def __init__(self, probe_error: float = 0.0, rng: np.random.Generator | None = None) -> None:
        self._error = between(probe_error, "probe_error", 0, 1, below=True)
        self._rng = rng if rng is not None else np.random.default_rng(0)
        self._done_s: dict[str, float] = {}  # of the job's duration
        self._paces: dict[str, _Pace] = {}
        self._estimates = Estimates()
        self.changes = 0  # of estimates, so far

    def follow(self, view: Snapshot) -> None:
        """Note how far jobs are now, and forget those that are gone."""
        now_s, running = view.now_s, view.running
        for job_id, pace in self._paces.items():
            if now_s > pace.since_s:
                self._done_s[job_id] += (now_s - pace.since_s) * pace.rate
                pace.since_s = now_s
                if self._error and job_id in running:
                    self._hear(running[job_id], view)
        before = {waiting.job.id: waiting.attained_gpu_s / waiting.job.gpus for waiting in view.waiting}
        before |= {job_id: job.attained_gpu_s / job.submitted.gpus for job_id, job in running.items()}
        self._done_s = {job_id: self._done_s.get(job_id, done_s) for job_id, done_s in before.items()}
        self._paces = {job_id: self._pace(job, now_s) for job_id, job in running.items()}
        if len(self._estimates.values) > 2 * len(before) * len(view.cluster.machines_with):
            kept = {key: value for key, value in self._estimates.values.items() if key[0] in before}
            self._estimates = Estimates(kept)

    def left_s(self, job: Job) -> float:
        """Return how much of a job's duration is left."""
        done_s = self._done_s.get(job.id, 0.0)
        if job.duration_s is None:
            return max(done_s, UNKNOWN_S)
        return max(job.duration_s - done_s, LEAST_LEFT * job.duration_s, SHORTEST_S)

    def speeds(self, job: Job, gpu_types: Sequence[str]) -> list[float | None]:
        """Return how fast a job is thought to be on each type of GPU; None where it cannot run."""
        return [self._speed(job, gpu_type) for gpu_type in gpu_types]

    def report(self, job_id: str, gpu_type: str, speed: float) -> None:
        """Take in how fast one worker of a job was on a type of GPU."""
        before = self._estimates.values.get((job_id, gpu_type))
        self._estimates = self._estimates.reported(job_id, gpu_type, speed, 1.0)
        now = self._estimates.values[job_id, gpu_type]
        if before is None or now is None or abs(now - before) > NOTICED * before:
            self.changes += 1

    def _speed(self, job: Job, gpu_type: str) -> float | None:
        known = self._estimates.values.get((job.id, gpu_type))
        true = speed_on(job, gpu_type)
        if known is not None or true is None or not self._error:
            return known if known is not None else true
        wrong = true * self._rng.uniform(1 - self._error, 1 + self._error)
        self._estimates = self._estimates.probed(job.id, gpu_type, wrong, 1.0)
        return float(wrong)

    def _hear(self, running: Running, view: Snapshot) -> None:
        """Let a job report how fast it is on the types of its workers."""
        machines = view.cluster.machines
        for gpu_type in dict.fromkeys(machines[machine].gpu_type for machine in running.held):
            true = speed_on(running.submitted, gpu_type)
            if true is not None:
                self.report(running.job.id, gpu_type, true)

    def _pace(self, running: Running, now_s: float) -> _Pace:
        """Return how fast a running job goes; one that is new here may have run for a while."""
        job_id = running.job.id
        known = self._paces.get(job_id)
        if known is not None and (known.started_s, known.placement) == (running.started_s, running.placement):
            return known
        done_s = self._done_s[job_id]
        since_s = running.started_s + (running.submitted.restart_s if done_s else 0.0)
        rate = 1 / (running.stretch * isolated(running.job, running.communication))
        if now_s > since_s:
            self._done_s[job_id] = done_s + (now_s - since_s) * rate
            since_s = now_s
        return _Pace(running.started_s, running.placement, since_s, rate)


def speed_on(job: Job, gpu_type: str) -> float | None:
    """Return how fast a job says that it is on a type of GPU; None where it cannot run."""
    if job.gpu_type not in (None, gpu_type):
        return None
    return 1.0 if job.speeds is None else job.speeds.get(gpu_type)
