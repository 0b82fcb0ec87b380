"""Your scheduler, replayed: how well the log's own waits are predicted, and what a policy may be credited with.

Several models of a scheduler are replayed on the first half of a log, and the one that misses the wait of a job by
the least, on average, is kept. How good it is is measured on the second half, so that it is not fitted to what it
is judged by. With the best of them it is then tried whether limits that the log only shows (see `queue_limits`)
explain more; policies are replayed with these limits too, so that none is praised for being without.
Waits of a policy are credited against this row only: what it shares with the log's scheduler is not its doing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from cranny.analysis.whatif.baseline import LoggedJobs
from cranny.analysis.whatif.queue_limits import ARRAY, LIMITED_BY, GroupLimits, inferred_limits
from cranny.analysis.whatif.unexplained import free_while_waiting
from cranny.analysis.whatif.waits import counted_jobs, done_jobs, size_of_job
from cranny.model.arrays import Floats
from cranny.model.validate import counted, percent
from cranny.report.scales import duration_text
from cranny.run import LONG, Result, run, run_many
from cranny.scenario import Scenario
from cranny.sim.admission import Admission
from cranny.traces.trace import Trace

REPLAYED = "your scheduler, replayed"
PLACED_BY = "best-fit"
CLOSE = 0.15  # error of the mean wait up to which the row predicts the log
FACTOR = 2.0  # within which a job's wait is predicted
SHORT_S = 60.0  # waits below this are equal: no log and no scheduler is more exact
CHOSEN_ON = 10_000  # jobs of the first half, its last ones, on which the models are tried
HALF = 0.5  # share of the waiting that no queue explains, from where on it decides the mean
AT_ONCE_S = 1.0  # a job that waits no longer in the replay did not queue
MOST_DELAY_S = 600.0  # that a start takes; a job that waits longer in the log waited for something else


@dataclass(frozen=True, slots=True)
class SchedulerModel:
    """How a scheduler may have chosen jobs; it places them by best fit, inside their partitions."""

    order: str
    priorities: bool  # whether those of the log count
    limits: bool  # whether it knows only the limits of jobs; else how long they run
    groups: GroupLimits | None = None  # that hold jobs back

    @property
    def about(self) -> str:
        """Describe the model in words."""
        first = "by the log's priorities" if self.priorities else "by submission"
        expected = "by the limits of jobs" if self.limits else "knowing how long jobs run"
        rest = {
            "backfill": f", with backfill that does not delay the first (EASY), {expected}",
            "conservative": f", with backfill that delays none before it (conservative), {expected}",
        }
        return first + rest.get(self.order, ", without backfill") + self._about_groups

    @property
    def _about_groups(self) -> str:
        """Say which limits hold jobs back."""
        if self.groups is None:
            return ""
        count = counted(len(self.groups.most_gpus), self.groups.by)
        what = "tasks that run at once" if self.groups.by == ARRAY else "GPUs held at once"
        return f", with limits of {what} for {count}, as the log shows them"

    def scenario(self, like: Scenario, trace: Trace | None = None) -> Scenario:
        """Return the replay of a trace, that of the scenario if none is given, under this model."""
        trace = like.whole_trace if trace is None else trace
        if not self.priorities and "priority" in trace.frame.columns:
            trace = replace(trace, frame=trace.frame.drop("priority"))
        return replace(
            like,
            trace=trace,
            policy=PLACED_BY,
            options={},
            order=self.order,
            limits=self.limits,
            period_s=0.0,
            admission=self.admission(like),
        )

    def admission(self, like: Scenario) -> Admission:
        """Return what holds jobs back in a scenario under this model."""
        if self.groups is None:
            return like.admission
        return like.admission.with_groups(self.groups.group_of, self.groups.most_gpus)


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

    def facts(self) -> dict[str, float]:
        """Return the numbers by name, for JSON."""
        return {**asdict(self), "error": self.error}

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
    tried_on: str  # of which jobs that is
    result: Result  # the replay, whose policy is called `REPLAYED`
    reasons: Sequence[str]  # why it may differ from the log
    free_share: float | None = None  # of the log's waiting in which enough GPUs were free; None if none waited
    is_long: bool = False  # whether the log has so many jobs that only models with compiled replays are tried

    @property
    def close(self) -> bool:
        """Whether it predicts the log's mean wait."""
        return abs(self.second_half.error) <= CLOSE

    @property
    def verdict(self) -> str:
        """Say for people who decide how far the replay can be believed."""
        half = self.second_half
        off = f"{percent(abs(half.error))} {'less' if half.error < 0 else 'more'}"
        waits = (
            f"The replay of your scheduler predicts a mean wait of {duration_text(half.mean_s)} for the second "
            f"half of the log, {off} than the {duration_text(half.logged_mean_s)} that it has"
        )
        if self.close:
            return f"{waits}: within {percent(CLOSE)}."
        free = (
            f", since {percent(self.free_share)} of that waiting passed while enough GPUs were free, for reasons "
            "that the log does not tell"
            if self.free_share is not None and self.free_share > HALF
            else ""
        )
        believed = "Believe differences between replays, not the length of their waits; see the assumptions."
        return f"{waits}: not within {percent(CLOSE)}{free}. {believed}"

    def sentences(self) -> Iterator[str]:
        """Say what was replayed, how well that predicts the log, and why not better."""
        half = self.second_half
        yield (
            f"'{REPLAYED}' starts jobs {self.model.about}, and places them by best fit inside their partitions: "
            f"of {counted(len(self.tried), 'model')} the nearest to the single waits of {self.tried_on}."
        )
        if self.is_long:
            yield (
                f"The log has {LONG:,} jobs or more, so that only models with compiled replays are tried: not "
                "those with conservative backfill, or with limits of users, accounts and arrays; and "
                "attempts of a job do not wait for each other."
            )
        if self.start_delay_s:
            yield f"A start takes {duration_text(self.start_delay_s)} besides the queue, as in {self.tried_on}."
        yield (
            f"In the second half it predicts a mean wait of {duration_text(half.mean_s)}, where the log has "
            f"{duration_text(half.logged_mean_s)} ({percent(half.error)}), and {percent(half.within_factor)} of "
            "the single waits within a factor of two."
        )
        if not self.close:
            yield f"That is not within {percent(CLOSE)}. {' '.join(self.reasons)}"
        yield "Policies are credited only with the difference of their waits to this row's."

    def facts(self) -> dict[str, Any]:
        """Return what is known of the row as plain values, for JSON."""
        return {
            "model": self.model.about,
            "order": self.model.order,
            "by_priorities": self.model.priorities,
            "knows_limits_only": self.model.limits,
            "start_delay_s": self.start_delay_s,
            "first_half": self.first_half.facts(),
            "second_half": self.second_half.facts(),
            "is_close": self.close,
            "reasons": list(self.reasons),
            "by_size": {name: each.facts() for name, each in self.by_size.items()},
            "by_partition": {name: each.facts() for name, each in self.by_partition.items()},
            "models_tried": [{"model": about, "miss_s": miss_s} for about, miss_s in self.tried.items()],
        }


def scheduler_models(trace: Trace) -> list[SchedulerModel]:
    """Return the models that are tried on a log, by what it tells."""
    limits, priorities = (_tells(trace, name) for name in ("limit_s", "priority"))
    backfills = ("backfill", "conservative") if len(trace) < LONG else ("backfill",)
    found = []
    for by_priority in (False, True) if priorities else (False,):
        blocking = SchedulerModel("priority" if by_priority else "fifo", by_priority, limits=False)
        found += [blocking, *(SchedulerModel(order, by_priority, limits) for order in backfills)]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ChosenModel:
    """The model that is nearest to a log in the part of it on which models are tried."""

    like: Scenario
    logged: LoggedJobs
    compared: pl.DataFrame  # jobs whose waits count
    middle_s: float  # from which on it is judged
    fits: Mapping[SchedulerModel, tuple[float, Prediction]]  # what a start takes, and how well waits are predicted
    tried_on: str  # of which jobs that is

    @property
    def model(self) -> SchedulerModel:
        """The model that misses waits by the least."""
        return _nearest(self.fits)

    @property
    def scenario(self) -> Scenario:
        """The replay of the whole log."""
        return self.model.scenario(self.like)

    def judged(self, ran: Result) -> Calibration | None:
        """Say how well a replay of the whole log predicts its second half; None if no job of that ran."""
        delay_s, first_half = self.fits[self.model]
        result = replace(ran, settings={**ran.settings, "policy": REPLAYED})
        second = self.compared.filter(pl.col("submit_s") >= self.middle_s).join(_waits(result), on="job_id")
        if second.is_empty():
            return None
        free_share = free_while_waiting(self.like.cluster, self.like.whole_trace, self.logged, second)
        by_partition = _by(second, second["partition"], delay_s) if "partition" in second.columns else {}
        return Calibration(
            self.model,
            delay_s,
            first_half,
            _predicted(second, delay_s),
            _by(second, second.select(size_of_job())["size"], delay_s),
            by_partition,
            {each.about: fit.miss_s for each, (_, fit) in self.fits.items()},
            self.tried_on,
            result,
            list(_reasons(self.like, self.logged, first_half, second, free_share)),
            free_share,
            len(self.like.whole_trace) >= LONG,
        )


def calibrated(scenario: Scenario, logged: LoggedJobs, processes: int | None = None) -> Calibration | None:
    """Replay the log's own scheduler as far as the log tells how it worked; None if there are too few jobs."""
    chosen = choose_model(scenario, logged, processes)
    return None if chosen is None else chosen.judged(run(chosen.scenario))


def choose_model(scenario: Scenario, logged: LoggedJobs, processes: int | None = None) -> ChosenModel | None:
    """Find out how the log's own scheduler worked, as far as the log tells; None if there are too few jobs."""
    trace = scenario.whole_trace
    compared = _compared(trace, logged)
    if compared.height < 4:
        return None
    middle_s = float(compared["submit_s"].sort()[compared.height // 2])
    early = trace.frame.filter(pl.col("submit_s") < middle_s).tail(CHOSEN_ON)
    first = compared.join(early.select("job_id"), on="job_id", how="semi")
    if first.is_empty():
        return None
    half = replace(scenario, trace=replace(trace, frame=early))
    fits = _tried(half, scheduler_models(trace), first, processes)
    if not fits:
        return None
    model = _nearest(fits)
    limited_by = () if len(trace) >= LONG else LIMITED_BY  # replays with limits are not compiled
    groups = (inferred_limits(scenario.cluster, trace, logged, by, middle_s) for by in limited_by)
    fits |= _tried(half, [replace(model, groups=each) for each in groups if each is not None], first, processes)
    tried_on = (
        "the log's first half"
        if early.height < CHOSEN_ON
        else f"the last {CHOSEN_ON:,} jobs of the log's first half"
    )
    return ChosenModel(scenario, logged, compared, middle_s, fits, tried_on)


def _tried(
    half: Scenario, models: Sequence[SchedulerModel], first: pl.DataFrame, processes: int | None
) -> dict[SchedulerModel, tuple[float, Prediction]]:
    """Replay the first half under models; return what a start takes and how well waits are predicted."""
    replays = [model.scenario(half, half.whole_trace) for model in models]
    waits: list[pl.DataFrame] = run_many(replays, keep=_waits, impossible=pl.DataFrame(), processes=processes)
    fits = {}
    for model, waited in zip(models, waits, strict=True):
        both = first.join(waited, on="job_id") if waited.height else first.clear()
        if both.height:
            delay_s = _start_delay_s(both)
            fits[model] = delay_s, _predicted(both, delay_s)
    return fits


def _nearest(fits: Mapping[SchedulerModel, tuple[float, Prediction]]) -> SchedulerModel:
    """Return the model that misses waits by the least; of equals the first."""
    return min(fits, key=lambda model: fits[model][1].miss_s)


def _compared(trace: Trace, logged: LoggedJobs) -> pl.DataFrame:
    """Return the jobs whose waits count, with their partitions."""
    partition = ["partition"] if "partition" in trace.frame.columns else []
    jobs = logged.jobs.select("job_id", "gpus", "submit_s", "start_s", logged_s="wait_s")
    return jobs.join(counted_jobs(trace).select("job_id", *partition), on="job_id")


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


def _reasons(
    scenario: Scenario, logged: LoggedJobs, first_half: Prediction, second: pl.DataFrame, free_share: float | None
) -> Iterator[str]:
    """Say why the replay may wait otherwise than the log did, and what that means for the other rows."""
    trace, cluster = scenario.whole_trace, scenario.cluster
    if free_share is not None:
        yield (
            f"{percent(free_share)} of the log's waiting passed while as many GPUs were free by the log itself as "
            "the job asked for: such waits come from starts that take time, limits of users, fair share, "
            "dependencies, reservations or machines that were down, which the log does not tell. No replay has "
            "them. What a policy is credited with, in waits and in money, is the difference of two replays: it is "
            "about the rest of the waiting, and about how machines are filled."
        )
        before_s, after_s = first_half.logged_mean_s, float(second["logged_s"].to_numpy().mean())
        if free_share > HALF and abs(after_s - before_s) > CLOSE * max(after_s, 1.0):
            yield (
                f"The log's own mean wait went from {duration_text(before_s)} in its first half to "
                f"{duration_text(after_s)} in its second: what held jobs back besides the queue has changed, so "
                "that no time learned from the first half would predict it."
            )
    if logged.peak_gpus > cluster.gpus:
        yield f"The log holds up to {logged.peak_gpus:,} GPUs at once, the cluster has {cluster.gpus:,}."
    words = {"limit_s": "limits of jobs", "priority": "priorities", "partition": "partitions"}
    missing = [word for name, word in words.items() if not _tells(trace, name)]
    if missing:
        yield f"The log does not tell {', '.join(missing)}."
    if _tells(trace, "partition") and not cluster.partitions:
        yield "The cluster does not list the machines of partitions, so that all jobs share all machines."
