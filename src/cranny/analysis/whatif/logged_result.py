"""The log itself as a result, measured by the code that measures replays, so that reports show it beside them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from cranny.analysis.whatif.as_it_was import AsItWas, logged_times_s
from cranny.analysis.whatif.baseline import AS_IT_WAS, UNKNOWN, LoggedJobs, ready_s
from cranny.analysis.whatif.waits import time_stats
from cranny.core.traffic import GIGA, communication
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.sim.record import DONE, JOBS, RUNS, SAMPLE_COLUMNS, ReplayRecord, RunColumns
from cranny.sim.result import Result
from cranny.traces.schema import DEGREES
from cranny.traces.trace import Trace
from cranny.traces.trace_jobs import Jobs

# Of jobs that ran elsewhere than in a replay we do not know how communication slowed them, nor who stopped them.
NOT_LOGGED = ("mean_comm_slowdown", "restarts", "moves")


class LoggedRun(NamedTuple):
    """A log, and its jobs as replays see them."""

    trace: Trace
    jobs: Jobs
    logged: LoggedJobs
    was: AsItWas | None


def logged_result(log: LoggedRun, cluster: Cluster, like: Result, price_per_gpu_hour: float) -> Result:
    """Return the log as a result, with where jobs ran if that is known; settings are those of another result."""
    settings = {**like.settings, "policy": AS_IT_WAS, "order": UNKNOWN, "period_s": 0.0}
    if log.was is None or not log.was.is_known:
        return _without_machines(log, cluster, settings)
    sent_bytes = cross_bytes(log, log.was, cluster)
    samples, run_columns = _samples(log, log.was, sent_bytes, cluster)
    record = ReplayRecord(_jobs(log, log.was, sent_bytes), log.was.runs, samples, run_columns)
    result = Result.of(cluster, record, settings, price_per_gpu_hour)
    return replace(result, summary={key: each for key, each in result.summary.items() if key not in NOT_LOGGED})


def cross_bytes(log: LoggedRun, was: AsItWas, cluster: Cluster) -> Floats:
    """Return what an iteration of each job moved between machines, (jobs,); ranks are in the order of its list."""
    sent = np.zeros(len(log.trace))
    first = np.flatnonzero(np.diff(was.row, prepend=-1))  # run of each job
    parts = np.diff(first, append=len(was.row))
    apart = np.flatnonzero(parts > 1)
    if not len(apart):
        return sent
    # Traffic depends on how many ranks share each machine, not on which machines these are: one job of each kind.
    machine, gpus = was.runs["machine"].to_numpy(), was.runs["gpus"].bitwise_count_ones().to_numpy()
    rows = was.row[first[apart]]
    degrees = [name for name in DEGREES if name in log.trace.frame.columns]
    named = log.jobs.columns.select("model", "collective").hstack(log.trace.frame.select(degrees))[rows]
    found: dict[tuple[Any, ...], float] = {}
    for at, row, kind in zip(apart.tolist(), rows.tolist(), named.iter_rows(), strict=True):
        there = slice(first[at], first[at] + parts[at])
        key = (*kind, *gpus[there].tolist())
        if key not in found:
            ranks = tuple(np.repeat(machine[there], gpus[there]).tolist())
            found[key] = communication(cluster, log.jobs[row], ranks).cross_bytes
        sent[row] = found[key]
    return sent


def _jobs(log: LoggedRun, was: AsItWas, sent_bytes: Floats) -> pl.DataFrame:
    """Return a row for each job that started, see `sim.record.JOBS`; what the log does not say is empty."""
    frame = log.trace.frame
    start_s, end_s = logged_times_s(frame)
    machines = np.bincount(was.row, minlength=len(frame))
    columns = log.jobs.columns.select("job_id", "gpus", "model", "tenant", "duration_s")
    return (
        columns.with_columns(
            submit_s=ready_s(frame),
            start_s=pl.Series(start_s),
            finish_s=pl.Series(end_s),
            machines=pl.Series(machines),
            cross_traffic_gb=pl.Series(sent_bytes / GIGA),
            restarts=pl.lit(0),
            moves=pl.lit(0),
            status=pl.lit(DONE),
            slowdown=pl.lit(None),
            reason=pl.lit(None),
        )
        .filter(pl.col("start_s").is_finite())
        .with_columns(
            wait_s=pl.when(pl.col("start_s") >= pl.col("submit_s")).then(pl.col("start_s") - pl.col("submit_s")),
            jct_s=pl.when(pl.col("start_s") >= pl.col("submit_s")).then(pl.col("finish_s") - pl.col("submit_s")),
            machines=pl.when(pl.col("machines") > 0).then("machines"),
        )
        .select(pl.col(name).cast(dtype) for name, dtype in JOBS.items())
    )


def _samples(log: LoggedRun, was: AsItWas, sent_bytes: Floats, cluster: Cluster) -> tuple[Floats, RunColumns]:
    """Return the samples after each instant at which something happened, and the runs in terms of them."""
    first = np.flatnonzero(np.diff(was.row, prepend=-1))  # run of each job
    job = was.row[first]
    start_s, end_s, machine = (was.runs[name].to_numpy() for name in ("start_s", "end_s", "machine"))
    count = was.runs["gpus"].bitwise_count_ones().cast(pl.Int64).to_numpy()
    busy = _busy(was.runs)
    arrival_s = ready_s(log.trace.frame).to_numpy()
    waited = log.logged.jobs
    events = (
        *(arrival_s, waited["submit_s"].to_numpy(), waited["start_s"].to_numpy()),
        *(start_s, end_s, busy["start_s"].to_numpy(), busy["end_s"].to_numpy()),
    )
    time_s, place = np.unique(np.concatenate(events), return_inverse=True)
    arrived, queued, left, started, ended, opened, closed = np.split(place, np.cumsum([*map(len, events)])[:-1])

    def held(entered: Ints, gone: Ints, weight: Floats | Ints | None = None) -> Floats:
        """Return the sum at each instant of what has entered and not gone."""
        change = [np.bincount(each, weights=weight, minlength=len(time_s)) for each in (entered, gone)]
        return np.cumsum(change[0] - change[1])

    sizes = np.array([each.gpus for each in cluster.machines])
    used = held(opened, closed)
    crossing = sent_bytes[job] > 0
    entered, gone = started[first], ended[first]
    moved = held(entered[crossing], gone[crossing], sent_bytes[job][crossing])
    sampled = {
        "time_s": time_s,
        "arrivals": np.bincount(arrived, minlength=len(time_s)),
        "waiting_jobs": held(queued, left),
        "used_machines": used,
        "idle_units": cluster.share_unit * used
        - held(started, ended, count * (cluster.share_unit // sizes)[machine]),
        "cross_bytes": np.where(held(entered[crossing], gone[crossing]) > 0, moved, 0.0),
        "held_gpus": held(started, ended, count),
        "running_jobs": held(entered, gone),
    }
    samples = np.stack([np.asarray(sampled[name], dtype=np.float64) for name in SAMPLE_COLUMNS], axis=1)
    gpus = log.trace.frame["gpus"].to_numpy()[job].astype(np.float64)
    return samples, RunColumns(gpus, (end_s - start_s)[first], np.ones(len(first)), entered, gone)


def _busy(runs: pl.DataFrame) -> pl.DataFrame:
    """Return a row (start_s, end_s) for each stretch in which a machine had a job."""
    return (
        runs.lazy()
        .filter(pl.col("end_s") > pl.col("start_s"))
        .sort("machine", "start_s")
        .with_columns(before_s=pl.col("end_s").cum_max().shift(1).over("machine"))
        .with_columns(stretch=(pl.col("before_s").is_null() | (pl.col("start_s") > pl.col("before_s"))).cum_sum())
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("start_s").first(), pl.col("end_s").max())
        .collect()
    )


def _without_machines(log: LoggedRun, cluster: Cluster, settings: Mapping[str, Any]) -> Result:
    """Return what is known of a log that does not say on which machines its jobs ran."""
    jobs = log.logged.jobs.with_columns(
        pl.lit(None, dtype=pl.String).alias("model"),
        pl.lit(DONE).alias("status"),
        pl.lit(None, dtype=pl.String).alias("reason"),
    )
    wait, jct = time_stats(jobs["wait_s"]), time_stats(jobs["jct_s"])
    return Result(
        cluster,
        settings,
        {
            "jobs_done": jobs.height,
            "mean_jct_s": jct.mean_s,
            "p50_jct_s": jct.p50_s,
            "p99_jct_s": jct.p99_s,
            "mean_wait_s": wait.mean_s,
            "p99_wait_s": wait.p99_s,
        },
        jobs,
        ready_s(log.trace.frame).alias("time_s").to_frame(),
        pl.DataFrame(schema=RUNS),
    )
