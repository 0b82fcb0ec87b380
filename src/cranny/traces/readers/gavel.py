"""Reader of Gavel's workload files: tab-separated, without a header line.

A job has a number of steps and no duration. Where the model has a profile, its duration is steps x the time of
one iteration there, in proportion to the batch size; any other job cannot be used. A profile of yours with Gavel's
name for the model, in small letters ("cyclegan", "a3c", "lm", "recommendation", "transformer"), lets its jobs in.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from cranny.model.profile import ModelProfile
from cranny.traces.readers.delimited import ROW, DelimitedFormat, first_fields
from cranny.traces.readers.log_mapping import Columns, LogMapping, number
from cranny.traces.schema import CPU_ONLY, RowRule

NAMES = ("job_type", "command", "steps_flag", "needs_data", "total_steps", "arrival_s", "scale_factor")
OUR_MODELS = {"resnet-18": "resnet18", "resnet-50": "resnet50"}


def sniff(head: bytes) -> bool:
    """Say whether a file begins with a line of seven fields of which the last four are numbers."""
    fields = first_fields(head, "\t")
    return len(fields) == len(NAMES) and all(_is_number(field) for field in fields[3:])


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def log(_: Sequence[str], profiles: Mapping[str, ModelProfile], __: str) -> LogMapping:
    """Take our columns."""
    kind = pl.col("job_type").str.extract_groups(r"^(.*?)(?: \(batch size (\d+)\))?$")
    name = kind.struct[0].str.to_lowercase().replace(OUR_MODELS)
    batch = kind.struct[1].cast(pl.Float64, strict=False)
    known = list(profiles)
    iteration_s = name.replace_strict(known, [profiles[k].iteration_s for k in known], default=None)
    measured_batch = name.replace_strict(known, [float(profiles[k].batch) for k in known], default=None)
    step_s = iteration_s * (batch / measured_batch).fill_null(1.0)
    columns: Columns = {
        "job_id": (pl.col(ROW) + 1).cast(pl.String),
        "submit_s": "arrival_s",
        "gpus": "scale_factor",
        "duration_s": number("total_steps") * step_s,
        "model": pl.when(name.is_in(known)).then(name),
        "iterations": "total_steps",
        "batch_size": batch,
    }
    called = {"duration_s": "total_steps", "model": "job_type"}
    unknown = RowRule(
        "model", "no duration in the log, and no profile of its model", pl.col("model").is_null(), of_value=False
    )
    notes = (
        "the log has no durations: steps x the profile's time of an iteration, in proportion to the batch size",
        "models in this log were drawn by its authors, not observed",
        "ids are line numbers",
    )
    return LogMapping(columns, rules=(CPU_ONLY, unknown), called=called, notes=notes)


read = DelimitedFormat(log, separator="\t", names=NAMES).read
