"""The jobs of an event log as a log that `cranny what-if` reads: when they came, and where and when they ran.

It has the columns of sacct, and a row for each attempt. What other schedulers started is in it as it was observed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cranny.model.cluster import Cluster
from cranny.model.cluster_values import cluster_of_values
from cranny.model.errors import InputError
from cranny.model.hostlist import fold
from cranny.service.event_chain import EventRow
from cranny.service.job_record import OVER

COLUMNS = (
    "JobID",
    "User",
    "Partition",
    "State",
    "Submit",
    "Start",
    "End",
    "Timelimit",
    "NodeList",
    "AllocTRES",
    "ReqTRES",
)
STATES = {"done": "COMPLETED", "cancelled": "CANCELLED"}  # others have failed


class JobLog(NamedTuple):
    """A log of jobs, and the cluster as it was last."""

    text: str
    rows: int
    cluster: Cluster


@dataclass
class _OpenJob:
    """A job that is not over."""

    user: str
    spec: dict[str, Any]
    submitted_s: float
    names: list[str] = field(default_factory=list)  # the machine of each rank
    types: set[str] = field(default_factory=set)
    started_s: float | None = None

    def leave(self) -> None:
        """Wait again."""
        self.names, self.types, self.started_s = [], set(), None


def logged_jobs(events: Iterable[EventRow], since_s: float, cluster: Cluster | None = None) -> JobLog:
    """Return the jobs of an event log that waited or ran at a time or later; those that go on have no end.

    `cluster` is the one that the log is for until it says that itself.
    """
    reader = _RowsOfEvents(cluster)
    rows = ["|".join(COLUMNS)]
    for event in events:
        rows += [row for ended_s, row in reader.read(event) if ended_s >= since_s]
    rows += reader.unfinished()
    if reader.cluster is None:
        raise InputError("the event log does not say which cluster it is for: it is older than logs that do")
    return JobLog("\n".join(rows) + "\n", len(rows) - 1, reader.cluster)


class _RowsOfEvents:
    """Folds events into rows."""

    def __init__(self, cluster: Cluster | None) -> None:
        self.cluster = cluster
        self._open: dict[str, _OpenJob] = {}

    def read(self, event: EventRow) -> Iterator[tuple[float, str]]:
        """Take an event; yield the rows that end with it, and when they ended."""
        body, at_s = event.body, event.at_s
        if "layout" in body:
            self.cluster = cluster_of_values(body["layout"])
        if event.kind == "submitted":
            self._open[str(event.job)] = _OpenJob(body["user"], body["spec"], at_s)
        job = self._open.get(str(event.job))
        if job is None:
            return
        if event.kind in ("moved", "stopped", "ended") and job.started_s is not None:
            ended = body.get("status", "")
            state = STATES.get(ended, "FAILED") if ended in OVER else "REQUEUED"
            yield at_s, self._row(str(event.job), job, state, at_s)
        if event.kind in ("moved", "stopped", "retried"):
            job.leave()
            job.submitted_s = at_s
        if event.kind in ("placed", "moved"):
            self._put(job, body["placement"]["machines"])
        elif event.kind == "launched":
            job.started_s = at_s
        elif event.kind == "observed" and not body.get("ended"):
            self._put(job, body["placement"]["machines"])
            job.started_s = at_s
        elif event.kind == "observed" or event.kind == "cancelled":
            state = "COMPLETED" if event.kind == "observed" else "CANCELLED"
            yield at_s, self._row(str(event.job), job, state, at_s)
            del self._open[str(event.job)]
        elif event.kind == "ended" and body["status"] in OVER:
            del self._open[str(event.job)]

    def unfinished(self) -> list[str]:
        """Return the rows of jobs that wait or run."""
        return [
            self._row(job_id, job, "PENDING" if job.started_s is None else "RUNNING", None)
            for job_id, job in self._open.items()
        ]

    def _put(self, job: _OpenJob, machines: list[int]) -> None:
        """Note where a job is."""
        held = [self.cluster.machines[machine] for machine in machines] if self.cluster is not None else []
        job.names, job.types = [machine.name for machine in held], {machine.gpu_type for machine in held}

    def _row(self, job_id: str, job: _OpenJob, state: str, ended_s: float | None) -> str:
        """Return an attempt as a row of sacct."""
        gpus = len(job.names) or int(job.spec.get("gpus", 1))
        kind = next(iter(job.types), "") if len(job.types) == 1 else ""
        tres = f"gres/gpu={gpus},gres/gpu:{kind}={gpus}" if kind else f"gres/gpu={gpus}"
        partition = (job.spec.get("constraints") or {}).get("partition") or job.spec.get("queue") or ""
        limit_s = job.spec.get("time_limit_s")
        ran_on = fold(list(dict.fromkeys(job.names))) if job.names else "None assigned"
        values = (
            *(job_id, job.user, partition, state),
            *(_seconds(each) for each in (job.submitted_s, job.started_s, ended_s)),
            "" if limit_s is None else _length(limit_s),
            *(ran_on, tres if job.names else "", tres),
        )
        return "|".join(value.replace("|", "_").replace("\n", " ") for value in values)


def _seconds(at_s: float | None) -> str:
    return "Unknown" if at_s is None else f"{at_s:.0f}"


def _length(length_s: float) -> str:
    """Return a time limit as sacct writes it."""
    minutes, seconds = divmod(round(length_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02}:{minutes:02}:{seconds:02}"
