"""What policies ask of waiting jobs, as arrays: most jobs that wait are the same as at the decision before."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.job import Job
from cranny.policies._shared.resize import elastic

COLUMNS = 8
SPARE = 1_000  # rows of jobs that no longer wait, beyond those that do, before all are made anew


class WaitingColumns(NamedTuple):
    """Jobs in their order, (jobs,) each."""

    gpus: Floats
    least_gpus: Floats
    most_gpus: Floats
    attained_gpu_s: Floats
    duration_s: Floats  # NaN if not known
    submit_s: Floats
    elastic: Flags
    kind: Ints  # equal for jobs that may use the same machines


class WaitingArrays:
    """Rows of jobs, found by the objects in the queue: a job that is put back with more service is another one."""

    def __init__(self) -> None:
        self._forget()

    def __reduce__(self) -> tuple[type["WaitingArrays"], tuple[()]]:
        """Make copies that are empty: what is found by identity here would be something else there."""
        return WaitingArrays, ()

    def _forget(self) -> None:
        self._row: dict[int, int] = {}  # by the identity of an entry, which `_entries` keeps alive
        self._entries: list[Waiting] = []
        self._values: Floats = np.empty((0, COLUMNS))
        self._kinds: dict[tuple[object, ...], int] = {}
        self._of_kind: list[Job] = []  # one job of each kind

    def columns(self, waiting: Sequence[Waiting]) -> WaitingColumns:
        """Return the columns of some jobs."""
        if len(self._entries) > 2 * len(waiting) + SPARE:
            self._forget()
        rows = list(map(self._row.get, map(id, waiting)))
        if None in rows:
            new = [each for each, row in zip(waiting, rows, strict=True) if row is None]
            self._add(new)
            rows = list(map(self._row.get, map(id, waiting)))
        found = self._values[np.array(rows, dtype=np.int64)]
        gpus, least, most, had, duration_s, submit_s, grows, kind = found.T
        flags: Flags = grows.astype(np.bool_)
        return WaitingColumns(gpus, least, most, had, duration_s, submit_s, flags, kind.astype(np.int64))

    def machines_by_kind(self, view: Snapshot) -> list[int]:
        """Return the machines that jobs of each kind can use."""
        return [view.eligible(job) for job in self._of_kind]

    def free_by_kind(self, view: Snapshot) -> Ints:
        """Return the free GPUs that jobs of each kind can use."""
        return np.array([view.available(job).gpus for job in self._of_kind], dtype=np.int64)

    def _add(self, new: Sequence[Waiting]) -> None:
        values = np.array([self._values_of(each) for each in new], dtype=np.float64).reshape(-1, COLUMNS)
        self._values = np.concatenate([self._values, values])
        for each in new:
            self._row[id(each)] = len(self._entries)
            self._entries.append(each)

    def _values_of(self, each: Waiting) -> tuple[float, ...]:
        job = each.job
        duration_s = np.nan if job.duration_s is None else job.duration_s
        sizes = job.gpus, job.least_gpus or job.gpus, job.most_gpus or job.gpus
        return (*sizes, each.attained_gpu_s, duration_s, job.submit_s, elastic(job), self._kind(job))

    def _kind(self, job: Job) -> int:
        key = job.gpu_type, job.partition, None if job.speeds is None else frozenset(job.speeds)
        if key not in self._kinds:
            self._kinds[key] = len(self._of_kind)
            self._of_kind.append(job)
        return self._kinds[key]
