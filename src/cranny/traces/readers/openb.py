"""Reader of Alibaba's 2023 GPU-sharing cluster: `openb_pod_list_*.csv`.

A pod is a job on one machine; one that asks for part of a GPU counts as one GPU.
"""

import polars as pl

from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import LogMapping

NEEDS = ("name", "num_gpu", "gpu_spec", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
LOG = LogMapping(
    {
        "job_id": "name",
        "submit_s": "creation_time",
        "start_s": "scheduled_time",
        "end_s": "deletion_time",
        "gpus": "num_gpu",
        # Nothing is no type, and several types joined by | mean that any of them will do.
        "gpu_type": pl.when(~pl.col("gpu_spec").str.contains(r"^$|\|")).then(pl.col("gpu_spec")),
        "status": "pod_phase",
        "machines": pl.lit(1.0),
    },
    notes=(
        "a part of a GPU counts as one GPU",
        "pods that were Running when observation ended are cut there, so long services look shorter",
    ),
)

_FORMAT = DelimitedFormat(LOG, NEEDS)
sniff, read = _FORMAT.sniff, _FORMAT.read
