"""Reader of SenseTime Helios logs: `cluster_log.csv` of one cluster.

Times carry no zone. `duration` and `queue` repeat what the times say, and are not read.
"""

from collections.abc import Mapping, Sequence

from cranny.model.profile import ModelProfile
from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import DATED, LogMapping, dated, text

NEEDS = ("job_id", "user", "vc", *DATED.values())


def log(_names: Sequence[str], _: Mapping[str, ModelProfile], __: str) -> LogMapping:
    """Take our columns."""
    columns = {**dated(), "tenant": text("vc")}
    return LogMapping(columns, called=DATED, zone="the log's own clock; no zone is given")


_FORMAT = DelimitedFormat(log, NEEDS)
sniff, read = _FORMAT.sniff, _FORMAT.read
