"""Jobs that others hold back, instant by instant: first come, first served, best fit, nothing clever."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cranny.model.cluster import Cluster
from cranny.model.job import Job
from tests.reference.queues import Running, best_fit, blocking


def starts(
    cluster: Cluster,
    jobs: Sequence[Job],
    after: Mapping[str, tuple[str, float]],
    group_of: Mapping[str, str],
    most_gpus: Mapping[str, int],
) -> dict[str, tuple[float, float]]:
    """Return when each job is submitted and starts; all of them fit the cluster."""
    known = {job.id for job in jobs}
    coming, outside, queue = list(jobs), list[Job](), list[Job]()
    running: list[Running] = []
    ended_s: dict[str, float] = {}
    found: dict[str, tuple[float, float]] = {}

    def submitted_s(job: Job) -> float | None:
        """Return when a job is submitted, if that is known by now."""
        before, gap_s = after.get(job.id, ("", 0.0))
        if before not in known:
            return job.submit_s
        return max(job.submit_s, ended_s[before] + gap_s) if before in ended_s else None

    while coming or outside or queue or running:
        times_s = [each.end_s for each in running]
        times_s += [at_s for job in coming if (at_s := submitted_s(job)) is not None]
        now_s = min(times_s)
        ended_s |= {each.job.id: now_s for each in running if each.end_s <= now_s}
        running = [each for each in running if each.end_s > now_s]
        for job in list(coming):
            at_s = submitted_s(job)
            if at_s is not None and at_s <= now_s:
                coming.remove(job)
                outside.append(replace(job, submit_s=at_s))
        for job in list(outside):
            group = group_of.get(job.id)
            mates = [each for each in [*queue, *(run.job for run in running)] if group_of.get(each.id) == group]
            held = sum(each.gpus for each in mates)
            if group is None or not held or held + job.gpus <= most_gpus[group]:
                outside.remove(job)
                queue.append(job)
        queue.sort(key=lambda job: job.submit_s)
        while (first := blocking(cluster, queue, running, now_s)) is not None:
            gpus_on = best_fit(cluster, first, running)
            assert gpus_on is not None
            queue.remove(first)
            running.append(Running(first, gpus_on, now_s))
            found[first.id] = first.submit_s, now_s
    return found
