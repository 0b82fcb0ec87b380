"""How many unfinished jobs there are, and how many GPUs they ask for, by user and by queue."""

from collections import Counter
from typing import NamedTuple

from cranny.service.job_spec import JobSpec


class JobCount(NamedTuple):
    """Jobs, and the GPUs that they ask for together."""

    jobs: int
    gpus: int


class OpenJobs:
    """Counts of unfinished jobs, kept as they come and end: no submission looks at all of them."""

    def __init__(self) -> None:
        self.total = 0
        self.resizable = 0  # that may run with fewer or more GPUs than they ask for
        self._jobs: Counter[tuple[str, str]] = Counter()  # by ("user", name) and ("queue", name)
        self._gpus: Counter[tuple[str, str]] = Counter()

    def of_user(self, user: str) -> JobCount:
        """Return the jobs of a user."""
        return JobCount(self._jobs["user", user], self._gpus["user", user])

    def in_queue(self, queue: str) -> JobCount:
        """Return the jobs in a queue."""
        return JobCount(self._jobs["queue", queue], self._gpus["queue", queue])

    def add(self, user: str, spec: JobSpec) -> None:
        """Count a job that has come."""
        self._count(user, spec, 1)

    def remove(self, user: str, spec: JobSpec) -> None:
        """Count a job that is over."""
        self._count(user, spec, -1)

    def _count(self, user: str, spec: JobSpec, jobs: int) -> None:
        self.total += jobs
        self.resizable += jobs if spec.is_resizable else 0
        for key in (("user", user), ("queue", spec.queue or "")):
            self._jobs[key] += jobs
            self._gpus[key] += jobs * spec.gpus
            if not self._jobs[key]:
                del self._jobs[key], self._gpus[key]
