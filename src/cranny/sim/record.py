"""What a replay wrote down, in columns: the same whether it was compiled or not."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from cranny.model.errors import InputError
from cranny.network.phases.contention import Meeting

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# What is noted after each event.
NOTED = (
    "time_s",
    "arrival",  # 1 for an arrival, 0 for anything else
    "waiting_jobs",
    "used_machines",
    "idle_units",  # GPUs without a rank on used machines, in units of a machine
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


class Stretches(NamedTuple):
    """Stretches of time in which a job held its GPUs, (stretches,) each."""

    gpus: Floats  # that the job asks for, whose duration this is, however many it held
    nominal_s: Floats  # of the job's duration, to be done in the stretch
    slowdown: Floats
    first_note: Ints  # notes of the metrics that were taken in it: from this one
    past_note: Ints  # to before this one


class Record(NamedTuple):
    """Everything that a finished replay wrote down."""

    jobs: pl.DataFrame  # a row a job, see `JOBS`: those done, then those unfinished, then those skipped
    runs: pl.DataFrame  # a row for each stretch and machine, see `RUNS`
    noted: Floats  # (notes, NOTED)
    stretches: Stretches
    streams: pl.DataFrame | None = None  # what jobs streamed, where they share links; see `sim.streams`
    iterations: Mapping[str, float] | None = None  # of jobs in phases; see `sim.iterations`
    meetings: tuple[Meeting, ...] = ()  # the costliest ones of jobs in phases


def some_can_run(record: Record, trace_name: str) -> None:
    """Refuse a replay in which every job was skipped, with the reason of the first."""
    if (record.jobs["status"] == SKIPPED).all():
        if record.jobs.is_empty():
            raise InputError(f"{trace_name}: no jobs")
        job_id, reason = record.jobs.select("job_id", "reason").row(0)
        raise InputError(f"no job of {trace_name} can run: job {job_id!r} {reason}")
