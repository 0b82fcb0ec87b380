"""Reader of SenseTime Helios logs: `cluster_log.csv` of one cluster.

Times carry no zone. `duration` and `queue` repeat what the times say, and are not read.
"""

from collections.abc import Mapping, Sequence

from cranny.model.profile import ModelProfile
from cranny.traces.readers.delimited import DelimitedFormat, has_columns
from cranny.traces.readers.log_mapping import DATED, LogMapping, dated, text
from cranny.traces.schema import missing

NEEDS = ("job_id", "user", "vc", *DATED.values())

sniff = has_columns(*NEEDS)


def log(names: Sequence[str], _: Mapping[str, ModelProfile], file: str) -> LogMapping:
    """Take our columns."""
    missing(file, NEEDS, names)
    columns = {**dated(), "tenant": text("vc")}
    return LogMapping(columns, called=DATED, zone="the log's own clock; no zone is given")


read = DelimitedFormat(log).read
