"""Which jobs are the problem: those that leave GPUs idle beside them, are spread, wait, or could be smaller."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from cranny.analysis.whatif.headroom import HOUR_S
from cranny.model.cluster import Machine
from cranny.traces.inspect import Window

MOST = 10  # jobs of each kind
UTILISATION = "gpu_utilisation"  # of a log that has it: the share of the GPUs of a job that were busy, 0 to 1
# What is listed, and what it means.
PROBLEMS = {
    "idle_gpu_hours": "GPU-hours idle beside the job on its machines, divided among the jobs there",
    "extra_machine_hours": "machine-hours on more machines than the job needs",
    "wait_s": "seconds of waiting",
    "unused_gpu_hours": "GPU-hours that the job held and did not use",
}


def idle_beside(runs: pl.DataFrame, machines: Sequence[Machine], window: Window) -> pl.DataFrame:
    """Return for each job the GPU-hours that were idle on machines while it was there.

    Jobs on one machine at the same time have equal parts of what is idle there.
    """
    start_s, end_s = (np.clip(runs[name].to_numpy(), *window) for name in ("start_s", "end_s"))
    machine = runs["machine"].to_numpy()
    held = runs["gpus"].bitwise_count_ones().cast(pl.Float64).to_numpy()
    rows = len(machine)
    # Every run has two events; sums over all machines in a row are right, since each machine ends without jobs.
    at_s, where = np.concatenate([start_s, end_s]), np.concatenate([machine, machine])
    order = np.lexsort((at_s, where))
    sign = np.concatenate([np.ones(rows), -np.ones(rows)])
    jobs = np.cumsum(sign[order])
    gpus_held = np.cumsum((sign * np.concatenate([held, held]))[order])
    total = np.array([each.gpus for each in machines], dtype=np.float64)[where[order]]
    length_s = np.diff(at_s[order], append=0.0)
    idle = np.where(jobs > 0.5, (total - gpus_held) / np.maximum(jobs, 1.0), 0.0)
    so_far = np.empty(2 * rows)
    so_far[order] = np.concatenate([[0.0], np.cumsum(np.where(idle > 0, idle * length_s, 0.0))[:-1]])
    found = runs.select("job_id", idle_gpu_hours=pl.Series((so_far[rows:] - so_far[:rows]) / HOUR_S))
    return found.group_by("job_id").agg(pl.col("idle_gpu_hours").sum())


def extra_machine_hours(runs: pl.DataFrame, machines: Sequence[Machine], window: Window) -> pl.DataFrame:
    """Return the machine-hours of jobs beyond those on as few of the largest machines as hold their GPUs.

    Jobs that have none may be missing.
    """
    largest = max(machine.gpus for machine in machines)
    hours = (pl.col("end_s").clip(*window) - pl.col("start_s").clip(*window)) / HOUR_S
    several = runs.filter(pl.col("job_id").is_duplicated())  # all others are on one machine
    stretches = several.group_by("job_id", "start_s", "end_s").agg(
        used=pl.len(), gpus=pl.col("gpus").bitwise_count_ones().cast(pl.Int64).sum()
    )
    fewest = (pl.col("gpus") / largest).ceil()
    extra = ((pl.col("used") - fewest).clip(lower_bound=0.0) * hours).sum()
    return stretches.group_by("job_id").agg(extra_machine_hours=extra)


def problem_jobs(
    runs: pl.DataFrame, jobs: pl.DataFrame, log: pl.DataFrame, machines: Sequence[Machine], window: Window
) -> pl.DataFrame:
    """List the worst jobs of each kind: problem, rank, job, its GPUs, how bad it is, and whose it is.

    `jobs` has the waits of a case, `log` what the log says of each job.
    """
    whose = [name for name in ("user", "account", "tenant", "partition", "queue") if name in log.columns]
    known = log.select("job_id", "duration_s", *whose, *(name for name in [UTILISATION] if name in log.columns))
    measured = jobs.select("job_id", "gpus", "wait_s").join(known, on="job_id", how="left")
    if runs.height:
        measured = measured.join(idle_beside(runs, machines, window), on="job_id", how="left")
        measured = measured.join(extra_machine_hours(runs, machines, window), on="job_id", how="left")
    if UTILISATION in measured.columns:
        unused = pl.col("gpus") * pl.col("duration_s") / HOUR_S * (1.0 - pl.col(UTILISATION).clip(0.0, 1.0))
        measured = measured.with_columns(unused_gpu_hours=unused)
    found = []
    for problem in PROBLEMS:
        if problem not in measured.columns:
            continue
        worst = measured.filter(pl.col(problem) > 0).sort([problem, "job_id"], descending=[True, False]).head(MOST)
        found.append(
            worst.select(
                pl.lit(problem).alias("problem"),
                pl.int_range(1, pl.len() + 1).alias("rank"),
                "job_id",
                "gpus",
                pl.col(problem).cast(pl.Float64).alias("amount"),
                *whose,
            )
        )
    return pl.concat(found)
