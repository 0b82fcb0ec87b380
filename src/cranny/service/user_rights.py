"""Rights of users: which priorities and queues their jobs may have, and how much they may ask for at a time.

Administrators may do everything. Without a file of rights, users may lower the priority of their jobs but not
raise it, and name any queue.
"""

from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from cranny.model.errors import unknown
from cranny.model.validate import counted
from cranny.model.yaml_file import Document, Fields, Name, checked
from cranny.service.job_records import JobRecords
from cranny.service.job_spec import JobSpec
from cranny.service.job_spec_errors import MAX_PRIORITY
from cranny.service.limits import ForbiddenError, Limits, QuotaExceededError
from cranny.service.open_jobs import JobCount

Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Count = Annotated[int, Field(ge=0, le=10**9)]


class UserRights(Fields):
    """What a user may do; what is not given is as for all users."""

    max_priority: Priority | None = None
    queues: list[Name] | None = None  # None for all
    jobs: Count | None = None  # unfinished ones
    gpus: Count | None = None  # of unfinished jobs together


class QueueRights(Fields):
    """Who may use a queue, and for how much."""

    users: list[Name] | None = None  # None for all
    max_priority: Priority | None = None  # of its jobs, in place of that of the user
    jobs: Count | None = None
    gpus: Count | None = None


class Rights(Fields):
    """The file of rights."""

    default: UserRights = Field(default_factory=UserRights)
    users: dict[Name, UserRights] = Field(default_factory=dict)
    queues: dict[Name, QueueRights] | None = None  # None if any name is a queue

    def of(self, user: str) -> UserRights:
        """Return the rights of a user."""
        own = self.users.get(user, UserRights())
        return UserRights(**{**self.default.model_dump(), **own.model_dump(exclude_none=True)})

    def check(self, user: str, spec: JobSpec) -> None:
        """Refuse a job whose queue or priority its user may not set."""
        own, queue = self.of(user), QueueRights()
        if spec.queue is not None:
            if self.queues is not None and spec.queue not in self.queues:
                raise ForbiddenError(f"queue: {unknown('queue', spec.queue, self.queues)}")
            queue = (self.queues or {}).get(spec.queue, queue)
            listed = own.queues is None or spec.queue in own.queues
            if not listed or (queue.users is not None and user not in queue.users):
                raise ForbiddenError(f"queue: {user} may not use {spec.queue!r}")
        most = queue.max_priority if queue.max_priority is not None else own.max_priority or 0
        if spec.priority > most:
            raise ForbiddenError(f"priority: {user} may set at most {most}, not {spec.priority}")

    def quotas(self, user: str, spec: JobSpec) -> "list[Quota]":
        """Return the quotas that a job counts against."""
        own = self.of(user)
        found = [Quota(user, None, own.jobs, own.gpus)]
        if spec.queue is not None and self.queues is not None:
            queue = self.queues[spec.queue]
            found.append(Quota(None, spec.queue, queue.jobs, queue.gpus))
        return [quota for quota in found if quota.jobs is not None or quota.gpus is not None]


class Quota(NamedTuple):
    """The most that a user, or a queue, may have of unfinished jobs."""

    user: str | None
    queue: str | None
    jobs: int | None
    gpus: int | None

    def check(self, spec: JobSpec, unfinished: JobCount) -> None:
        """Refuse a job that would exceed it, with the jobs that are unfinished."""
        name = self.user if self.queue is None else f"queue {self.queue!r}"
        if self.jobs is not None and unfinished.jobs >= self.jobs:
            raise QuotaExceededError(
                f"{name} has {counted(unfinished.jobs, 'unfinished job')}; the limit is {self.jobs}"
            )
        if self.gpus is not None and unfinished.gpus + spec.gpus > self.gpus:
            has = f"unfinished jobs of {name} have {counted(unfinished.gpus, 'GPU')}"
            raise QuotaExceededError(f"{has}; with {spec.gpus} more they would exceed the limit of {self.gpus}")


def check_quotas(user: str, spec: JobSpec, rights: Rights | None, limits: Limits, records: JobRecords) -> None:
    """Refuse a job that its user may not have, or not now."""
    unfinished = records.open_jobs
    if unfinished.of_user(user).jobs >= limits.jobs_per_user:
        raise QuotaExceededError(
            f"{user} has {counted(limits.jobs_per_user, 'unfinished job')}, the limit; cancel some"
        )
    if rights is None:
        return
    rights.check(user, spec)
    for quota in rights.quotas(user, spec):
        counted_by = unfinished.of_user(user) if quota.queue is None else unfinished.in_queue(quota.queue)
        quota.check(spec, counted_by)


def read_rights(path: Path) -> Rights:
    """Read a file of rights; bad ones get one line with file, line and field."""
    document = Document(path, frozenset({"queues"}), text_below=frozenset())
    below: dict[str, type[Fields]] = {"default": UserRights}
    value = document.value if isinstance(document.value, dict) else {}
    for section, kind in (("users", UserRights), ("queues", QueueRights)):
        names = value.get(section)
        below |= dict.fromkeys(names if isinstance(names, dict) else (), kind)
    words = {
        "max_priority": f"a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}",
        **dict.fromkeys(("jobs", "gpus"), "a whole number from 0 up"),
        **dict.fromkeys(("default", *below), "a mapping of fields"),
        "queues": "a list of names, or at the top a mapping of names to fields",
        "users": "a list of names, or at the top a mapping of names to fields",
        **dict.fromkeys(("queues[]", "users[]"), "a name"),
    }
    return checked(document, Rights, below, words)
