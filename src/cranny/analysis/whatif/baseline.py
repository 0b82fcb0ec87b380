"""What the log itself says: when its jobs really started, and how many GPUs they held."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cranny.analysis.whatif.headroom import Headroom
from cranny.traces.inspect import StepFunction, Window
from cranny.traces.trace import Trace

AS_IT_WAS = "as it was"
UNKNOWN = "not in the log"
ENOUGH = 0.5  # share of the jobs whose start must be known, to compare with the log at all
NEARLY_ALL = 0.95  # share that must be known to say how many GPUs were held


@dataclass(frozen=True, slots=True, eq=False)
class LoggedJobs:
    """The jobs of a log whose start is known and makes sense."""

    jobs: pl.DataFrame  # job_id, gpus, submit_s, start_s, finish_s, wait_s, jct_s
    without_start: int
    early: int  # jobs that start before they are submitted

    @property
    def share(self) -> float:
        """The share of the log's jobs that this is."""
        return self.jobs.height / (self.jobs.height + self.without_start + self.early)

    @property
    def peak_gpus(self) -> int:
        """The most GPUs held at once."""
        start_s, finish_s = self.jobs["start_s"].to_numpy(), self.jobs["finish_s"].to_numpy()
        return int(self.held((float(start_s.min()), float(finish_s.max()))).value.max())

    def held(self, window: Window) -> StepFunction:
        """Return the GPUs that jobs held over time."""
        gpus = self.jobs["gpus"].cast(pl.Float64).to_numpy()
        return StepFunction.of(self.jobs["start_s"].to_numpy(), self.jobs["finish_s"].to_numpy(), gpus, window)

    def headroom(self, gpus: int, window: Window) -> Headroom | None:
        """Return what was free of so many GPUs, on machines that are not known; None if that is not known."""
        if self.share < NEARLY_ALL:
            return None
        held = self.held(window)
        return Headroom(replace(held, value=np.maximum(gpus - held.value, 0.0)), None)


def logged_jobs(trace: Trace) -> LoggedJobs | None:
    """Take the real starts from a log; None if it has none, or too few."""
    if "start_s" not in trace.frame.columns:
        return None
    columns = trace.frame.select("job_id", "gpus", "duration_s", "start_s").with_columns(
        ready_s(trace.frame).alias("submit_s")
    )
    known = columns.filter(pl.col("start_s").is_finite())
    sound = known.filter(pl.col("start_s") >= pl.col("submit_s"))
    if sound.height < ENOUGH * len(trace):
        return None
    jobs = sound.with_columns((pl.col("start_s") + pl.col("duration_s")).alias("finish_s")).with_columns(
        (pl.col("start_s") - pl.col("submit_s")).alias("wait_s"),
        (pl.col("finish_s") - pl.col("submit_s")).alias("jct_s"),
    )
    return LoggedJobs(jobs, len(trace) - known.height, known.height - sound.height)


def ready_s(frame: pl.DataFrame) -> pl.Series:
    """Return when each job could first have started, from which waits count: its submission if nothing is said."""
    if "eligible_s" not in frame.columns:
        return frame["submit_s"]
    eligible_s, submit_s = frame["eligible_s"], frame["submit_s"]
    return submit_s.zip_with(eligible_s.is_finite().not_().fill_null(value=True), eligible_s).alias("submit_s")
