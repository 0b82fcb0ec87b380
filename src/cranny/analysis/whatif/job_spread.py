"""Over how many machines and racks jobs were spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

LEAST_GPUS = 2  # of jobs that can be spread at all


@dataclass(frozen=True, slots=True)
class JobSpread:
    """Means over the jobs of `LEAST_GPUS` or more; of a job that was stopped, over its runs."""

    jobs: int
    machines: float
    racks: float


def job_spread(runs: pl.DataFrame, jobs: pl.DataFrame, rack_of: Sequence[int]) -> JobSpread | None:
    """Measure those of some jobs (job_id, gpus) that can be spread; None if there are none."""
    wide = jobs.filter(pl.col("gpus") >= LEAST_GPUS).select("job_id")
    parts = runs.join(wide, on="job_id", how="semi")
    if parts.is_empty():
        return None
    rack = pl.Series("rack", np.array(rack_of)[parts["machine"].to_numpy()])
    each = (
        parts.select("job_id", "start_s", "machine", rack)
        .group_by("job_id", "start_s")
        .agg(pl.len().alias("machines"), pl.col("rack").n_unique().alias("racks"))
        .group_by("job_id")
        .agg(pl.col("machines", "racks").mean())
    )
    machines, racks = (float(each[name].to_numpy().mean()) for name in ("machines", "racks"))
    return JobSpread(each.height, machines, racks)
