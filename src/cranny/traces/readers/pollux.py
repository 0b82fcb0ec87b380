"""Reader of the workload files of Pollux and Sia.

A job names an application and no duration: the paper (Pollux, OSDI 2021) only says from which class of GPU time
each application comes. The middle of that class, divided by the GPUs, stands for the duration.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from cranny.model.profile import ModelProfile
from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import Columns, LogMapping, number, text
from cranny.traces.schema import CPU_ONLY, RowRule

NEEDS = ("name", "time", "application", "num_replicas", "batch_size")
# GPU-hours: the classes are 0 to 1, 1 to 10, 10 to 100 and 100 to 1000; the geometric middle, but for the first.
SMALL, MEDIUM, LARGE, EXTRA_LARGE = 0.5, 10**0.5, 10**1.5, 10**2.5
GPU_HOURS = {
    "cifar10": SMALL,
    "ncf": SMALL,
    "bert": MEDIUM,
    "deepspeech2": MEDIUM,
    "yolov3": LARGE,
    "imagenet": EXTRA_LARGE,
}
MODELS = {"cifar10": "resnet18", "imagenet": "resnet50", "bert": "bert-base"}


def log(_names: Sequence[str], profiles: Mapping[str, ModelProfile], __: str) -> LogMapping:
    """Take our columns."""
    application = text("application")
    gpu_s = application.replace_strict(GPU_HOURS, default=None) * 3600.0
    model = application.replace_strict(MODELS, default=None, return_dtype=pl.String)
    columns: Columns = {
        "job_id": "name",
        "submit_s": "time",
        "gpus": "num_replicas",
        "application": application,
        "duration_s": gpu_s / number("num_replicas"),
        "model": pl.when(model.is_in(list(profiles))).then(model),
        "batch_size": "batch_size",
    }
    foreign = ~pl.col("application").is_in(list(GPU_HOURS)).fill_null(value=False)
    unknown = RowRule(
        "application", "no duration in the log, and an application of no known class", foreign, of_value=False
    )
    notes = (
        "the log has no durations: an application's class of GPU time (its middle), divided by the job's GPUs",
        "models in this log were drawn by its authors; ncf, deepspeech2 and yolov3 get another drawn",
    )
    return LogMapping(columns, rules=(CPU_ONLY, unknown), called={"duration_s": "application"}, notes=notes)


_FORMAT = DelimitedFormat(log, NEEDS)
sniff, read = _FORMAT.sniff, _FORMAT.read
