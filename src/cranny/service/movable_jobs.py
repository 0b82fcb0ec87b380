"""Moves of running jobs that pay, for a service: only of jobs whose job file says that they may move."""

from itertools import islice
from typing import NamedTuple

from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.policies.cranny.durations import DurationEstimates
from cranny.policies.cranny.move_search import proposed_moves
from cranny.policies.cranny.moves import MoveGroup, MoveRules
from cranny.service.job_record import JobRecord
from cranny.service.service import Service

LEARNED_FROM = 3_000  # of the latest jobs, those that are done


class MovableJobs(NamedTuple):
    """What decides about moves at one moment: the cluster, the jobs that may move, and how long jobs run."""

    view: Snapshot
    rules: MoveRules

    def find(self) -> list[MoveGroup]:
        """Return the moves that pay; it takes its time, and no lock."""
        return proposed_moves(self.view, self.rules)


def movable_jobs(service: Service, margin: float) -> MovableJobs:
    """Copy what decides about moves now."""
    with service.lock:
        fork, now_s = service.fork(), service.now_s()
        records = fork.records.jobs
        running = {job_id: records[job_id] for job_id in fork.state.running if job_id in records}
        movable = {
            job_id for job_id, record in running.items() if record.spec.may_stop and record.status == "running"
        }
        limit_s = {job_id: _limit_s(record, now_s) for job_id, record in running.items()}
        constraints = {job_id: record.constraints for job_id, record in records.items() if not record.over}
        latest = list(islice(reversed(records.values()), LEARNED_FROM))
        done = [(record.job, _ran_s(record)) for record in reversed(latest) if record.status == "done"]
    estimates = DurationEstimates()
    for job, ran_s in done:
        estimates.learn(job, ran_s)

    def left_s(job: Job, ran_s: float) -> float:
        left = estimates.remaining(job, ran_s).median_s
        limit = limit_s.get(job.id)
        return left if limit is None else min(left, limit)

    rules = MoveRules(lambda job: job.id in movable, left_s, constraints.get, margin)
    return MovableJobs(fork.state.snapshot(now_s, fork.queue), rules)


def _limit_s(record: JobRecord, now_s: float) -> float | None:
    """Return the seconds after which a running job is ended at the latest; None if there is no such limit."""
    attempt, limit_s = record.attempt, record.spec.time_limit_s
    if record.status == "stopping":
        return 0.0
    if attempt is None or limit_s is None:
        return None
    return max(0.0, (attempt.started_s or attempt.placed_s) + limit_s - now_s)


def _ran_s(record: JobRecord) -> float:
    """Return how long a job ran that is done: from its last start, as it may save nothing before."""
    attempt = record.attempt
    start_s = record.observed_s if attempt is None else attempt.started_s
    if start_s is None or record.ended_s is None:
        return 0.0
    return max(0.0, record.ended_s - start_s)
