"""Your scheduler, replayed: how well the log's own waits are predicted, and what a policy may be credited with.

Several models of a scheduler are replayed on the first half of a log, and the one that misses the wait of a job by
the least, on average, is kept. How good it is is measured on the second half, so that it is not fitted to what it
is judged by.
Waits of a policy are credited against this row only: what it shares with the log's scheduler is not its doing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cranny.analysis.whatif.baseline import LoggedJobs
from cranny.analysis.whatif.unexplained import free_while_waiting
from cranny.analysis.whatif.waits import done_jobs, size_of_job
from cranny.model.arrays import Floats
from cranny.model.validate import counted, percent
from cranny.report.scales import duration_text
from cranny.run import Result, run, run_many
from cranny.scenario import Scenario
from cranny.traces.trace import Trace

REPLAYED = "your scheduler, replayed"
PLACED_BY = "best-fit"
CLOSE = 0.15  # error of the mean wait up to which the row predicts the log
FACTOR = 2.0  # within which a job's wait is predicted
SHORT_S = 60.0  # waits below this are equal: no log and no scheduler is more exact
CHOSEN_ON = 10_000  # jobs of the first half, its last ones, on which the models are tried
PLANNED = 50_000  # jobs of a log up to which conservative backfilling is tried, which takes longest
AT_ONCE_S = 1.0  # a job that waits no longer in the replay did not queue
MOST_DELAY_S = 600.0  # that a start takes; a job that waits longer in the log waited for something else


@dataclass(frozen=True, slots=True)
class SchedulerModel:
    """How a scheduler may have chosen jobs; it places them by best fit, inside their partitions."""

    order: str
    priorities: bool  # whether those of the log count
    limits: bool  # whether it knows only the limits of jobs; else how long they run

    @property
    def about(self) -> str:
        """Describe the model in words."""
        first = "by the log's priorities" if self.priorities else "by submission"
        expected = "by the limits of jobs" if self.limits else "knowing how long jobs run"
        rest = {
            "backfill": f", with backfill that does not delay the first (EASY), {expected}",
            "conservative": f", with backfill that delays none before it (conservative), {expected}",
        }
        return first + rest.get(self.order, ", without backfill")

    def scenario(self, like: Scenario, trace: Trace) -> Scenario:
        """Return the replay of a trace under this model."""
        if not self.priorities:
            trace = replace(trace, frame=trace.frame.drop("priority", strict=False))
        return replace(
            like, trace=trace, policy=PLACED_BY, options={}, order=self.order, limits=self.limits, period_s=0.0
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """How well waits of some jobs are predicted."""

    jobs: int
    logged_mean_s: float
    logged_median_s: float
    mean_s: float
    median_s: float
    miss_s: float  # by how much a job's wait is missed, on average
    within_factor: float  # share of jobs whose wait is within a factor of two, or a minute on both sides

    @property
    def error(self) -> float:
        """Error of the mean wait, as a share of the log's; waits of less than a second are none."""
        return (self.mean_s - self.logged_mean_s) / max(self.logged_mean_s, 1.0)

    @classmethod
    def of(cls, logged_s: Floats, predicted_s: Floats) -> "Prediction":
        """Compare waits of the same jobs; there must be some."""
        ratio = np.maximum(predicted_s, SHORT_S) / np.maximum(logged_s, SHORT_S)
        near = (ratio <= FACTOR) & (ratio >= 1.0 / FACTOR)
        return cls(
            jobs=len(logged_s),
            logged_mean_s=float(logged_s.mean()),
            logged_median_s=float(np.median(logged_s)),
            mean_s=float(predicted_s.mean()),
            median_s=float(np.median(predicted_s)),
            miss_s=float(np.abs(predicted_s - logged_s).mean()),
            within_factor=float(near.mean()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The row of the log's scheduler: its replay, and how far it can be believed."""

    model: SchedulerModel
    start_delay_s: float  # that a start takes besides the queue, in the first half; part of predictions only
    first_half: Prediction
    second_half: Prediction
    by_size: Mapping[str, Prediction]  # of the second half
    by_partition: Mapping[str, Prediction]
    tried: Mapping[str, float]  # by how much each model misses a wait of the first half, by its description
    jobs: pl.DataFrame  # those compared: job_id, gpus, user, account, partition, logged_s, replayed_s
    result: Result  # the replay, whose policy is called `REPLAYED`
    reasons: Sequence[str]  # why it may differ from the log

    @property
    def close(self) -> bool:
        """Whether it predicts the log's mean wait."""
        return abs(self.second_half.error) <= CLOSE

    def sentences(self) -> Iterator[str]:
        """Say what was replayed, how well that predicts the log, and why not better."""
        half = self.second_half
        yield (
            f"'{REPLAYED}' starts jobs {self.model.about}, and places them by best fit inside their partitions: "
            f"of {counted(len(self.tried), 'model')} the nearest to the single waits of the log's first half."
        )
        if self.start_delay_s:
            yield f"A start takes {duration_text(self.start_delay_s)} besides the queue, as in the first half."
        yield (
            f"In the second half it predicts a mean wait of {duration_text(half.mean_s)}, where the log has "
            f"{duration_text(half.logged_mean_s)} ({percent(half.error)}), and {percent(half.within_factor)} of "
            "the single waits within a factor of two."
        )
        if not self.close:
            yield f"That is not within {percent(CLOSE)}. {' '.join(self.reasons)}"
        yield "Policies are credited only with the difference of their waits to this row's."

    def credited_s(self, mean_wait_s: float) -> float:
        """Return the mean wait that the log would have had if a policy had changed it as it changes the replay."""
        logged_s, replayed_s = (float(self.jobs[name].to_numpy().mean()) for name in ("logged_s", "replayed_s"))
        return max(0.0, logged_s - (replayed_s - mean_wait_s))

    def credited_by(self, group: str, policy_jobs: pl.DataFrame) -> pl.DataFrame:
        """Return mean waits by user, account, partition or size: as logged, replayed, of the policy, and credited.

        `policy_jobs` has job_id and wait_s. A group in which the policy's waits are longer than the replayed ones
        is worse off, whatever the mean over all jobs says.
        """
        waited = self.jobs.join(policy_jobs.select("job_id", policy_s="wait_s"), on="job_id")
        if group == "size":
            waited = waited.with_columns(size_of_job())
        means = [pl.col(name).mean() for name in ("logged_s", "replayed_s", "policy_s")]
        gained_s = pl.col("replayed_s") - pl.col("policy_s")
        return (
            waited.group_by(group, maintain_order=True)
            .agg(pl.len().alias("jobs"), *means)
            .with_columns(credited_s=(pl.col("logged_s") - gained_s).clip(lower_bound=0.0), gained_s=gained_s)
        )


def scheduler_models(trace: Trace) -> list[SchedulerModel]:
    """Return the models that are tried on a log, by what it tells."""
    limits, priorities = (_tells(trace, name) for name in ("limit_s", "priority"))
    backfills = ("backfill", "conservative") if len(trace) <= PLANNED else ("backfill",)
    found = []
    for by_priority in (False, True) if priorities else (False,):
        blocking = SchedulerModel("priority" if by_priority else "fifo", by_priority, limits=False)
        found += [blocking, *(SchedulerModel(order, by_priority, limits) for order in backfills)]
    return found


def calibrated(scenario: Scenario, logged: LoggedJobs, processes: int | None = None) -> Calibration | None:
    """Replay the log's own scheduler as far as the log tells how it worked; None if there are too few jobs."""
    trace = scenario.whole_trace
    compared = _compared(trace, logged)
    if compared.height < 4:
        return None
    middle_s = float(compared["submit_s"].sort()[compared.height // 2])
    early = trace.frame.filter(pl.col("submit_s") < middle_s).tail(CHOSEN_ON)
    first = compared.join(early.select("job_id"), on="job_id", how="semi")
    if first.is_empty():
        return None
    models = scheduler_models(trace)
    halves = [model.scenario(scenario, replace(trace, frame=early)) for model in models]
    waits: list[pl.DataFrame] = run_many(halves, keep=_waits, impossible=pl.DataFrame(), processes=processes)
    fits: dict[SchedulerModel, tuple[float, Prediction]] = {}
    for each, waited in zip(models, waits, strict=True):
        both = first.join(waited, on="job_id") if waited.height else first.clear()
        if both.height:
            delay_s = _start_delay_s(both)
            fits[each] = delay_s, _predicted(both, delay_s)
    if not fits:
        return None
    model = min(fits, key=lambda each: fits[each][1].miss_s)
    delay_s, first_half = fits[model]
    tried = {each.about: fit.miss_s for each, (_, fit) in fits.items()}
    ran = run(model.scenario(scenario, trace))
    result = replace(ran, settings={**ran.settings, "policy": REPLAYED})
    jobs = compared.join(_waits(result), on="job_id")
    second = jobs.filter(pl.col("submit_s") >= middle_s)
    if second.is_empty():
        return None
    shown = [name for name in ("user", "account", "partition") if name in jobs.columns]
    by_partition = _by(second, second["partition"], delay_s) if "partition" in shown else {}
    return Calibration(
        model,
        delay_s,
        first_half,
        _predicted(second, delay_s),
        _by(second, second.select(size_of_job())["size"], delay_s),
        by_partition,
        tried,
        jobs.select("job_id", "gpus", *shown, "logged_s", "replayed_s"),
        result,
        list(_reasons(scenario, logged, second)),
    )


def _compared(trace: Trace, logged: LoggedJobs) -> pl.DataFrame:
    """Return the jobs whose waits a queue explains: not those of reservations, nor those outside the window."""
    names = [
        name for name in ("user", "account", "partition", "reservation", "counted") if name in trace.frame.columns
    ]
    jobs = logged.jobs.select("job_id", "gpus", "submit_s", "start_s", logged_s="wait_s")
    jobs = jobs.join(trace.frame.select("job_id", *names), on="job_id")
    if "reservation" in names:
        jobs = jobs.filter(pl.col("reservation").is_null())
    return jobs.filter(pl.col("counted").fill_null(value=True)) if "counted" in names else jobs


def _waits(result: Result) -> pl.DataFrame:
    """Keep of a replay how long jobs waited."""
    return done_jobs(result).select("job_id", replayed_s="wait_s")


def _start_delay_s(both: pl.DataFrame) -> float:
    """Return how long jobs waited on average that did not queue: the time that a start takes."""
    at_once = (pl.col("replayed_s") <= AT_ONCE_S) & (pl.col("logged_s") <= MOST_DELAY_S)
    logged_s = both.filter(at_once)["logged_s"].to_numpy()
    return float(logged_s.mean()) if len(logged_s) else 0.0


def _predicted(jobs: pl.DataFrame, delay_s: float) -> Prediction:
    return Prediction.of(jobs["logged_s"].to_numpy(), jobs["replayed_s"].to_numpy() + delay_s)


def _by(jobs: pl.DataFrame, group: pl.Series, delay_s: float) -> dict[str, Prediction]:
    """Predict the waits of each group."""
    parts = jobs.with_columns(group=group.fill_null("")).partition_by("group", as_dict=True, maintain_order=True)
    return {
        str(name): _predicted(part, delay_s)
        for (name,), part in sorted(parts.items(), key=lambda each: str(each[0]))
    }


def _tells(trace: Trace, name: str) -> bool:
    """Say whether a log tells something of its jobs, and not the same of all."""
    return name in trace.frame.columns and trace.frame[name].drop_nulls().n_unique() > 1


def _reasons(scenario: Scenario, logged: LoggedJobs, second: pl.DataFrame) -> Iterator[str]:
    """Say why the replay may wait otherwise than the log did."""
    trace, cluster = scenario.whole_trace, scenario.cluster
    share = free_while_waiting(cluster, trace, logged, second)
    if share is not None:
        yield (
            f"{percent(share)} of the log's waiting passed while as many GPUs were free by the log itself as the "
            "job asked for: such waits come from starts that take time, limits of users, fair share, "
            "dependencies, reservations or machines that were down, which the log does not tell."
        )
    if logged.peak_gpus > cluster.gpus:
        yield f"The log holds up to {logged.peak_gpus:,} GPUs at once, the cluster has {cluster.gpus:,}."
    words = {"limit_s": "limits of jobs", "priority": "priorities", "partition": "partitions"}
    missing = [word for name, word in words.items() if not _tells(trace, name)]
    if missing:
        yield f"The log does not tell {', '.join(missing)}."
    if _tells(trace, "partition") and not cluster.partitions:
        yield "The cluster does not list the machines of partitions, so that all jobs share all machines."
