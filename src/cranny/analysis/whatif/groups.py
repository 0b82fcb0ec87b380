"""Waits by user, account, partition, type of GPU and size of job: who gains, and who loses.

Jobs of cases are known by their row in the log, so that what belongs to a job is found without its name.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl
from polars.dataframe.group_by import GroupBy

from cranny.analysis.whatif.headroom import HOUR_S
from cranny.analysis.whatif.waits import done_jobs, size_of_job
from cranny.sim.record import DONE
from cranny.sim.result import Result

TENANT = "tenant"  # what readers call the partition, account or namespace where a log has no tenants
BY = ("user", "account", TENANT, "partition", "queue", "qos", "gpu_type", "size")
NO_NAME = "(none)"
ROW = "row"
COMPARED = ("gpus", "duration_s", "wait_s", "jct_s")
CLEAR_S = 60.0  # a wait that differs by less is the same to a person
CLEAR = 0.05  # or by less than this share of the longer one

# By case: row (of the log), gpus, duration_s, wait_s, jct_s, of the same jobs each.
JobsOf = Mapping[str, pl.DataFrame]


def case_jobs(result: Result) -> pl.DataFrame:
    """Return the jobs of a case that are done; of the log itself it is not known whether they were stopped."""
    known = "restarts" in result.jobs.columns
    return done_jobs(result) if known else result.jobs.filter(pl.col("status") == DONE)


def labels(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return for each row of a log what it can be grouped by: those columns that say something, and its size."""
    known = [name for name in BY if name in jobs.columns and jobs[name].count()]
    others = [name for name in known if name != TENANT]
    if TENANT in known and any(jobs[TENANT].equals(jobs[name]) for name in others):
        known = others
    named = (pl.col(name).cast(pl.String).fill_null(NO_NAME) for name in known)
    return jobs.select(each.cast(pl.Categorical) for each in (*named, size_of_job()))


def same_jobs(
    jobs: Mapping[str, pl.DataFrame], log: pl.DataFrame, counted: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """Keep of each case the jobs that all cases and `counted` have, with known waits, and what groups need.

    `log` has all jobs, and their order makes their rows.
    """
    ids = log.select("job_id").with_row_index(ROW)
    numbered: dict[int, pl.DataFrame] = {}  # by frame, which two cases may share
    is_common = np.ones(log.height, dtype=np.bool_)
    for each in (counted, *jobs.values()):
        if id(each) not in numbered:
            known = each.select(name for name in ("job_id", *COMPARED) if name in each.columns)
            known = known.filter(pl.col("wait_s").is_not_null()) if "wait_s" in known.columns else known
            numbered[id(each)] = known.join(ids, on="job_id", maintain_order="left").drop("job_id")
            is_there = np.zeros(log.height, dtype=np.bool_)
            is_there[numbered[id(each)][ROW].to_numpy()] = True
            is_common &= is_there
    kept = {at: each.filter(is_common[each[ROW].to_numpy()]) for at, each in numbered.items()}
    return {name: kept[id(each)] for name, each in jobs.items()}


def waits_by_group(jobs: JobsOf, label: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each case, way to group and group: jobs, GPU-hours, waits and JCT; most GPU-hours first."""
    found = []
    for name, each in jobs.items():
        for by in label.columns:
            stats = _grouped(each, label[by]).agg(
                jobs=pl.len(),
                gpu_hours=(pl.col("gpus") * pl.col("duration_s")).sum() / HOUR_S,
                mean_wait_s=pl.col("wait_s").mean(),
                p95_wait_s=pl.col("wait_s").quantile(0.95, "linear"),
                mean_jct_s=pl.col("jct_s").mean(),
            )
            ordered = _named(stats).sort(["gpu_hours", "group"], descending=[True, False])
            found.append(ordered.select(pl.lit(name).alias("case"), pl.lit(by).alias("by"), pl.all()))
    return pl.concat(found)


def _grouped(jobs: pl.DataFrame, group: pl.Series) -> GroupBy:
    """Group jobs by what a column of `labels` says of their rows."""
    return jobs.with_columns(group.gather(jobs[ROW]).alias("group")).group_by("group")


def _named(stats: pl.DataFrame) -> pl.DataFrame:
    """Return groups by their names, whose order is that of the alphabet."""
    return stats.with_columns(pl.col("group").cast(pl.String))


def changes_by_group(jobs: JobsOf, label: pl.DataFrame, against: str) -> pl.DataFrame:
    """Return for each case and group how many jobs wait clearly less and more than in the case `against`."""
    found = []
    before = jobs[against].select(ROW, "gpus", "duration_s", pl.col("wait_s").alias("before_s"))
    place = np.zeros(label.height, dtype=np.int64)  # of each row there
    place[before[ROW].to_numpy()] = np.arange(before.height)
    everything = pl.Series("all", ["all"], dtype=pl.Categorical).new_from_index(0, label.height)
    change = pl.col("wait_s") - pl.col("before_s")
    clear = pl.max_horizontal(pl.lit(CLEAR_S), CLEAR * pl.max_horizontal("wait_s", "before_s"))
    for name, each in jobs.items():
        if name == against:
            continue
        both = before[place[each[ROW].to_numpy()]].with_columns(each["wait_s"])
        for group in (everything, *label):
            by = group.name
            stats = _grouped(both, group).agg(
                jobs=pl.len(),
                gpu_hours=(pl.col("gpus") * pl.col("duration_s")).sum() / HOUR_S,
                sooner=(change < -clear).sum(),
                later=(change > clear).sum(),
                mean_wait_before_s=pl.col("before_s").mean(),
                mean_wait_s=pl.col("wait_s").mean(),
                mean_change_s=change.mean(),
            )
            ordered = _named(stats).sort(["mean_change_s", "group"], descending=[True, False])
            found.append(
                ordered.select(
                    pl.lit(name).alias("case"),
                    pl.lit(against).alias("against"),
                    pl.lit(by).alias("by"),
                    pl.all(),
                )
            )
    return pl.concat(found) if found else pl.DataFrame()


def credited_by_group(groups: pl.DataFrame, was: str, scheduler: str) -> pl.DataFrame:
    """Return for each policy and group its mean wait, those logged and replayed, and what it is credited with.

    `groups` are those of `waits_by_group`; `was` is the log, `scheduler` the replay of its scheduler. A policy
    gains what it waits less than the replay, and the log would have had that much less: `credited_wait_s`. A group
    in which it gains nothing is worse off, whatever the mean over all jobs says.
    """
    by = ["by", "group"]
    means = {
        name: groups.filter(pl.col("case") == case).select(*by, pl.col("mean_wait_s").alias(name))
        for case, name in ((was, "logged_wait_s"), (scheduler, "replayed_wait_s"))
    }
    found = groups.filter(~pl.col("case").is_in([was, scheduler])).select("case", *by, "jobs", "mean_wait_s")
    for each in means.values():
        found = found.join(each, on=by, how="left", maintain_order="left")
    gained = pl.col("replayed_wait_s") - pl.col("mean_wait_s")
    credited = (pl.col("logged_wait_s") - gained).clip(lower_bound=0.0)
    return found.with_columns(gained_s=gained, credited_wait_s=credited)
