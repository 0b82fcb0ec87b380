"""A window of a log, job by job."""

from typing import NamedTuple


class Job(NamedTuple):
    """A job of a log; times in seconds."""

    name: str
    submit: float
    start: float
    duration: float


class Part(NamedTuple):
    """What of a job lies in a window, on the window's clock."""

    name: str
    submit: float
    start: float
    duration: float
    counted: bool


def cut(jobs: list[Job], begin: int, end: int, warm_up: int) -> list[Part]:
    """Count the whole seconds of each job that lie in the window; one that waits when it ends stays as it is."""
    parts = []
    for job in jobs:
        held = [second for second in range(int(job.start), int(job.start + job.duration)) if begin <= second < end]
        if job.duration == 0 and begin <= job.start < end:
            held = [int(job.start)]
        waits_on = job.start >= end > job.submit
        if not held and not waits_on:
            continue
        lasted = float(job.duration) if waits_on else float(len(held)) if job.duration else 0.0
        counts = job.submit >= begin + warm_up
        parts.append(Part(job.name, max(job.submit - begin, 0.0), max(job.start - begin, 0.0), lasted, counts))
    return parts
