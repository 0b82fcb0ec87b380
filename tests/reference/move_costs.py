"""What running jobs cost from now on, by the book, and every move of one job to one machine."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cranny.core.accounting import Running
from cranny.core.protocol import SharedSlowdowns
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.placement import Placement
from cranny.network.steady.shared_links import SharedLinks


class Job(NamedTuple):
    """A running job, its remaining seconds on one machine, and those before it goes on."""

    running: Running
    left_s: float
    delay_s: float = 0.0


def slowdowns(cluster: Cluster, running: Mapping[str, Running]) -> dict[str, float]:
    """Return how many times longer than on one machine each job takes, on links put together anew."""
    links = SharedLinks(cluster)
    found: dict[str, float] = {}
    for each in running.values():
        changed = links.start(each)
        if isinstance(changed, SharedSlowdowns):
            for number, slowdown in zip(changed.numbers.tolist(), changed.slowdown.tolist(), strict=True):
                found[changed.ids[number]] = slowdown
        else:
            found.update(changed)
    return found


def ends(cluster: Cluster, jobs: Mapping[str, Job]) -> dict[str, float]:
    """Return when each job ends, in seconds from now; all speeds are computed anew whenever one does."""
    left = {job_id: job.left_s for job_id, job in jobs.items()}
    now_s, ended = 0.0, {}
    while left:
        slow = slowdowns(cluster, {job_id: jobs[job_id].running for job_id in left})
        first = min(left, key=lambda job_id: left[job_id] * slow[job_id])
        step_s = left[first] * slow[first]
        now_s += step_s
        ended[first] = now_s + jobs[first].delay_s
        left = {job_id: s - step_s / slow[job_id] for job_id, s in left.items() if job_id != first}
    return ended


def cost(cluster: Cluster, jobs: Mapping[str, Job]) -> float:
    """Return the GPU-seconds of jobs until they end, and of machines until their last job ends."""
    end_s = ends(cluster, jobs)
    total = sum(job.running.job.gpus * end_s[job_id] for job_id, job in jobs.items())
    for number, machine in enumerate(cluster.machines):
        there = [end_s[job_id] for job_id, job in jobs.items() if number in job.running.held]
        total += machine.gpus * max(there, default=0.0)
    return total


def moves_to_one_machine(
    view: Snapshot, jobs: Mapping[str, Job], restart_s: Callable[[str], float]
) -> Iterator[tuple[str, int, float]]:
    """Yield every move of one job to one machine, and the GPU-seconds that it saves, its restart included."""
    before = cost(view.cluster, jobs)
    for job_id, job in jobs.items():
        without = view.without(job_id)
        for machine in range(len(view.cluster.machines)):
            if without.free_on(machine) < job.running.job.gpus or set(job.running.held) == {machine}:
                continue
            placement = Placement((machine,) * job.running.job.gpus)
            there = Job(without.as_running(job.running.job, placement), job.left_s, restart_s(job_id))
            yield job_id, machine, before - cost(view.cluster, {**jobs, job_id: there})
