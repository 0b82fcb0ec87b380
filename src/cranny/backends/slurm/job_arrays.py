"""Job arrays: Slurm keeps tasks that wait as one job until one of them is changed, which splits it off.

cranny places tasks one by one, as jobs of their own. It splits off only as many as may be placed soon, since every
task that is split off is one more job that squeue lists.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator

from cranny.backends.slurm.slurm_jobs import SlurmJob

MOST_SPLIT = 20  # tasks of an array that are split off and wait
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?(?:,|$)")


def task_numbers(written: str) -> Iterator[int]:
    """Yield the tasks of `1,3-9,20-30:5%2` in order, as far as they are written."""
    for first, last, step in _RANGE.findall(written.partition("%")[0]):
        yield from range(int(first), int(last or first) + 1, max(1, int(step or 1)))


class ArrayLimits:
    """How many tasks of each array may still be placed, by the limit that the array has (`--array=1-99%4`)."""

    def __init__(self, jobs: Iterable[SlurmJob], gated: Container[int]) -> None:
        """Count the tasks that run, or were released: those that are neither over nor wait to be placed."""
        self._taken = Counter(
            job.array for job in jobs if job.array and not (job.unsplit or job.over or job.id in gated)
        )

    def take(self, job: SlurmJob) -> bool:
        """Count one task more; return False if its array may not have it now."""
        if not job.array:
            return True
        if job.most_tasks and self._taken[job.array] >= job.most_tasks:
            return False
        self._taken[job.array] += 1
        return True


def to_split(arrays: Iterable[SlurmJob], tasks: Iterable[SlurmJob]) -> Iterator[tuple[SlurmJob, str]]:
    """Yield which tasks to split off: the job that stands for them, and what commands call the task."""
    waiting = Counter(task.array for task in tasks)
    for job in arrays:
        most = min(MOST_SPLIT, job.most_tasks or MOST_SPLIT)
        numbers = task_numbers(job.unsplit)
        for _ in range(most - waiting[job.array]):
            if (number := next(numbers, None)) is not None:
                yield job, f"{job.array}_{number}"
