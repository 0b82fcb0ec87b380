"""Where jobs ran that are skipped, such as those without GPUs: they hold none, but their machines were in use."""

import polars as pl

PRESENCE = {
    "ran_on": pl.String(),  # machines, as in a trace
    "start_s": pl.Float64(),
    "duration_s": pl.Float64(),
    "end_s": pl.Float64(),  # none if the job still ran when the log was written
    "limit_s": pl.Float64(),
}


def no_presence() -> pl.DataFrame:
    """Return the presence of no job."""
    return pl.DataFrame(schema=PRESENCE)


def presence_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Take from rows of a trace where and how long each job ran; those that do not say are dropped."""
    if not {"ran_on", "start_s", "duration_s"} <= set(rows.columns):
        return no_presence()
    columns = [
        pl.col(name).cast(dtype) if name in rows.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in PRESENCE.items()
    ]
    known = pl.col("ran_on").is_not_null() & pl.col("start_s").is_finite() & pl.col("duration_s").is_finite()
    return rows.select(columns).filter(known & (pl.col("duration_s") > 0))


def shifted(presence: pl.DataFrame, by_s: float) -> pl.DataFrame:
    """Count times from a zero that is so many seconds earlier."""
    return presence.with_columns(pl.col("start_s", "end_s") + by_s)


def presence_rows(presence: pl.DataFrame) -> pl.DataFrame:
    """Return rows of a trace that are read as this presence: jobs without GPUs."""
    return presence.select(
        pl.format("without-gpus-{}", pl.int_range(1, pl.len() + 1)).alias("job_id"),
        pl.max_horizontal("start_s", pl.lit(0.0)).alias("submit_s"),
        pl.lit(0, pl.Int32()).alias("gpus"),
        *PRESENCE,
    )
