"""Jobs on parts of GPUs, MIG instances and shards: policies place whole GPUs, so that none can place them."""

from dataclasses import replace

import polars as pl

from cranny.model.errors import InputError
from cranny.model.validate import counted
from cranny.traces.presence import presence_of
from cranny.traces.trace import Trace

PARTS = "on parts of GPUs (MIG, shards); --count-parts counts each as a GPU"
HOUR_S = 3600.0


def without_parts(trace: Trace) -> Trace:
    """Skip and count the jobs whose GPUs are parts of GPUs, and say how many GPU-hours these are."""
    if "gpu_fraction" not in trace.frame.columns:
        return trace
    is_part = (pl.col("gpu_fraction") < 1).fill_null(value=False)
    parts = trace.frame.filter(is_part)
    if parts.is_empty():
        return trace
    if parts.height == len(trace):
        raise InputError(f"{trace.name}: all of its {counted(parts.height, 'job')} are {PARTS}")
    hours = float((parts["gpus"] * parts["gpu_fraction"] * parts["duration_s"]).to_numpy().sum()) / HOUR_S
    note = (
        f"{counted(parts.height, 'job')} on parts of GPUs skipped: they held {hours:,.0f} GPU-hours of whole GPUs"
    )
    skipped = {**trace.skipped, PARTS: parts.height}
    return replace(
        trace,
        frame=trace.frame.filter(~is_part),
        skipped=skipped,
        notes=(*trace.notes, note),
        presence=pl.concat([trace.presence, presence_of(parts)]),
    )
