"""How much of the log's waiting no queue explains: enough GPUs were free, by the log itself."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from cranny.analysis.whatif.baseline import LoggedJobs
from cranny.model.arrays import Flags, Floats
from cranny.model.cluster import Cluster
from cranny.traces.trace import Trace


def free_while_waiting(cluster: Cluster, trace: Trace, logged: LoggedJobs, jobs: pl.DataFrame) -> float | None:
    """Return the share of jobs' waiting in which as many GPUs were free as they asked for; None if none waited.

    GPUs are counted in each partition that shares no machine with another, else in the whole cluster. `jobs` has
    job_id, gpus, submit_s and start_s.
    """
    free_s = waited_s = 0.0
    for gpus, held, waiting in cluster_parts(cluster, trace, logged, jobs):
        free_s += _free_s(gpus, held, waiting)
        waited_s += float((waiting["start_s"] - waiting["submit_s"]).sum())
    return free_s / waited_s if waited_s > 0 else None


def cluster_parts(
    cluster: Cluster, trace: Trace, logged: LoggedJobs, jobs: pl.DataFrame
) -> Iterator[tuple[int, pl.DataFrame, pl.DataFrame]]:
    """Yield the GPUs of each part of the cluster, with the jobs that held them and those of `jobs` that use it.

    Partitions that share no machine are parts; else the whole cluster is one.
    """
    machines = [machine for own in cluster.partitions.values() for machine in own]
    apart = machines and len(machines) == len(set(machines)) and "partition" in trace.frame.columns
    if not apart:
        yield cluster.gpus, logged.jobs, jobs
        return
    partitions = trace.frame.select("job_id", "partition")
    held = logged.jobs.join(partitions, on="job_id")
    jobs = jobs.drop("partition", strict=False).join(partitions, on="job_id")
    for name, own in cluster.partitions.items():
        of = pl.col("partition") == name
        yield sum(cluster.machines[each].gpus for each in own), held.filter(of), jobs.filter(of)


def _free_s(gpus: int, held: pl.DataFrame, waiting: pl.DataFrame) -> float:
    """Return how long jobs waited while enough GPUs were free."""
    if held.is_empty() or waiting.is_empty():
        return 0.0
    start_s, finish_s = held["start_s"].to_numpy(), held["finish_s"].to_numpy()
    change = np.concatenate([held["gpus"].to_numpy(), -held["gpus"].to_numpy()])
    at_s, position = np.unique(np.concatenate([start_s, finish_s]), return_inverse=True)
    free = gpus - np.cumsum(np.bincount(position, weights=change, minlength=len(at_s)))
    total_s = 0.0
    for (size,), part in waiting.partition_by("gpus", as_dict=True).items():
        enough = free >= int(size)
        before_s = np.concatenate([[0.0], np.cumsum(np.diff(at_s) * enough[:-1])])
        total_s += float(_until(at_s, before_s, enough, part["start_s"].to_numpy()).sum())
        total_s -= float(_until(at_s, before_s, enough, part["submit_s"].to_numpy()).sum())
    return total_s


def _until(at_s: Floats, before_s: Floats, enough: Flags, time_s: Floats) -> Floats:
    """Return for how long, up to some times, enough GPUs were free; before the first job all of them were."""
    step = np.searchsorted(at_s, time_s, side="right") - 1
    inside = np.maximum(step, 0)
    since_s = np.where(step < 0, time_s - at_s[0], (time_s - at_s[inside]) * enough[inside])
    return np.asarray(before_s[inside] + since_s, dtype=np.float64)
