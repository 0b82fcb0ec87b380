"""Reader of ElasticFlow's traces: as published by its authors (raw), and as their simulator reads them.

The simulator's files add a model, iterations, a batch size and a deadline, which the authors drew at random. Their
version of Philly names its columns a little differently.
"""

from collections.abc import Mapping, Sequence

from cranny.model.profile import ModelProfile
from cranny.traces.readers.delimited import DelimitedFormat, first_fields
from cranny.traces.readers.log_mapping import LogMapping
from cranny.traces.schema import CPU_ONLY, missing

NEEDS = ("job_id", "num_gpu", "duration")
SUBMISSION = "submission_time"
PHILLY = ("submit_time", "ddl")


def sniff(head: bytes) -> bool:
    """Say whether a file has the columns of either layout."""
    columns = set(first_fields(head, ","))
    return columns.issuperset((*NEEDS, SUBMISSION)) or columns.issuperset((*NEEDS, *PHILLY))


def log(names: Sequence[str], _: Mapping[str, ModelProfile], file: str) -> LogMapping:
    """Take our columns."""
    submission, deadline, iterations = SUBMISSION, "deadline", "num_iteration"
    if SUBMISSION not in names and PHILLY[0] in names:
        (submission, deadline), iterations = PHILLY, "iteration"
    missing(file, (*NEEDS, submission), names)
    columns = {"job_id": "job_id", "submit_s": submission, "gpus": "num_gpu", "duration_s": "duration"}
    drawn = {"model": "model_name", "iterations": iterations, "batch_size": "batch_size", "deadline_s": deadline}
    return LogMapping(columns, drawn, rules=(CPU_ONLY,), called={"model": "model_name"})


read = DelimitedFormat(log).read
