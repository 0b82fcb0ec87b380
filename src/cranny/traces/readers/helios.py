"""Reader of SenseTime Helios logs: `cluster_log.csv` of one cluster.

Times carry no zone. `duration` and `queue` repeat what the times say, and are not read.
"""

from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import DATED, LogMapping
from cranny.traces.readers.timestamps import epoch_s

NEEDS = ("job_id", "user", "vc", *DATED.values())
LOG = LogMapping(
    {"job_id": "job_id", "user": "user", "tenant": "vc", **DATED},
    zone="the log's own clock; no zone is given",
    times=epoch_s,
)

_FORMAT = DelimitedFormat(LOG, NEEDS)
sniff, read = _FORMAT.sniff, _FORMAT.read
