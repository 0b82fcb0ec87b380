"""What to do with a file that no reader knows but that looks like the output of a command we know."""

import re

from cranny.traces.compressed import advice as how_to_unpack
from cranny.traces.readers.sacct_fields import ASK_FOR, IDS

_SACCT = f"sacct -a -D -X -P -o {ASK_FOR}"
_LOOKS_LIKE = (
    (
        re.compile(rb"\s*(?:\S+ +)*(?:" + "|".join(IDS).encode() + rb")\s(?:.*\n)*?[\s-]*--"),
        f"looks like sacct without -P, which cuts its columns; ask for {_SACCT}",
    ),
    (
        re.compile(rb"[\d_+.]+(\|[^|\n]*){5,}"),
        f"looks like sacct without a line of field names; leave -n away: {_SACCT}",
    ),
    (
        re.compile(rb"(NAMESPACE +)?NAME +READY +STATUS"),
        "looks like what kubectl prints for people; ask for kubectl get pods,jobs,nodes -A -o json",
    ),
    (
        re.compile(rb"(---\s*)?(apiVersion|items|kind):"),
        "looks like YAML of kubectl; ask for kubectl get pods,jobs,nodes -A -o json",
    ),
    (
        re.compile(rb'"JOB_FINISH"'),
        "looks like lsb.acct of LSF, which is not read; write its jobs as CSV: job_id,submit_s,gpus,duration_s",
    ),
)


def advice(head: bytes) -> str | None:
    """Say what a file that begins like this seems to be, and what to give instead."""
    begin = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    found = next((said for pattern, said in _LOOKS_LIKE if pattern.match(begin)), None)
    return how_to_unpack(head) or found
