"""Tiresias's `shortest`, second by second and by counting GPUs: no placement, and time as a counter."""

from collections.abc import Sequence

from cranny.model.job import Job


def replay(jobs: Sequence[Job], gpus: int) -> dict[str, tuple[int, int, int]]:
    """Return when each job first starts and when it ends, in whole seconds, and how often it was stopped.

    The authors' simulator goes through all jobs, the one with the least time left first, and lets each run that
    finds enough GPUs; the others are stopped, if they run, or go on waiting. Of equals the one that came first is
    first, and then a running one.
    """
    left_s = {job.id: int(job.duration_s or 0) for job in jobs}
    running: set[str] = set()
    started: dict[str, int] = {}
    ended: dict[str, int] = {}
    stops = dict.fromkeys(left_s, 0)
    now_s = 0
    while len(ended) < len(jobs):
        present = [job for job in jobs if job.submit_s <= now_s and job.id not in ended]
        free, chosen = gpus, set()
        for job in sorted(present, key=lambda each: (left_s[each.id], each.submit_s, each.id not in running)):
            if job.gpus <= free:
                free -= job.gpus
                chosen.add(job.id)
        for job_id in running - chosen:
            stops[job_id] += 1
        running = chosen
        now_s += 1
        for job_id in sorted(running):
            started.setdefault(job_id, now_s - 1)
            left_s[job_id] -= 1
            if not left_s[job_id]:
                ended[job_id] = now_s
                running.remove(job_id)
    return {job.id: (started[job.id], ended[job.id], stops[job.id]) for job in jobs}
