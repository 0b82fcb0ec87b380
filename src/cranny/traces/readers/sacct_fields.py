"""Names of the fields of Slurm's accounting."""

from collections.abc import Sequence

IDS = ("JobID", "JobIDRaw")
TRES = ("AllocTRES", "ReqTRES")
GRES = ("AllocGRES", "ReqGRES")
NODES = ("NNodes", "AllocNodes")
ASK_FOR = (
    "Cluster,JobID,User,Account,Partition,QOS,Reservation,Priority,State,Submit,Eligible,Start,End,ElapsedRaw,"
    "Timelimit,NNodes,NodeList,AllocTRES,ReqTRES"
)


def first_of(names: Sequence[str], *wanted: str) -> str:
    """Return the first of these columns that the log has, or no name."""
    return next((name for name in wanted if name in names), "")
