"""What a replay records: each job's progress while it runs, and everything in columns at the end.

The columns are the same whether the replay was compiled or not.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from cranny.core.traffic import GIGA
from cranny.model.arrays import Floats, Ints
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.network.phases.contention import Contention
from cranny.network.phases.iteration_log import IterationInterval

# What is sampled after each instant at which something happened.
SAMPLE_COLUMNS = (
    "time_s",
    "arrivals",  # jobs that arrived then
    "waiting_jobs",
    "used_machines",
    "idle_units",  # GPUs without a rank on used machines, in shares of a machine
    "cross_bytes",  # of one iteration of every running job
    "held_gpus",
    "running_jobs",
)

JOBS = {
    "job_id": pl.String,
    "gpus": pl.Int32,
    "model": pl.String,
    "tenant": pl.String,
    "submit_s": pl.Float64,
    "start_s": pl.Float64,
    "finish_s": pl.Float64,
    "wait_s": pl.Float64,
    "jct_s": pl.Float64,
    "duration_s": pl.Float64,
    "slowdown": pl.Float64,
    "machines": pl.Int32,
    "cross_traffic_gb": pl.Float64,
    "restarts": pl.Int32,
    "moves": pl.Int32,
    "status": pl.String,
    "reason": pl.String,
}
RUNS = {"job_id": pl.String, "start_s": pl.Float64, "end_s": pl.Float64, "machine": pl.Int32, "gpus": pl.UInt64}

DONE, UNFINISHED, SKIPPED = "done", "unfinished", "skipped"
Held = Mapping[int, int]  # machine -> its GPUs, as bits


class RunColumns(NamedTuple):
    """Runs, the periods in which a job held its GPUs, (runs,) each."""

    gpus: Floats  # that the job asks for, whose duration this is, however many it held
    nominal_s: Floats  # of the job's duration, to be done in the run
    slowdown: Floats
    first_sample: Ints  # samples of the metrics taken in it: from this one
    past_sample: Ints  # to before this one


class ReplayRecord(NamedTuple):
    """Everything that a finished replay recorded."""

    jobs: pl.DataFrame  # a row a job, see `JOBS`: those done, then those unfinished, then those skipped
    runs: pl.DataFrame  # a row for each run and machine, see `RUNS`
    samples: Floats  # (samples, SAMPLE_COLUMNS)
    run_columns: RunColumns
    streams: pl.DataFrame | None = None  # what jobs sent over shared links; see `network.steady.steady_network`
    iterations: Mapping[str, float] | None = None  # of jobs in phases; see `network.phases.iteration_log`
    contentions: tuple[Contention, ...] = ()  # the costliest ones of jobs in phases
    intervals: tuple[IterationInterval, ...] = ()  # of equally long iterations, if the network keeps them


def refuse_if_all_skipped(record: ReplayRecord, trace_name: str) -> None:
    """Refuse a replay in which every job was skipped, with the reason of the first."""
    if (record.jobs["status"] == SKIPPED).all():
        if record.jobs.is_empty():
            raise InputError(f"{trace_name}: no jobs")
        job_id, reason = record.jobs.select("job_id", "reason").row(0)
        raise InputError(f"no job of {trace_name} can run: job {job_id!r} {reason}")


@dataclass(slots=True)
class SimulatedJob:
    """A job's progress through a replay."""

    job: Job
    remaining_s: float  # of the nominal duration, at `since_s`
    first_start_s: float | None = None
    finish_s: float = math.nan
    start_s: float = 0.0  # of the present run
    run_work_s: float = 0.0  # remaining then
    slowdown: float = 1.0  # since `since_s`
    stretch: float = 1.0  # factor of it for fewer or slower workers than asked for
    since_s: float = 0.0
    end_serial: int = 0  # counts predicted ends; only the last is valid
    stops: int = 0
    stopped_s: float = math.nan  # when it was last stopped on purpose
    moves: int = 0
    ran_before: bool = False  # the replay began
    reason: str = ""  # why it never finished
    held: Held | None = None  # known once it runs
    first_sample: int = 0
    cross_bytes: float = 0.0


# A period in which a job held its GPUs: the job, start and end, machines and their GPUs, the nominal seconds to be
# done in it, the slowdown, and the samples of the metrics taken in it, from the first to before another. A plain
# tuple, because there is one for every job.
Run = tuple[SimulatedJob, float, float, Held, float, float, int, int]


@dataclass(slots=True)
class ReplayLog:
    """What happened: finished jobs, runs, and jobs that were skipped."""

    done: list[SimulatedJob] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    skipped: list[tuple[Job, str]] = field(default_factory=list)
    unfinished: list[SimulatedJob] = field(default_factory=list)

    def record(self, samples: Floats) -> ReplayRecord:
        """Return everything in columns, with the samples of the metrics."""
        simulated_jobs, start_s, end_s, held, nominal_s, slowdown, first, past = (
            zip(*self.runs, strict=True) if self.runs else ((),) * 8
        )
        run = np.repeat(np.arange(len(held)), [len(each) for each in held])  # of each row
        runs = {
            "job_id": pl.Series([each.job.id for each in simulated_jobs], dtype=pl.String).gather(run),
            "start_s": np.array(start_s, dtype=float)[run],
            "end_s": np.array(end_s, dtype=float)[run],
            "machine": [machine for each in held for machine in each],
            "gpus": [gpus for each in held for gpus in each.values()],
        }
        run_columns = RunColumns(
            np.array([simulated.job.gpus for simulated in simulated_jobs], dtype=float),
            np.array(nominal_s, dtype=float),
            np.array(slowdown, dtype=float),
            np.array(first, dtype=np.int64),
            np.array(past, dtype=np.int64),
        )
        return ReplayRecord(self._jobs(), pl.DataFrame(runs, schema=RUNS), samples, run_columns)

    def _jobs(self) -> pl.DataFrame:
        simulated_jobs = [*self.done, *self.unfinished]
        skipped = [job for job, _ in self.skipped]
        jobs = [*(simulated.job for simulated in simulated_jobs), *skipped]
        none = [None] * len(skipped)
        submit_s = np.array([job.submit_s for job in jobs], dtype=float)
        started = [*(simulated.first_start_s for simulated in simulated_jobs), *none]
        finished = [*(simulated.finish_s for simulated in self.done), *[None] * (len(jobs) - len(self.done))]
        start_s, finish_s = (pl.Series(times, dtype=pl.Float64) for times in (started, finished))
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
                "slowdown": [*(simulated.slowdown for simulated in simulated_jobs), *none],
                "machines": [*(len(simulated.held or ()) for simulated in simulated_jobs), *none],
                "cross_traffic_gb": [*(simulated.cross_bytes / GIGA for simulated in simulated_jobs), *none],
                "restarts": [*(simulated.stops for simulated in simulated_jobs), *none],
                "moves": [*(simulated.moves for simulated in simulated_jobs), *none],
                "status": [DONE] * len(self.done) + [UNFINISHED] * len(self.unfinished) + [SKIPPED] * len(none),
                "reason": [
                    *(simulated.reason or None for simulated in simulated_jobs),
                    *(reason for _, reason in self.skipped),
                ],
            },
            schema=JOBS,
        )
