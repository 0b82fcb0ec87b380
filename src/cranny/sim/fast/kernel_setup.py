"""Sets up the arrays of a compiled replay: the columns of its jobs, and what is recorded of them."""

from typing import Protocol

import numpy as np
import polars as pl

from cranny.model.arrays import Ints
from cranny.model.cluster import Cluster
from cranny.model.collective import COLLECTIVES, PLACED
from cranny.model.job import Job
from cranny.sim.fast import replay_kernel
from cranny.sim.record import SAMPLE_COLUMNS


class JobColumns(Protocol):
    """Jobs in order of submission, as columns and one by one."""

    @property
    def columns(self) -> pl.DataFrame:
        """The job_id, gpus, submit_s, duration_s, model, tenant and collective of each job."""

    @property
    def any_type(self) -> bool:
        """Whether no job asks for a type of GPU."""

    @property
    def data_parallel(self) -> bool:
        """Whether every job is of one pattern, with neither tensor nor pipeline parallelism."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Job: ...


def set_up(
    cluster: Cluster, jobs: JobColumns, *, drafts: bool, fragments_before_idle: bool, stretch: float
) -> replay_kernel.ReplayArrays:
    """Return arrays in which no job has arrived yet; `drafts`: whether jobs on several machines are drafted."""
    count, machines = len(jobs), len(cluster.machines)
    at = np.zeros(replay_kernel.COUNTERS, dtype=np.int64)
    at[replay_kernel.FREE] = cluster.gpus
    columns = jobs.columns
    first = columns["model"].arg_unique().sort()  # a job of each
    profiles = [jobs[row].profile for row in first.to_list()]
    number = {name: at for at, name in enumerate(columns["model"].gather(first).to_list())}
    held, seen = ("machine", "first_part", "parts", "first_use", "uses"), ("first_sample", "past_sample")
    return replay_kernel.ReplayArrays(
        gpus=columns["gpus"].to_numpy().astype(np.int64),
        submit_s=np.ascontiguousarray(columns["submit_s"].to_numpy()),
        duration_s=np.ascontiguousarray(columns["duration_s"].to_numpy()),
        start_s=np.full(count, np.nan),
        finish_s=np.full(count, np.nan),
        slowdown=np.ones(count),
        cross_bytes=np.zeros(count),
        model=columns["model"].replace_strict(number, return_dtype=pl.Int64).to_numpy(),
        pattern=_patterns(cluster, jobs) if drafts and jobs.data_parallel else np.full(count, -1, dtype=np.int64),
        **{name: np.zeros(count, dtype=np.int64) for name in (*held, *seen, "queue", "ended")},
        slots=np.zeros(count, dtype=np.uint64),
        grad_bytes=np.array([profile.grad_bytes for profile in profiles], dtype=np.float64),
        iteration_s=np.array([profile.iteration_s for profile in profiles], dtype=np.float64),
        fragments_before_idle=fragments_before_idle,
        stretch=stretch,
        end_s=np.empty(cluster.gpus + 1),
        end_start=np.empty(cluster.gpus + 1, dtype=np.int64),
        end_job=np.empty(cluster.gpus + 1, dtype=np.int64),
        is_changed=np.zeros(machines, dtype=np.bool_),
        changed=np.empty(machines, dtype=np.int64),
        samples=np.empty((2 * count, len(SAMPLE_COLUMNS))),
        at=at,
        level=np.zeros(2),
    )


def pattern_count(cluster: Cluster) -> int:
    """Return the number of patterns of jobs that fit a cluster: one a collective and number of GPUs."""
    return len(COLLECTIVES) * (cluster.gpus + 1)


def _patterns(cluster: Cluster, jobs: JobColumns) -> Ints:
    """Return the number of each job's pattern, (jobs,); -1 if it depends on the placement or is too large."""
    first = {name: at * (cluster.gpus + 1) for at, name in enumerate(COLLECTIVES)} | dict.fromkeys(PLACED, -1)
    base = jobs.columns["collective"].replace_strict(first, return_dtype=pl.Int64).to_numpy()
    gpus = jobs.columns["gpus"].to_numpy()
    return np.where((base < 0) | (gpus > cluster.gpus), -1, base + gpus)
