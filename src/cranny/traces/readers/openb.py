"""Reader of Alibaba's 2023 GPU-sharing cluster: `openb_pod_list_*.csv`.

A pod is a job on one machine; one that asks for part of a GPU counts as one GPU.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from cranny.model.profile import ModelProfile
from cranny.traces.readers import timestamps
from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import LogMapping, number, text

NEEDS = ("name", "num_gpu", "gpu_spec", "pod_phase", "creation_time", "deletion_time", "scheduled_time")


def log(_names: Sequence[str], _: Mapping[str, ModelProfile], __: str) -> LogMapping:
    """Take our columns."""
    gpu_type = text("gpu_spec")
    columns = {
        "job_id": text("name"),
        "submit_s": timestamps.seconds(pl.col("creation_time")),
        "start_s": timestamps.seconds(pl.col("scheduled_time")),
        "end_s": timestamps.seconds(pl.col("deletion_time")),
        "gpus": number("num_gpu"),
        # Several types joined by | mean that any of them will do.
        "gpu_type": pl.when(~gpu_type.str.contains("|", literal=True)).then(gpu_type),
        "status": text("pod_phase"),
        "machines": pl.lit(1.0),
    }
    called = {
        "job_id": "name",
        "gpus": "num_gpu",
        "submit_s": "creation_time",
        "start_s": "scheduled_time",
        "end_s": "deletion_time",
    }
    notes = (
        "a part of a GPU counts as one GPU",
        "pods that were Running when observation ended are cut there, so long services look shorter",
    )
    return LogMapping(columns, called=called, notes=notes)


_FORMAT = DelimitedFormat(log, NEEDS)
sniff, read = _FORMAT.sniff, _FORMAT.read
