"""Reader of Alibaba PAI 2020: `pai_task_table.csv`, which has no header line.

A row is a task (a role of a job, such as its workers). Its GPUs are its instances, each with a share of a GPU
or several: a part of a GPU counts as one. The submission of a task is not logged, so its start stands for it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers import timestamps
from cranny.traces.readers.delimited import HEAD_BYTES, DelimitedFormat, first_fields
from cranny.traces.readers.log_mapping import Columns, LogMapping, life, number, text
from cranny.traces.trace import Trace

TASK_TABLE = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
JOB_TABLE = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
STATUSES = ("Terminated", "Failed", "Running", "Waiting", "Interrupted")


def sniff(head: bytes) -> bool:
    """Say whether a file begins like PAI's task table or job table, both with a status as fourth field."""
    fields = first_fields(head, ",")
    if tuple(fields) in (TASK_TABLE, JOB_TABLE):
        return True
    return len(fields) in (len(TASK_TABLE), len(JOB_TABLE)) and fields[3] in STATUSES


def log(names: Sequence[str], _: Mapping[str, ModelProfile], file: str) -> LogMapping:
    """Take our columns."""
    if tuple(names) != TASK_TABLE:
        raise InputError(f"{file}: PAI's task table has the columns {', '.join(TASK_TABLE)}")
    gpus_each = (number("plan_gpu") / 100).ceil().clip(lower_bound=1.0)
    asks = (number("plan_gpu") > 0).fill_null(value=False)
    gpu_type = text("gpu_type")
    columns: Columns = {
        "job_id": text("job_name") + "/" + text("task_name").fill_null(""),
        "submit_s": "start_time",
        "end_s": "end_time",
        "duration_s": timestamps.seconds(pl.col("end_time")) - timestamps.seconds(pl.col("start_time")),
        "gpus": pl.when(asks).then(number("inst_num") * gpus_each).otherwise(0.0),
        "gpu_type": pl.when(gpu_type != "MISC").then(gpu_type),  # a mixture of small types
        "status": "status",
    }
    called = {"job_id": "job_name", "gpus": "inst_num"}
    notes = (
        "a row is a task (role) of a job, not always a whole job",
        "a part of a GPU counts as one GPU",
        "a task's start stands for its submission, so its waiting is not known",
    )
    return LogMapping(columns, rules=life("submit_s"), called=called, notes=notes)


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
    """Read the task table; the job table alone does not do."""
    with path.open("rb") as file:
        first = first_fields(file.read(HEAD_BYTES), ",")
    if len(first) == len(JOB_TABLE):
        raise InputError(f"{path}: PAI's job table has no GPU counts; give its task table (pai_task_table.csv)")
    return DelimitedFormat(log, names=TASK_TABLE).read(path, profiles, strict=strict)
