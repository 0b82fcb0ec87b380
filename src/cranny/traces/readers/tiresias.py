"""Readers of the job files of Tiresias (times in seconds) and of Muri, which has them in milliseconds.

Submission, size and duration come from a log; models, and what follows from them, were put in by the authors.
"""

import polars as pl

from cranny.traces.readers import timestamps
from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import LogMapping, number
from cranny.traces.schema import CPU_ONLY

NEEDS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")
MURI_ONLY = ("iteration_time", "resource_time_0")


def _log(unit_s: float) -> LogMapping:
    """Take our columns from a file with times in this unit."""
    return LogMapping(
        {
            "job_id": "job_id",
            "submit_s": timestamps.seconds(pl.col("submit_time")) * unit_s,
            "gpus": "num_gpu",
            "duration_s": number("duration") * unit_s,
            "model": "model_name",
            "iterations": "iterations",
        },
        further={"batch_size": "batch_size", "user": "user"},
        rules=(CPU_ONLY,),
        called={"submit_s": "submit_time", "duration_s": "duration"},
    )


_TIRESIAS = DelimitedFormat(_log(1.0), NEEDS)
_MURI = DelimitedFormat(_log(1e-3), (*NEEDS, *MURI_ONLY))
sniff, read = _TIRESIAS.sniff, _TIRESIAS.read
sniff_muri, read_muri = _MURI.sniff, _MURI.read
