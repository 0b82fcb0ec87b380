"""Sets up the arrays of a compiled replay: its jobs in the order of the queue, and what is recorded of them."""

from typing import Protocol

import numpy as np
import polars as pl

from cranny.core.queue import BY_PRIORITY
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.collective import COLLECTIVES, PLACED
from cranny.model.job import Job
from cranny.sim.fast import replay_arrays
from cranny.sim.fast.replay_arrays import GroupArrays, KindArrays, LineArrays, ReplayArrays
from cranny.sim.record import SAMPLE_COLUMNS

# What a placer sees of a job, as `feasibility.kind_of` has it, if no job has stages or shards.
SEEN = ("gpus", "model", "collective", "gpu_type", "tenant", "partition")


class JobColumns(Protocol):
    """Jobs in order of submission, as columns and one by one."""

    @property
    def columns(self) -> pl.DataFrame:
        """What is known of each job.

        The job_id, gpus, submit_s, duration_s, model, tenant, collective, gpu_type, partition and priority, and
        as known_s how long policies expect it to run.
        """

    @property
    def is_rigid(self) -> bool:
        """Whether every job runs on as many GPUs as it asks for, whose speed makes no difference."""

    @property
    def data_parallel(self) -> bool:
        """Whether every job is of one pattern, with neither tensor nor pipeline parallelism."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Job: ...


def set_up(
    cluster: Cluster,
    jobs: JobColumns,
    kind: Ints,
    kinds: KindArrays,
    *,
    order: str,
    drafts: bool,
    refuses_by_size: bool,
    fragments_before_idle: bool,
    stretch: float,
) -> ReplayArrays:
    """Return arrays in which no job has arrived yet; `drafts`: whether jobs on several machines are drafted."""
    count, machines = len(jobs), len(cluster.machines)
    at = np.zeros(replay_arrays.COUNTERS, dtype=np.int64)
    at[replay_arrays.FREE] = cluster.gpus
    at[replay_arrays.STUCK_JOB] = -1
    columns = jobs.columns
    first = columns["model"].arg_unique().sort()  # a job of each
    profiles = [jobs[row].profile for row in first.to_list()]
    number = {name: at for at, name in enumerate(columns["model"].gather(first).to_list())}
    by_rank = np.argsort(_keys(jobs, order), kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[by_rank] = np.arange(count)
    look = _looks(jobs, kinds.size[kind])
    held, seen = ("machine", "first_part", "parts", "first_use", "uses"), ("first_sample", "past_sample")
    return ReplayArrays(
        gpus=columns["gpus"].to_numpy().astype(np.int64),
        submit_s=_floats(columns["submit_s"]),
        duration_s=_floats(columns["duration_s"]),
        known_s=_floats(columns["known_s"]),
        kind=kind,
        rank=rank,
        by_rank=by_rank,
        start_s=np.full(count, np.nan),
        finish_s=np.full(count, np.nan),
        slowdown=np.ones(count),
        cross_bytes=np.zeros(count),
        model=columns["model"].replace_strict(number, return_dtype=pl.Int64).to_numpy(writable=True),
        pattern=_patterns(cluster, jobs, kinds.size[kind])
        if drafts and jobs.data_parallel
        else np.full(count, -1),
        **{name: np.zeros(count, dtype=np.int64) for name in (*held, *seen, "refused", "ended")},
        slots=np.zeros(count, dtype=np.uint64),
        is_waiting=np.zeros(count, dtype=np.bool_),
        look=look,
        is_feasible=np.zeros(int(look.max()) + 1, dtype=np.bool_),
        grad_bytes=np.array([profile.grad_bytes for profile in profiles], dtype=np.float64),
        iteration_s=np.array([profile.iteration_s for profile in profiles], dtype=np.float64),
        backfills=order == "backfill",
        refuses_by_size=refuses_by_size,
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


def _looks(jobs: JobColumns, size: Ints) -> Ints:
    """Return a number for what a placer sees of each job that is larger than its machines; 0 for others."""
    columns = jobs.columns
    look = np.zeros(columns.height, dtype=np.int64)
    large = np.flatnonzero(columns["gpus"].to_numpy() > size)
    if not jobs.data_parallel:  # what else differs is not in the columns
        look[large] = np.arange(1, len(large) + 1)
        return look
    look[large] = columns[large].select(pl.struct(SEEN).rank("dense")).to_series().to_numpy()
    return look


def set_up_groups(kind: Ints, kinds: KindArrays) -> GroupArrays:
    """Return the empty queues of all groups."""
    count = int(kinds.group.max()) + 1
    jobs = np.bincount(kinds.group[kind], minlength=count)
    head = np.cumsum(jobs) - jobs
    # A running job holds one GPU at least, and no machine is in two groups.
    used = np.bincount(kind, minlength=len(kinds.group)) > 0
    inside = np.zeros((count, len(kinds.machine_size)), dtype=np.bool_)
    for each in np.flatnonzero(used).tolist():
        inside[kinds.group[each]] |= kinds.inside[each]
    gpus = inside @ kinds.machine_size
    begin = np.cumsum(gpus) - gpus
    bits = [
        sum(1 << each for each in np.flatnonzero(used & (kinds.group == group)).tolist()) for group in range(count)
    ]
    return GroupArrays(
        queue=np.zeros(len(kind), dtype=np.int64),
        head=head,
        tail=head.copy(),
        cursor=head.copy(),
        blocked=np.zeros(count, dtype=np.int64),
        is_blocked=np.zeros(count, dtype=np.bool_),
        kinds=np.array(bits, dtype=np.int64),
        is_open=np.ones(count, dtype=np.bool_),
        is_cut=np.zeros(count, dtype=np.bool_),
        is_loose=np.zeros(count, dtype=np.bool_),
        expected=np.zeros(int(gpus.sum()), dtype=np.int64),
        expected_s=np.zeros(int(gpus.sum())),
        begin=begin,
        end=begin.copy(),
    )


def set_up_lines(kinds: KindArrays) -> LineArrays:
    """Return no lines; there are never more than kinds, since those of their first jobs share no machines."""
    count = len(kinds.group)
    return LineArrays(
        kinds=np.zeros(count, dtype=np.int64),
        first=np.zeros(count, dtype=np.int64),
        tried=np.zeros(count, dtype=np.int64),
        known=np.zeros(count, dtype=np.bool_),
        start_s=np.zeros(count),
        extra_gpus=np.zeros(count, dtype=np.int64),
    )


def pattern_count(cluster: Cluster) -> int:
    """Return how many patterns jobs that fit a cluster can have.

    One a collective, number of GPUs and size of machine: what is learnt of a pattern depends on that, too.
    """
    return len(COLLECTIVES) * (cluster.gpus + 1) * len({machine.gpus for machine in cluster.machines})


def _patterns(cluster: Cluster, jobs: JobColumns, size: Ints) -> Ints:
    """Return the number of each job's pattern, (jobs,); -1 if it depends on the placement or is too large."""
    first = {name: at * (cluster.gpus + 1) for at, name in enumerate(COLLECTIVES)} | dict.fromkeys(PLACED, -1)
    base = jobs.columns["collective"].replace_strict(first, return_dtype=pl.Int64).to_numpy()
    gpus = jobs.columns["gpus"].to_numpy()
    sizes = np.unique([machine.gpus for machine in cluster.machines])
    number = base + gpus + np.searchsorted(sizes, size) * (len(COLLECTIVES) * (cluster.gpus + 1))
    return np.where((base < 0) | (gpus > cluster.gpus), -1, number)


def _keys(jobs: JobColumns, order: str) -> Floats:
    """Return what the queue is sorted by, (jobs,), as in `QueuePolicy.key`; equals stay in order of submission."""
    if order == "sjf":
        return _floats(jobs.columns["known_s"])
    if order in BY_PRIORITY:
        return -_floats(jobs.columns["priority"])
    return _floats(jobs.columns["submit_s"])


def _floats(column: pl.Series) -> Floats:
    """Return a column as an array that may be written: one that may not would need another compiled kernel."""
    return np.ascontiguousarray(column.to_numpy(writable=True), dtype=np.float64)
