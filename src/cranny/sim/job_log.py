"""What the event loop keeps of each job, and how that becomes columns."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from cranny.core.traffic import GIGA
from cranny.model.job import Job
from cranny.sim.record import DONE, JOBS, RUNS, SKIPPED, UNFINISHED, Floats, Record, Stretches

Held = Mapping[int, int]  # machine -> its GPUs, as bits


@dataclass(slots=True)
class Work:
    """A job's progress through the simulation."""

    job: Job
    left_s: float  # of the nominal duration, at `since_s`
    first_start_s: float | None = None
    finish_s: float = math.nan
    start_s: float = 0.0  # of the present stretch of running
    todo_s: float = 0.0  # what was left then
    slowdown: float = 1.0  # since `since_s`
    stretch: float = 1.0  # part of it: for fewer or slower workers than asked for
    since_s: float = 0.0
    due: int = 0  # counts the ends that were foreseen; only the last is true
    stops: int = 0
    stopped_s: float = math.nan  # when it was last stopped on purpose
    moves: int = 0
    reason: str = ""  # why it never finished
    held: Held | None = None  # known once it runs
    first_note: int = 0
    cross_bytes: float = 0.0


# A stretch of time in which a job held its GPUs: the job's work, start and end, machines and their GPUs, the
# nominal seconds to be done in it, the slowdown, and the notes of the metrics that were taken in it, from the
# first to before another. A plain tuple, because there is one for every job.
Stretch = tuple[Work, float, float, Held, float, float, int, int]


@dataclass(slots=True)
class Log:
    """What happened: finished jobs, stretches of running, and jobs that could not run."""

    done: list[Work] = field(default_factory=list)
    runs: list[Stretch] = field(default_factory=list)
    skipped: list[tuple[Job, str]] = field(default_factory=list)
    unfinished: list[Work] = field(default_factory=list)

    def record(self, noted: Floats) -> Record:
        """Return everything in columns, with the notes of the metrics."""
        return Record(self._jobs(), self._runs(), noted, self._stretches())

    def _jobs(self) -> pl.DataFrame:
        works = [*self.done, *self.unfinished]
        skipped = [job for job, _ in self.skipped]
        jobs = [*(work.job for work in works), *skipped]
        none = [None] * len(skipped)
        submit_s = np.array([job.submit_s for job in jobs], dtype=float)
        start_s = _seconds([*(work.first_start_s for work in works), *none])
        finish_s = _seconds([*(work.finish_s for work in self.done), *[None] * (len(jobs) - len(self.done))])
        return pl.DataFrame(
            {
                "job_id": [job.id for job in jobs],
                "gpus": [job.gpus for job in jobs],
                "model": [job.profile.name for job in jobs],
                "tenant": [job.tenant for job in jobs],
                "submit_s": submit_s,
                "start_s": start_s,
                "finish_s": finish_s,
                "wait_s": start_s - submit_s,
                "jct_s": finish_s - submit_s,
                "duration_s": [job.duration_s for job in jobs],
                "slowdown": [*(work.slowdown for work in works), *none],
                "machines": [*(len(work.held or ()) for work in works), *none],
                "cross_traffic_gb": [*(work.cross_bytes / GIGA for work in works), *none],
                "restarts": [*(work.stops for work in works), *none],
                "moves": [*(work.moves for work in works), *none],
                "status": [DONE] * len(self.done) + [UNFINISHED] * len(self.unfinished) + [SKIPPED] * len(none),
                "reason": [*(work.reason or None for work in works), *(reason for _, reason in self.skipped)],
            },
            schema=JOBS,
        )

    def _runs(self) -> pl.DataFrame:
        if not self.runs:
            return pl.DataFrame(schema=RUNS)
        works, start_s, end_s, held, *_ = zip(*self.runs, strict=True)
        stretch = np.repeat(np.arange(len(held)), [len(each) for each in held])  # that each row belongs to
        return pl.DataFrame(
            {
                "job_id": pl.Series([work.job.id for work in works]).gather(stretch),
                "start_s": np.array(start_s)[stretch],
                "end_s": np.array(end_s)[stretch],
                "machine": [machine for each in held for machine in each],
                "gpus": [gpus for each in held for gpus in each.values()],
            },
            schema=RUNS,
        )

    def _stretches(self) -> Stretches:
        works, _, _, _, nominal_s, slowdown, first, past = zip(*self.runs, strict=True) if self.runs else ((),) * 8
        return Stretches(
            np.array([work.job.gpus for work in works], dtype=float),
            np.array(nominal_s, dtype=float),
            np.array(slowdown, dtype=float),
            np.array(first, dtype=np.int64),
            np.array(past, dtype=np.int64),
        )


def _seconds(values: list[float | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)
