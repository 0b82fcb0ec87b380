"""How long jobs waited and took, over all of them and by size."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from cranny.model.validate import MAX_GPUS
from cranny.sim.record import DONE
from cranny.sim.result import Result
from cranny.traces.trace import Trace

MINUTE_S = 60.0
# Sizes of jobs that people speak of: from and to so many GPUs.
SIZES: Mapping[str, tuple[int, int]] = {
    "1": (1, 1),
    "2-7": (2, 7),
    "8": (8, 8),
    "9-63": (9, 63),
    "64+": (64, MAX_GPUS),
}


@dataclass(frozen=True, slots=True)
class TimeStats:
    """Some times in four numbers, in seconds; percentiles lie linearly between jobs."""

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Waits:
    """What became of the waiting jobs."""

    jobs: int
    wait: TimeStats
    jct: TimeStats
    over_10_min: int
    over_1_h: int
    mean_s_by_size: Mapping[str, float]  # only of sizes that occur


def done_jobs(result: Result) -> pl.DataFrame:
    """Return the jobs that are done; of one that was stopped, also the wait to go on is part of its `wait_s`."""
    is_done = result.jobs["status"] == DONE
    done = result.jobs if is_done.all() else result.jobs.filter(is_done)
    stopped = done.filter(pl.col("restarts") > 0).select("job_id")
    if stopped.is_empty():
        return done
    stretches = result.runs.join(stopped, on="job_id", how="semi").select("job_id", "start_s", "end_s").unique()
    ran = stretches.group_by("job_id").agg(ran_s=(pl.col("end_s") - pl.col("start_s")).sum())
    not_running_s = (pl.col("jct_s") - pl.col("ran_s")).clip(lower_bound=0.0)
    return (
        done.join(ran, on="job_id", how="left", maintain_order="left")
        .with_columns(wait_s=pl.coalesce(not_running_s, "wait_s"))
        .drop("ran_s")
    )


def waits(jobs: pl.DataFrame) -> Waits:
    """Measure jobs with the columns gpus, wait_s and jct_s; there must be some."""
    wait_s = jobs["wait_s"]
    return Waits(
        jobs=jobs.height,
        wait=time_stats(wait_s),
        jct=time_stats(jobs["jct_s"]),
        over_10_min=int((wait_s > 10 * MINUTE_S).sum()),
        over_1_h=int((wait_s > 60 * MINUTE_S).sum()),
        mean_s_by_size=mean_by_size(jobs),
    )


def time_stats(values_s: pl.Series) -> TimeStats:
    """Return mean, median, p95 and p99."""
    quantiles = [values_s.quantile(share, "linear") for share in (0.5, 0.95, 0.99)]
    return TimeStats(*(float(value or 0.0) for value in (values_s.mean(), *quantiles)))  # type: ignore[arg-type]


def size_of_job() -> pl.Expr:
    """Name the size of each job, by its column gpus."""
    size = pl.lit(None, pl.String)
    for name, (least, most) in SIZES.items():
        size = pl.when(pl.col("gpus").is_between(least, most)).then(pl.lit(name)).otherwise(size)
    return size.alias("size")


def counted_jobs(trace: Trace) -> pl.DataFrame:
    """Return the jobs of a log whose waits count: not those outside its window, nor those of reservations.

    A reservation decides when its jobs start, and not the queue, in the log as in no replay.
    """
    frame = trace.frame
    if "counted" in frame.columns:
        frame = frame.filter(pl.col("counted").fill_null(value=True))
    if "reservation" in frame.columns and frame["reservation"].null_count():
        frame = frame.filter(pl.col("reservation").is_null())
    return frame


def uncounted_ids(trace: Trace) -> pl.Series | None:
    """Return the ids of the other jobs; None if all waits count."""
    if "counted" not in trace.frame.columns or trace.frame["counted"].all():
        return None
    return trace.frame.filter(~pl.col("counted"))["job_id"]


def mean_by_size(jobs: pl.DataFrame) -> dict[str, float]:
    """Return the mean wait of each size of job that occurs."""
    found = {}
    for name, (least, most) in SIZES.items():
        these = jobs.filter(pl.col("gpus").is_between(least, most))
        if these.height:
            found[name] = time_stats(these["wait_s"]).mean_s
    return found
