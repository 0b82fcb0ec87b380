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
# What users write, in which a delimiter may stand.
FREE_TEXT = ("JobName", "SubmitLine", "Comment", "AdminComment", "SystemComment", "Extra", "WorkDir")
_READ = (*ASK_FOR.split(","), *IDS, *TRES, *GRES, *NODES, *FREE_TEXT, "Elapsed", "TimelimitRaw")
_SPELLED = {name.lower(): name for name in _READ}


def spelled(name: str) -> str:
    """Return the name of a field as Slurm spells it: tables that programs made often have lower case."""
    return _SPELLED.get(name.lower(), name)


def first_of(names: Sequence[str], *wanted: str) -> str:
    """Return the first of these columns that the log has, or no name."""
    return next((name for name in wanted if name in names), "")
