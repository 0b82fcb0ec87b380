"""What is expected: when running jobs end, and when those that wait start."""

import math
from heapq import heapify, heappop, heappush

from cranny.core.books import Running
from cranny.core.queue import remaining_s
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import isolated
from cranny.service.ledger import Record
from cranny.service.trial import Stand

FORESEEN = 1_000  # jobs of the queue whose start is foreseen


def end_s(running: Running, record: Record) -> float:
    """Return when a running job is expected to end, at its time limit at the latest; inf if nobody knows."""
    slowdown = isolated(running.job, running.communication) * running.stretch
    end = running.started_s + remaining_s(running.job, running.attained_gpu_s, slowdown)
    attempt, limit_s = record.attempt, record.spec.time_limit_s
    if attempt is None or limit_s is None:  # nobody else keeps to our time limits
        return end
    return min(end, (attempt.started_s or attempt.placed_s) + limit_s)


def expected_end_s(record: Record, view: Snapshot) -> float | None:
    """Return when a job is expected to end; None if it does not run, is being stopped, or nobody knows."""
    running = view.running.get(record.id)
    if running is None or record.status not in {"starting", "running"}:
        return None
    end = end_s(running, record)
    return None if math.isinf(end) else end


def given_back(running: Running, view: Snapshot) -> int:
    """Count the GPUs that others may have when a job ends: none of machines that take no jobs."""
    return sum(gpus.bit_count() for machine, gpus in running.held.items() if view.is_up(machine))


def foresee(stand: Stand, view: Snapshot) -> dict[str, float]:
    """Foresee when jobs of the queue start, in order and by the numbers of GPUs; those unknown are left out."""
    records = stand.ledger.jobs
    ends = [
        (end_s(running, records[job_id]), given_back(running, view)) for job_id, running in view.running.items()
    ]
    heapify(ends)
    free, now_s = view.machines.gpus, view.now_s
    starts: dict[str, float] = {}
    for waiting in stand.queue[:FORESEEN]:
        job = waiting.job
        least = job.least_gpus or job.gpus
        while free < least and ends:
            end, gpus = heappop(ends)
            now_s, free = max(now_s, end), free + gpus
        if free < least or math.isinf(now_s):
            break
        starts[job.id] = now_s
        free -= least
        limit_s = records[job.id].spec.time_limit_s if job.id in records else None
        left_s = min(remaining_s(job, waiting.attained_gpu_s, 1.0), limit_s or math.inf)
        heappush(ends, (now_s + left_s, least))
    return starts
