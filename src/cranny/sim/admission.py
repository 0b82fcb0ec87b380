"""When jobs of a log may join the queue, where that depends on other jobs.

- An attempt of a requeued job is submitted when the attempt before it has ended, and as long after that as in the
  log; never before its own time in the log. Its wait counts from then.
- Jobs of a group, such as the tasks of an array with a limit (`--array=1-100%5`), may hold so many GPUs at once.
  A job that would exceed that stays outside the queue until others of the group have ended; smaller ones may pass
  it, as in Slurm. That is waiting.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from cranny.model.job import Job


class After(NamedTuple):
    """What a job comes after."""

    job_id: str
    gap_s: float  # from the end of that job to the submission of this one


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """The rules for the jobs of a log; jobs that are not named join the queue when they arrive."""

    after: Mapping[str, After] = field(default_factory=dict)
    group_of: Mapping[str, str] = field(default_factory=dict)
    most_gpus: Mapping[str, int] = field(default_factory=dict)  # of each group at once; one job may always run

    def __bool__(self) -> bool:
        return bool(self.after or self.group_of)

    def with_groups(self, group_of: Mapping[str, str], most_gpus: Mapping[str, int]) -> "Admission":
        """Return the rules with other groups."""
        return replace(self, group_of=group_of, most_gpus=most_gpus)


class Gate:
    """What holds jobs back during one replay."""

    def __init__(self, rules: Admission) -> None:
        self._rules = rules
        self._awaited = {each.job_id for each in rules.after.values()}
        self._there: set[str] = set()  # awaited jobs that arrived and have not ended
        self._ended_s: dict[str, float] = {}  # of awaited jobs
        self._followers: dict[str, list[Job]] = defaultdict(list)
        self._held: dict[str, int] = defaultdict(int)  # GPUs of each group, of jobs in the queue and running
        self._size: dict[str, int] = {}  # GPUs of each job that counts there
        self._outside: dict[str, list[Job]] = defaultdict(list)  # in the order of arrival
        self._due: list[tuple[float, int, Job]] = []  # a heap
        self._serial = 0

    @property
    def next_s(self) -> float:
        """When the next job may join the queue, as far as that is known."""
        return self._due[0][0] if self._due else inf

    def arrive(self, job: Job, now_s: float) -> Job | None:
        """Take a job that arrives; return it if it may join the queue."""
        if job.id in self._awaited:
            self._there.add(job.id)
        before = self._rules.after.get(job.id)
        if before is not None and before.job_id in self._there:
            self._followers[before.job_id].append(job)
            return None
        if before is not None and before.job_id in self._ended_s:
            from_s = self._ended_s[before.job_id] + before.gap_s
            if from_s > now_s:
                self._later(from_s, replace(job, submit_s=from_s))
                return None
        return self._into_group(job)

    def go_on(self, job: Job) -> None:
        """Take a job that ran before the replay, whatever the limits."""
        if job.id in self._awaited:
            self._there.add(job.id)
        group = self._rules.group_of.get(job.id)
        if group is not None:
            self._count(group, job)

    def leave(self, job_id: str, now_s: float) -> None:
        """Take note that a job has ended, or was skipped."""
        if job_id in self._there:
            self._there.remove(job_id)
            self._ended_s[job_id] = now_s
            for follower in self._followers.pop(job_id, ()):
                from_s = max(follower.submit_s, now_s + self._rules.after[follower.id].gap_s)
                self._later(from_s, replace(follower, submit_s=from_s))
        if job_id in self._size:
            group = self._rules.group_of[job_id]
            self._held[group] -= self._size.pop(job_id)
            still: list[Job] = []
            for job in self._outside[group]:
                if self._has_room(group, job.gpus):
                    self._count(group, job)
                    self._later(now_s, job)
                else:
                    still.append(job)
            self._outside[group] = still

    def due(self, now_s: float) -> list[Job]:
        """Return the jobs that may join the queue by now."""
        found = []
        while self._due and self._due[0][0] <= now_s:
            job = heappop(self._due)[2]
            joins = job if job.id in self._size else self._into_group(job)
            if joins is not None:
                found.append(joins)
        return found

    def _into_group(self, job: Job) -> Job | None:
        """Return a job if its group has room for it."""
        group = self._rules.group_of.get(job.id)
        if group is None:
            return job
        if not self._has_room(group, job.gpus):
            self._outside[group].append(job)
            return None
        self._count(group, job)
        return job

    def _has_room(self, group: str, gpus: int) -> bool:
        return not self._held[group] or self._held[group] + gpus <= self._rules.most_gpus[group]

    def _count(self, group: str, job: Job) -> None:
        self._held[group] += job.gpus
        self._size[job.id] = job.gpus

    def _later(self, at_s: float, job: Job) -> None:
        self._serial += 1
        heappush(self._due, (at_s, self._serial, job))
