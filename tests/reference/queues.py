"""Queues with nothing clever in them: each decision goes through all waiting jobs and all running ones.

Jobs wait in order of priority, then of submission. Machines are those of a job's type of GPU and partition; jobs
are placed by best fit, and run as long as their duration says, while the queue expects them to run to their limit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cranny.model.cluster import Cluster
from cranny.model.job import Job

OVERDUE_S = 1.0


@dataclass
class Running:
    """A job that runs."""

    job: Job
    gpus_on: dict[int, int]
    start_s: float

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.start_s + (self.job.duration_s or 0.0)

    @property
    def expected_end_s(self) -> float:
        """When the queue expects it to end."""
        return self.start_s + expected_s(self.job)


Decide = Callable[[Cluster, list[Job], list[Running], float], Job | None]


def expected_s(job: Job) -> float:
    """Return how long a job is expected to run."""
    return (job.duration_s or 0.0) if job.limit_s is None else job.limit_s


def machines_of(cluster: Cluster, job: Job) -> set[int]:
    """Return the machines that a job can use."""
    inside = cluster.partitions.get(job.partition or "", range(len(cluster.machines)))
    return {m for m in inside if job.gpu_type in (None, cluster.machines[m].gpu_type)}


def free_on(cluster: Cluster, running: Sequence[Running]) -> list[int]:
    """Count the free GPUs of each machine."""
    return [each.gpus - sum(r.gpus_on.get(m, 0) for r in running) for m, each in enumerate(cluster.machines)]


def best_fit(cluster: Cluster, job: Job, running: Sequence[Running]) -> dict[int, int] | None:
    """Return the GPUs on each machine: the tightest that holds what is left, else the emptiest, and again."""
    free = free_on(cluster, running)
    taken: dict[int, int] = {}
    while (left := job.gpus - sum(taken.values())) > 0:
        offered = [m for m in machines_of(cluster, job) if free[m] > 0]
        if not offered:
            return None
        holding = [m for m in offered if free[m] >= left]
        chosen = min(holding, key=lambda m: (free[m], m)) if holding else max(offered, key=lambda m: (free[m], -m))
        taken[chosen] = taken.get(chosen, 0) + min(left, free[chosen])
        free[chosen] -= min(left, free[chosen])
    return taken


def blocking(cluster: Cluster, queue: list[Job], running: list[Running], _now_s: float) -> Job | None:
    """Return the next job of a queue in which a waiting job blocks all behind it that could use its machines."""
    blocked: set[int] = set()
    for job in queue:
        machines = machines_of(cluster, job)
        if not machines & blocked and best_fit(cluster, job, running) is not None:
            return job
        blocked |= machines
    return None


def easy(cluster: Cluster, queue: list[Job], running: list[Running], now_s: float) -> Job | None:
    """Return the next job of a queue in which the first of each line has a reservation.

    A line is of jobs linked by machines that several could use, with those before them.
    """
    firsts: list[tuple[Job, set[int]]] = []  # of each line, with the machines of all its jobs
    for job in queue:
        machines = machines_of(cluster, job)
        lines = [line for line in firsts if line[1] & machines]
        gpus_on = best_fit(cluster, job, running)
        if gpus_on is not None and all(
            _passes(cluster, job, gpus_on, first, running, now_s) for first, _ in lines
        ):
            return job
        for _, covered in lines:
            covered.update(machines)
        if not lines:
            firsts.append((job, set(machines)))
    return None


def _passes(
    cluster: Cluster, job: Job, gpus_on: dict[int, int], first: Job, running: list[Running], now_s: float
) -> bool:
    """Say whether a job ends before the first of its line can start, or leaves it enough GPUs."""
    usable = machines_of(cluster, first)
    free = sum(gpus for m, gpus in enumerate(free_on(cluster, running)) if m in usable)
    for each in sorted(running, key=lambda each: each.expected_end_s):
        freed = sum(gpus for m, gpus in each.gpus_on.items() if m in usable)
        free += freed
        if freed and free >= first.gpus:
            start_s = max(each.expected_end_s, now_s)
            held = sum(gpus for m, gpus in gpus_on.items() if m in usable)
            return now_s + expected_s(job) <= start_s or held <= free - first.gpus
    return False


def conservative(cluster: Cluster, queue: list[Job], running: list[Running], now_s: float) -> Job | None:
    """Return the next job of a queue that plans a start for every job; all machines are for all jobs."""
    planned: list[tuple[float, float, int]] = []  # from, to, GPUs
    for each in running:
        end_s = each.expected_end_s if each.expected_end_s > now_s else now_s + OVERDUE_S
        planned.append((now_s, end_s, each.job.gpus))
    for job in queue:
        for start_s in sorted({now_s} | {end_s for _, end_s, _ in planned}):
            end_s = start_s + expected_s(job)
            moments = [start_s, *(from_s for from_s, _, _ in planned if start_s < from_s < end_s)]
            most = max(sum(g for from_s, to_s, g in planned if from_s <= at_s < to_s) for at_s in moments)
            if most + job.gpus <= cluster.gpus:
                break
        if start_s == now_s and best_fit(cluster, job, running) is not None:
            return job
        planned.append((start_s, end_s, job.gpus))
    return None


def starts(cluster: Cluster, jobs: Sequence[Job], decide: Decide, *, by_priority: bool = True) -> dict[str, float]:
    """Replay jobs, all of which fit the machines that they can use; return when each starts."""
    coming, queue, running = sorted(jobs, key=lambda job: job.submit_s), list[Job](), list[Running]()
    found: dict[str, float] = {}
    while coming or running:
        now_s = min([each.end_s for each in running] + [job.submit_s for job in coming])
        running = [each for each in running if each.end_s > now_s]
        queue += [job for job in coming if job.submit_s == now_s]
        coming = [job for job in coming if job.submit_s > now_s]
        queue.sort(key=lambda job: (-job.priority if by_priority else 0.0, job.submit_s))
        while (job := decide(cluster, queue, running, now_s)) is not None:
            gpus_on = best_fit(cluster, job, running)
            assert gpus_on is not None
            queue.remove(job)
            running.append(Running(job, gpus_on, now_s))
            found[job.id] = now_s
            assert math.isfinite(now_s)
    return found
