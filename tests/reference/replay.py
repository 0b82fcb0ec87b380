"""A replay with nothing clever in it: best fit, first come first served, isolated network.

All ends and arrivals of an instant are taken in before a decision. Every decision scans all machines, and after
every instant every measure is worked out again from who sits where.
Definitions are those of `cranny.sim.metrics` and `cranny.sim.result`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cranny.model.cluster import Cluster
from cranny.model.job import Job
from tests.reference.links import communicate

HOUR_S = 3600.0


@dataclass
class Running:
    """A job that runs."""

    job: Job
    machines: list[int]  # of each rank
    end_s: float
    slowdown: float
    cross_bytes: float

    @property
    def duration_s(self) -> float:
        """Seconds that the job asked for."""
        return self.job.duration_s or 0.0


def best_fit(cluster: Cluster, free: Sequence[int], job: Job) -> list[int] | None:
    """Return the machine of each rank: the tightest that holds what is left, else the emptiest, and again."""
    free = list(free)
    ranks: list[int] = []
    while len(ranks) < job.gpus:
        left = job.gpus - len(ranks)
        offered = [
            m
            for m, machine in enumerate(cluster.machines)
            if free[m] > 0 and job.gpu_type in (None, machine.gpu_type)
        ]
        holding = [m for m in offered if free[m] >= left]
        if holding:
            chosen = min(holding, key=lambda m: (free[m], m))
        elif offered:
            chosen = min(offered, key=lambda m: (-free[m], m))
        else:
            return None
        taken = min(left, free[chosen])
        ranks += [chosen] * taken
        free[chosen] -= taken
    return ranks


def free_gpus(cluster: Cluster, running: Sequence[Running]) -> list[int]:
    """Count the free GPUs of each machine."""
    held = Counter(machine for each in running for machine in each.machines)
    return [machine.gpus - held[m] for m, machine in enumerate(cluster.machines)]


def measure(
    cluster: Cluster, running: Sequence[Running], waiting: int, price_per_gpu_hour: float
) -> dict[str, float]:
    """Work out every measure of one moment."""
    free = free_gpus(cluster, running)
    sizes = [machine.gpus for machine in cluster.machines]
    used = [m for m, size in enumerate(sizes) if free[m] < size]
    profit_rate = 0.0
    if running:
        prices = [each.job.gpus * each.duration_s / HOUR_S * price_per_gpu_hour for each in running]
        hours = [each.duration_s * each.slowdown / HOUR_S for each in running]
        mean_price, mean_hours = sum(prices) / len(prices), sum(hours) / len(hours)
        if mean_hours:
            profit_rate = len(running) * mean_price / (len(used) * mean_hours)
    return {
        "used_machines": len(used),
        "fragmentation": sum(free[m] / sizes[m] for m in used) / len(used) if used else 0.0,
        "cross_traffic_gb": sum(each.cross_bytes for each in running) / 1e9,
        "profit_rate": profit_rate,
        "held_gpus": sum(sizes) - sum(free),
        "running_jobs": len(running),
        "waiting_jobs": waiting,
    }


def larger(job: Job, cluster: Cluster) -> bool:
    """Say whether a job asks for more GPUs of its type than the cluster has."""
    return job.gpus > sum(m.gpus for m in cluster.machines if job.gpu_type in (None, m.gpu_type))


def at_arrivals(events: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Return what an arriving job finds once its instant is over, for each of them."""
    return [event for event in events for _ in range(int(event["arrivals"]))]


def next_start(
    cluster: Cluster, running: Sequence[Running], queue: Sequence[Job]
) -> tuple[Job, list[int]] | tuple[None, None]:
    """Return the next job to start, and where; a job holds up those behind it that could use its machines."""
    taken: set[int] = set()
    for job in queue:
        could_use = {
            index for index, machine in enumerate(cluster.machines) if job.gpu_type in (None, machine.gpu_type)
        }
        if not could_use & taken:
            machines = best_fit(cluster, free_gpus(cluster, running), job)
            if machines is not None:
                return job, machines
        taken |= could_use
    return None, None


def replay(cluster: Cluster, jobs: Sequence[Job], price_per_gpu_hour: float = 1.0) -> dict[str, Any]:
    """Replay jobs; return starts and finishes by id, the jobs skipped, the timeline, and the summary."""
    running: list[Running] = []  # in order of their start
    queue: list[Job] = []
    coming = list(jobs)
    start_s: dict[str, float] = {}
    finish_s: dict[str, float] = {}
    slowdown: dict[str, float] = {}
    skipped: list[str] = []
    events: list[dict[str, float]] = []
    while coming or running:
        now_s = min([each.end_s for each in running] + [job.submit_s for job in coming])
        ended = [each for each in running if each.end_s == now_s]
        running = [each for each in running if each.end_s > now_s]
        finish_s |= {each.job.id: now_s for each in ended}
        arrived = [job for job in coming if job.submit_s == now_s]
        coming = coming[len(arrived) :]
        skipped += [job.id for job in arrived if larger(job, cluster)]
        arrived = [job for job in arrived if not larger(job, cluster)]
        if not ended and not arrived:
            continue
        queue += arrived
        while True:
            job, machines = next_start(cluster, running, queue)
            if job is None or machines is None:
                break
            queue.remove(job)
            cost = communicate(cluster, job, machines)
            slower = 1 + cost.comm_s / job.profile.iteration_s
            start_s[job.id], slowdown[job.id] = now_s, slower
            end_s = now_s + (job.duration_s or 0.0) * slower
            running.append(Running(job, machines, end_s, slower, cost.cross_bytes))
        measured = measure(cluster, running, len(queue), price_per_gpu_hour)
        events.append({"time_s": now_s, "arrivals": len(arrived), **measured})
    _sum_up(events)
    done = [job for job in jobs if job.id in finish_s]
    return {
        "start_s": start_s,
        "finish_s": finish_s,
        "slowdown": slowdown,
        "skipped": skipped,
        "timeline": at_arrivals(events),
        "summary": {
            "jobs_skipped": len(skipped),
            **_job_figures(jobs, done, start_s, finish_s, slowdown),
            **_cluster_figures(cluster, done, events, price_per_gpu_hour),
        },
    }


def _sum_up(events: list[dict[str, float]]) -> None:
    """Add the columns that grow from event to event."""
    machine_s = profit = 0.0
    for before, event in zip([None, *events[:-1]], events, strict=True):
        if before is not None:
            machine_s += before["used_machines"] * (event["time_s"] - before["time_s"])
        profit += event["profit_rate"] * event["arrivals"]
        event["machine_hours"], event["total_profit"] = machine_s / HOUR_S, profit


def _job_figures(
    jobs: Sequence[Job],
    done: Sequence[Job],
    start_s: dict[str, float],
    finish_s: dict[str, float],
    slowdown: dict[str, float],
) -> dict[str, float]:
    jct_s = [finish_s[job.id] - job.submit_s for job in done]
    wait_s = [start_s[job.id] - job.submit_s for job in done]
    return {
        "jobs_done": len(done),
        "jobs_unfinished": len(jobs) - len(done) - (len(jobs) - len(start_s)),
        "mean_jct_s": mean(jct_s),
        "p50_jct_s": quantile(jct_s, 0.5),
        "p99_jct_s": quantile(jct_s, 0.99),
        "mean_wait_s": mean(wait_s),
        "p99_wait_s": quantile(wait_s, 0.99),
        "makespan_s": max(finish_s.values()) - min(job.submit_s for job in jobs),
        "mean_comm_slowdown": mean([slowdown[job.id] for job in done]),
        "restarts": 0,
        "moves": 0,
    }


def _cluster_figures(
    cluster: Cluster, done: Sequence[Job], events: Sequence[dict[str, float]], price_per_gpu_hour: float
) -> dict[str, float]:
    arrivals = at_arrivals(events)
    gpus = sum(machine.gpus for machine in cluster.machines)
    delivered = sum(job.gpus * (job.duration_s or 0.0) for job in done) / HOUR_S
    machine_hours = events[-1]["machine_hours"]
    mean_gpus = gpus / len(cluster.machines)
    cost = machine_hours * mean_gpus * price_per_gpu_hour / delivered if delivered else 0.0
    return {
        "mean_used_machines": mean([event["used_machines"] for event in arrivals]),
        "mean_fragmentation": mean([event["fragmentation"] for event in arrivals]),
        "mean_cross_traffic_gb": mean([event["cross_traffic_gb"] for event in arrivals]),
        "mean_profit_rate": mean([event["profit_rate"] for event in arrivals]),
        "total_profit": sum(event["profit_rate"] for event in arrivals),
        "time_mean_used_machines": time_mean(events, "used_machines"),
        "time_mean_fragmentation": time_mean(events, "fragmentation"),
        "time_mean_cross_traffic_gb": time_mean(events, "cross_traffic_gb"),
        "gpu_utilisation": time_mean(events, "held_gpus") / gpus,
        "machine_hours": machine_hours,
        "gpu_hours_delivered": delivered,
        "cost_per_gpu_hour": cost,
    }


def mean(values: Sequence[float]) -> float:
    """Return the mean, 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, with a straight line between neighbours; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def time_mean(events: Sequence[dict[str, float]], name: str) -> float:
    """Return the mean over time: each value counts for as long as it held."""
    span_s = events[-1]["time_s"] - events[0]["time_s"]
    if not span_s:
        return mean([event[name] for event in events])
    held = sum(a[name] * (b["time_s"] - a["time_s"]) for a, b in pairwise(events))
    return held / span_s
