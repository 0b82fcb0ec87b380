"""Sets up the arrays of a compiled replay: the columns of its jobs, and what is recorded of them."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from cranny.model.cluster import Cluster
from cranny.model.collective import COLLECTIVES, PLACED
from cranny.model.job import Job
from cranny.sim.fast import replay_kernel
from cranny.sim.record import SAMPLE_COLUMNS

Ints = npt.NDArray[np.int64]


class JobColumns(Protocol):
    """Jobs in order of submission, as columns and one by one."""

    @property
    def ids(self) -> pl.Series:
        """Names of the jobs."""

    @property
    def models(self) -> pl.Series:
        """Names of their models."""

    @property
    def tenants(self) -> pl.Series:
        """Names of their tenants."""

    @property
    def collectives(self) -> pl.Series:
        """Names of their collectives."""

    @property
    def gpus(self) -> npt.NDArray[np.int32]:
        """GPUs of each job, (jobs,)."""

    @property
    def submit_s(self) -> npt.NDArray[np.float64]:
        """When each was submitted, (jobs,), rising."""

    @property
    def duration_s(self) -> npt.NDArray[np.float64]:
        """How long each runs on one machine, (jobs,)."""

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
    model, grad_bytes, iteration_s = _models(jobs)

    def ints() -> Ints:
        return np.zeros(count, dtype=np.int64)

    def floats(value: float = 0.0) -> npt.NDArray[np.float64]:
        return np.full(count, value)

    return replay_kernel.ReplayArrays(
        gpus=jobs.gpus.astype(np.int64),
        submit_s=np.ascontiguousarray(jobs.submit_s),
        duration_s=np.ascontiguousarray(jobs.duration_s),
        start_s=floats(np.nan),
        finish_s=floats(np.nan),
        slowdown=floats(1.0),
        cross_bytes=floats(),
        model=model,
        pattern=_patterns(cluster, jobs) if drafts and jobs.data_parallel else np.full(count, -1, dtype=np.int64),
        machine=ints(),
        slots=np.zeros(count, dtype=np.uint64),
        first_part=ints(),
        parts=ints(),
        first_use=ints(),
        uses=ints(),
        first_sample=ints(),
        past_sample=ints(),
        queue=ints(),
        ended=ints(),
        grad_bytes=grad_bytes,
        iteration_s=iteration_s,
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
    base = jobs.collectives.replace_strict(first, return_dtype=pl.Int64).to_numpy()
    return np.where((base < 0) | (jobs.gpus > cluster.gpus), -1, base + jobs.gpus)


def _models(jobs: JobColumns) -> tuple[Ints, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the number of each job's model, (jobs,), and what an iteration of each model is, (models,) both."""
    names = jobs.models
    first = names.arg_unique().sort()  # a job of each
    profiles = [jobs[row].profile for row in first.to_list()]
    number = {name: at for at, name in enumerate(names.gather(first).to_list())}
    model = names.replace_strict(number, return_dtype=pl.Int64).to_numpy()
    return (
        model,
        np.array([profile.grad_bytes for profile in profiles], dtype=np.float64),
        np.array([profile.iteration_s for profile in profiles], dtype=np.float64),
    )


def empty_parts() -> replay_kernel.PartArrays:
    """Return empty arrays for what jobs hold and send."""
    return replay_kernel.PartArrays(
        np.zeros(1024, np.int64), np.zeros(1024, np.uint64), np.zeros(1024, np.int64), np.zeros(1024)
    )


def grown(held: replay_kernel.PartArrays, parts: int, uses: int) -> replay_kernel.PartArrays:
    """Return the same arrays with a larger capacity."""
    return replay_kernel.PartArrays(
        np.resize(held.machine, parts),
        np.resize(held.slots, parts),
        np.resize(held.link, uses),
        np.resize(held.gbps, uses),
    )
