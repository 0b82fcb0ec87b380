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
# Columns of the table of jobs in Slurm's database, of which some sites and published logs give an extract.
_IN_DATABASE = {
    "id_job": "JobIDRaw",
    "id_user": "User",
    "id_qos": "QOS",
    "nodes_alloc": "NNodes",
    "time_submit": "Submit",
    "time_eligible": "Eligible",
    "time_start": "Start",
    "time_end": "End",
    "tres_alloc": "AllocTRES",
    "tres_req": "ReqTRES",
    "gres_alloc": "AllocGRES",
    "gres_used": "AllocGRES",
    "gres_req": "ReqGRES",
}
_SPELLED = {name.lower(): name for name in _READ} | _IN_DATABASE
# States as the database numbers them.
_WORDS = (
    *("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"),
    *("PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"),
)
STATES = {str(number): word for number, word in enumerate(_WORDS)}


def spelled(name: str) -> str:
    """Return the name of a field as sacct spells it: tables that programs made often have other names."""
    return _SPELLED.get(name.lower(), name)


def first_of(names: Sequence[str], *wanted: str) -> str:
    """Return the first of these columns that the log has, or no name."""
    return next((name for name in wanted if name in names), "")
