"""Waits by user, account, partition, type of GPU and size of job: who gains, and who loses."""

from collections.abc import Mapping

import polars as pl

from cranny.analysis.whatif.headroom import HOUR_S
from cranny.analysis.whatif.waits import done_jobs, size_of_job
from cranny.sim.record import DONE
from cranny.sim.result import Result

TENANT = "tenant"  # what readers call the partition, account or namespace where a log has no tenants
BY = ("user", "account", TENANT, "partition", "queue", "qos", "gpu_type", "size")
NO_NAME = "(none)"
CLEAR_S = 60.0  # a wait that differs by less is the same to a person
CLEAR = 0.05  # or by less than this share of the longer one

JobsOf = Mapping[str, pl.DataFrame]  # by case: job_id, gpus, duration_s, wait_s, jct_s, of the same jobs each


def case_jobs(result: Result) -> pl.DataFrame:
    """Return the jobs of a case that are done; of the log itself it is not known whether they were stopped."""
    known = "restarts" in result.jobs.columns
    return done_jobs(result) if known else result.jobs.filter(pl.col("status") == DONE)


def labels(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return for each job of a log what it can be grouped by: those columns that say something, and its size."""
    known = [name for name in BY if name in jobs.columns and jobs[name].count()]
    others = [name for name in known if name != TENANT]
    if TENANT in known and any(jobs[TENANT].equals(jobs[name]) for name in others):
        known = others
    named = (pl.col(name).cast(pl.String).fill_null(NO_NAME) for name in known)
    return jobs.select("job_id", *named, size_of_job())


def same_jobs(jobs: JobsOf, counted: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Keep of each case the jobs that all cases and `counted` have, with known waits, and what groups need."""
    common = counted.select("job_id")
    for each in (each.filter(pl.col("wait_s").is_not_null()) for each in jobs.values()):
        common = common.join(each, on="job_id", how="semi")
    columns = ("job_id", "gpus", "duration_s", "wait_s", "jct_s")
    return {name: each.select(columns).join(common, on="job_id", how="semi") for name, each in jobs.items()}


def waits_by_group(jobs: JobsOf, label: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each case, way to group and group: jobs, GPU-hours, waits and JCT; most GPU-hours first."""
    found = []
    for name, each in jobs.items():
        labelled = each.join(label, on="job_id")
        for by in label.columns[1:]:
            stats = labelled.group_by(pl.col(by).alias("group")).agg(
                jobs=pl.len(),
                gpu_hours=(pl.col("gpus") * pl.col("duration_s")).sum() / HOUR_S,
                mean_wait_s=pl.col("wait_s").mean(),
                p95_wait_s=pl.col("wait_s").quantile(0.95, "linear"),
                mean_jct_s=pl.col("jct_s").mean(),
            )
            ordered = stats.sort(["gpu_hours", "group"], descending=[True, False])
            found.append(ordered.select(pl.lit(name).alias("case"), pl.lit(by).alias("by"), pl.all()))
    return pl.concat(found)


def changes_by_group(jobs: JobsOf, label: pl.DataFrame, against: str) -> pl.DataFrame:
    """Return for each case and group how many jobs wait clearly less and more than in the case `against`."""
    found = []
    before = jobs[against].select("job_id", "gpus", "duration_s", pl.col("wait_s").alias("before_s"))
    change = pl.col("wait_s") - pl.col("before_s")
    clear = pl.max_horizontal(pl.lit(CLEAR_S), CLEAR * pl.max_horizontal("wait_s", "before_s"))
    for name, each in jobs.items():
        if name == against:
            continue
        labelled = each.select("job_id", "wait_s").join(before, on="job_id").join(label, on="job_id")
        labelled = labelled.with_columns(pl.lit("all").alias("all"))
        for by in ("all", *label.columns[1:]):
            stats = labelled.group_by(pl.col(by).alias("group")).agg(
                jobs=pl.len(),
                gpu_hours=(pl.col("gpus") * pl.col("duration_s")).sum() / HOUR_S,
                sooner=(change < -clear).sum(),
                later=(change > clear).sum(),
                mean_wait_before_s=pl.col("before_s").mean(),
                mean_wait_s=pl.col("wait_s").mean(),
                mean_change_s=change.mean(),
            )
            ordered = stats.sort(["mean_change_s", "group"], descending=[True, False])
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
