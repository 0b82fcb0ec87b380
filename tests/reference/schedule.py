"""The least mean completion time of a few jobs without stops, by trying every order and every division of GPUs.

A job keeps its GPUs from its start to its end. In some best schedule each job starts when one is submitted or
ends: otherwise it could start earlier. So from event to event, jobs are started in all ways, or left waiting.
"""

from collections.abc import Sequence
from functools import lru_cache

from cranny.model.cluster import Cluster
from cranny.model.job import Job
from tests.reference.links import communicate
from tests.reference.table3 import spreads

Held = tuple[float, tuple[int, ...]]  # the end of a running job, and its GPUs on each machine


@lru_cache(maxsize=4096)
def _runs_s(cluster: Cluster, job: Job, gpus_on: tuple[int, ...]) -> float:
    """Return how long a job runs with its ranks in order, rack by rack."""
    ranks = [machine for machine, gpus in enumerate(gpus_on) for _ in range(gpus)]
    return (job.duration_s or 0.0) * (1 + communicate(cluster, job, ranks).comm_s / job.profile.iteration_s)


def least_mean_jct_s(cluster: Cluster, jobs: Sequence[Job]) -> float:
    """Return the least mean completion time of all schedules."""
    return _least_total_s(cluster, tuple(jobs), 0.0, ()) / len(jobs)


def _least_total_s(cluster: Cluster, left: tuple[Job, ...], now_s: float, running: tuple[Held, ...]) -> float:
    """Return the least sum of completion times of the jobs left, none of which starts before now."""
    if not left:
        return 0.0
    free = [
        machine.gpus - sum(gpus_on[index] for end_s, gpus_on in running if end_s > now_s)
        for index, machine in enumerate(cluster.machines)
    ]
    totals_s = []
    for job in left:
        for gpus_on in spreads(job.gpus, free) if job.submit_s <= now_s else ():
            end_s = now_s + _runs_s(cluster, job, gpus_on)
            others = tuple(other for other in left if other is not job)
            rest_s = _least_total_s(cluster, others, now_s, (*running, (end_s, gpus_on)))
            totals_s.append(end_s - job.submit_s + rest_s)
    events_s = [job.submit_s for job in left] + [end_s for end_s, _ in running]
    if next_s := min((event_s for event_s in events_s if event_s > now_s), default=0.0):
        totals_s.append(_least_total_s(cluster, left, next_s, running))
    return min(totals_s, default=float("inf"))
