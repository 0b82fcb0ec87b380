"""What a cluster had left over time: free GPUs, idle machines, and those that could have been switched off."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cranny.model.cluster import Machine
from cranny.traces.generate import Floats
from cranny.traces.inspect import StepFunction, Window

HOUR_S = 3600.0
HOLD_S = 900.0  # a machine is worth switching off for this long or longer


@dataclass(frozen=True, slots=True, eq=False)
class Headroom:
    """How large a job could have started at each moment; None where it is unknown which machines were idle."""

    free_gpus: StepFunction  # spread over all machines that have some
    idle_gpus: StepFunction | None  # on idle machines alone


@dataclass(frozen=True, slots=True)
class MachineHours:
    """Machine-hours in the window, and those of machines that could have been switched off."""

    used: float  # machines, mean over time
    used_hours: float
    idle_hours: float  # of every machine that no job held
    off_hours: float  # of these, in stretches of `HOLD_S` or longer
    off_gpu_hours: float  # GPUs of these machines x hours
    off: float  # machines, mean over time


def headroom(runs: pl.DataFrame, idle: pl.DataFrame, machines: Sequence[Machine], window: Window) -> Headroom:
    """Return the headroom under a policy, from the GPUs that jobs held and the stretches of idle machines."""
    gpus = _gpus(machines)
    held = runs["gpus"].bitwise_count_ones().cast(pl.Float64).to_numpy()
    return Headroom(
        StepFunction.of(runs["start_s"].to_numpy(), runs["end_s"].to_numpy(), -held, window, float(gpus.sum())),
        StepFunction.of(
            idle["start_s"].to_numpy(), idle["end_s"].to_numpy(), gpus[idle["machine"].to_numpy()], window
        ),
    )


def idle_stretches(
    runs: pl.DataFrame, machines: int, window: Window, beside: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return a row (machine, start_s, end_s) for each stretch of the window in which a machine was idle.

    It was not where `runs` has one, nor in the stretches `beside` them.
    """
    first_s, last_s = window
    columns = "machine", "start_s", "end_s"
    used = runs.select(columns) if beside is None else pl.concat([runs.select(columns), beside.select(columns)])
    busy = used.with_columns(pl.col("start_s", "end_s").clip(first_s, last_s))
    # A run without length at the end of the window closes the last idle stretch of each machine.
    ends = pl.DataFrame(
        {"machine": np.arange(machines), "start_s": [last_s] * machines, "end_s": [last_s] * machines},
        schema=busy.schema,
    )
    return (
        pl.concat([busy.filter(pl.col("end_s") > pl.col("start_s")), ends])
        .sort("machine", "start_s")
        .with_columns(pl.col("end_s").cum_max().shift(1).over("machine").fill_null(first_s).alias("since_s"))
        .filter(pl.col("start_s") > pl.col("since_s"))
        .select("machine", pl.col("since_s").alias("start_s"), pl.col("start_s").alias("end_s"))
    )


def switched_off(
    idle: pl.DataFrame, machines: Sequence[Machine], window: Window, hold_s: float = HOLD_S
) -> MachineHours:
    """Add up the idle stretches, all of them and those long enough to switch a machine off."""
    hours = (idle["end_s"] - idle["start_s"]).to_numpy() / HOUR_S  # (stretches,)
    gpus = _gpus(machines)[idle["machine"].to_numpy()]
    long = hours >= hold_s / HOUR_S
    span = (window[1] - window[0]) / HOUR_S
    idle_hours, off_hours = float(hours.sum()), float(hours[long].sum())
    used_hours = max(0.0, len(machines) * span - idle_hours)
    return MachineHours(
        used=used_hours / span,
        used_hours=used_hours,
        idle_hours=idle_hours,
        off_hours=off_hours,
        off_gpu_hours=float((hours * gpus)[long].sum()),
        off=off_hours / span,
    )


def _gpus(machines: Sequence[Machine]) -> Floats:
    """Return the GPUs of each machine, (machines,)."""
    return np.array([machine.gpus for machine in machines], dtype=np.float64)
