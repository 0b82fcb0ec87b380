"""What a policy knows of jobs between decisions: their progress, and their throughput on each type of GPU.

A snapshot says since when a job runs and with which workers, but not its progress. What is assumed:

- A job runs at the speed that its workers and its own communication give it; contention is not counted.
- A job that is moved first loses its `restart_s`. What a failure costs beyond that is not known here.
- For a job that ran before this policy, its GPU-seconds count as if it had held what it asked for.
- A job without a duration has as much left as it has done, and at least an hour.

Throughputs are relative to the type that a job's duration was measured on, as in `Job.speeds`; HAS/JPS (TPDS
2024), Section III-C. A job is first probed: it processes a few samples on one worker of each GPU type. Later,
after each epoch, workers report, and an exponentially weighted moving average follows the reports. The paper gives
no weight; ours is 0.3: an estimate follows a lasting change within some ten reports, and a single outlier moves it
by less than a third. A simulated job reports its true speed at every decision, a live one whenever the service
calls `report`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import isolated
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import between, positive

WEIGHT = 0.3  # of a new report
UNKNOWN_S = 3600.0  # what a job without a duration has left at least
LEAST_LEFT = 0.01  # of its duration, for a job that runs longer than its duration
SHORTEST_S = 1.0
NOTICED = 0.01  # a relative change of an estimate that calls for a new decision


@dataclass(slots=True)
class _RunSegment:
    """A period in which a job runs with one placement."""

    started_s: float
    placement: Placement  # a job may be moved at the moment it starts
    since_s: float  # until when its progress is counted
    rate: float  # seconds of the job's duration done in one second


class JobEstimates:
    """Progress and throughputs of the jobs in the cluster."""

    def __init__(self, probe_error: float = 0.0, rng: np.random.Generator | None = None) -> None:
        self._error = between(probe_error, "probe_error", 0, 1, below=True)
        self._rng = rng if rng is not None else np.random.default_rng(0)
        self._done_s: dict[str, float] = {}  # of the job's duration
        self._segments: dict[str, _RunSegment] = {}
        self._speeds: dict[tuple[str, str], float] = {}  # of one worker, by job and type of GPU
        self._jobs: dict[str, Job] = {}  # running ones, as they were submitted
        self.changes = 0  # of estimates, so far

    def follow(self, view: Snapshot) -> None:
        """Update the progress of jobs, and forget those that are gone."""
        now_s, running = view.now_s, view.running
        for job_id, segment in self._segments.items():
            if now_s > segment.since_s:
                self._done_s[job_id] += (now_s - segment.since_s) * segment.rate
                segment.since_s = now_s
                if self._error and job_id in running:
                    for gpu_type in {view.cluster.machines[at].gpu_type: None for at in running[job_id].held}:
                        if (true := speed_on(running[job_id].submitted, gpu_type)) is not None:
                            self.report(job_id, gpu_type, true)
        before = {waiting.job.id: waiting.attained_gpu_s / waiting.job.gpus for waiting in view.waiting}
        before |= {job_id: job.attained_gpu_s / job.submitted.gpus for job_id, job in running.items()}
        self._done_s = {job_id: self._done_s.get(job_id, done_s) for job_id, done_s in before.items()}
        self._notice({job_id: job.submitted for job_id, job in running.items()})
        self._segments = {job_id: self._segment(job, now_s) for job_id, job in running.items()}
        if len(self._speeds) > 2 * len(before) * len(view.cluster.machines_with):
            self._speeds = {key: speed for key, speed in self._speeds.items() if key[0] in before}

    def _notice(self, running: Mapping[str, Job]) -> None:
        """Notice jobs whose speeds or profiles are other ones than before, as a service learns them."""
        for job_id, job in running.items():
            before = self._jobs.get(job_id)
            if before is not None and (before.speeds, before.profile) != (job.speeds, job.profile):
                self.changes += 1
                self._segments.pop(job_id, None)
        self._jobs = dict(running)

    def left_s(self, job: Job) -> float:
        """Return how much of a job's duration is left."""
        done_s = self._done_s.get(job.id, 0.0)
        if job.duration_s is None:
            return max(done_s, UNKNOWN_S)
        return max(job.duration_s - done_s, LEAST_LEFT * job.duration_s, SHORTEST_S)

    def speeds(self, job: Job, gpu_types: Sequence[str]) -> list[float | None]:
        """Return the estimated speed of a job on each type of GPU; None where it cannot run."""
        found: list[float | None] = []
        for gpu_type in gpu_types:
            known, true = self._speeds.get((job.id, gpu_type)), speed_on(job, gpu_type)
            if known is None and true is not None and self._error:  # a probe, which is wrong by up to the error
                known = float(true * self._rng.uniform(1 - self._error, 1 + self._error))
                self._speeds[job.id, gpu_type] = known
            found.append(true if known is None else known)
        return found

    def report(self, job_id: str, gpu_type: str, speed: float) -> None:
        """Update the estimate by the measured speed of one worker on a type; a first report counts as a probe."""
        speed = positive(speed, f"job {job_id!r} on {gpu_type}: samples")
        before = self._speeds.get((job_id, gpu_type))
        now = speed if before is None else before + WEIGHT * (speed - before)
        self._speeds[job_id, gpu_type] = now
        if before is None or abs(now - before) > NOTICED * before:
            self.changes += 1

    def _segment(self, running: Running, now_s: float) -> _RunSegment:
        """Return the present run of a job; a job that is new here may have run for a while."""
        job_id = running.job.id
        known = self._segments.get(job_id)
        if known is not None and (known.started_s, known.placement) == (running.started_s, running.placement):
            return known
        done_s = self._done_s[job_id]
        since_s = running.started_s + (running.submitted.restart_s if done_s else 0.0)
        rate = 1 / (running.stretch * isolated(running.job, running.communication))
        if now_s > since_s:
            self._done_s[job_id] = done_s + (now_s - since_s) * rate
            since_s = now_s
        return _RunSegment(running.started_s, running.placement, since_s, rate)


def speed_on(job: Job, gpu_type: str) -> float | None:
    """Return the speed of a job on a type of GPU, as submitted; None where it cannot run."""
    if job.gpu_type not in (None, gpu_type):
        return None
    return 1.0 if job.speeds is None else job.speeds.get(gpu_type)
