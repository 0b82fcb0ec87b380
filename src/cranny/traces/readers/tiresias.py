"""Readers of the job files of Tiresias (times in seconds) and of Muri, which has them in milliseconds.

Submission, size and duration come from a log; models, and what follows from them, were put in by the authors.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl

from cranny.model.profile import ModelProfile
from cranny.traces.readers import timestamps
from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import LogMapping, number, text, where_there
from cranny.traces.schema import CPU_ONLY

NEEDS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")
MURI_ONLY = ("iteration_time", "resource_time_0")


def _log(names: Sequence[str], _: Mapping[str, ModelProfile], __: str, unit_s: float = 1.0) -> LogMapping:
    """Take our columns from a file with times in this unit."""
    columns: dict[str, pl.Expr] = {
        "job_id": text("job_id"),
        "submit_s": timestamps.seconds(pl.col("submit_time")) * unit_s,
        "gpus": number("num_gpu"),
        "duration_s": number("duration") * unit_s,
        "model": text("model_name"),
        "iterations": number("iterations"),
        **where_there(names, {"batch_size": ("batch_size", number("batch_size")), "user": ("user", text("user"))}),
    }
    called = {"submit_s": "submit_time", "gpus": "num_gpu", "duration_s": "duration", "model": "model_name"}
    return LogMapping(columns, rules=(CPU_ONLY,), called=called)


_TIRESIAS = DelimitedFormat(_log, NEEDS)
_MURI = DelimitedFormat(partial(_log, unit_s=1e-3), (*NEEDS, *MURI_ONLY))
sniff, read = _TIRESIAS.sniff, _TIRESIAS.read
sniff_muri, read_muri = _MURI.sniff, _MURI.read
