"""What `sacct --json` says of jobs, as the fields that `sacct -P` has for it.

Versions of Slurm write a number as itself or as {"set": true, "infinite": false, "number": 5}, and states as a
word or as a list of words.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers.json_log import load, mapping, objects, text
from cranny.traces.readers.log_mapping import as_trace
from cranny.traces.readers.log_table import MakeLog
from cranny.traces.readers.sacct_fields import ASK_FOR
from cranny.traces.schema import SourceRow
from cranny.traces.trace import Trace

FIELDS = ASK_FOR.replace("Timelimit", "TimelimitRaw").split(",")
_TIMES = {"Submit": "submission", "Eligible": "eligible", "Start": "start", "End": "end"}


def sniff_json(head: bytes) -> bool:
    """Say whether a file begins like what sacct writes as JSON."""
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    return (
        begins and b'"jobs"' in head and any(word in head for word in (b'"association"', b'"slurm"', b'"Slurm"'))
    )


def read_json(path: Path, profiles: Mapping[str, ModelProfile], make_log: MakeLog, *, strict: bool) -> Trace:
    """Read a file."""
    entries = mapping(load(path)).get("jobs")
    if not isinstance(entries, list):
        raise InputError(f"{path}: jobs: must be a list of jobs, as `sacct --json` writes it")
    jobs = objects(entries)
    if jobs and not any(isinstance(job.get("time"), dict) for job in jobs):
        raise InputError(
            f"{path}: job 1: time: is missing, as in `squeue --json`, which has no past; give `sacct --json`"
        )
    rows = [_row(job) for job in jobs]
    schema = dict.fromkeys(FIELDS, pl.String())
    log = make_log(FIELDS, profiles, str(path))
    frame = pl.DataFrame(rows, schema, orient="row").select(*log.taken(FIELDS))
    return as_trace(path, frame, log, partial(_found, path, rows, log.names), profiles, strict=strict)


def _found(path: Path, rows: Sequence[Mapping[str, str | None]], called: Mapping[str, str], row: int) -> SourceRow:
    line = f"job {row + 1} ({rows[row]['JobID']})"
    return SourceRow(line, f"{path}: {line}", rows[row], called)


def _row(job: dict[str, Any]) -> dict[str, str | None]:
    time, association = mapping(job.get("time")), mapping(job.get("association"))
    tres, state = mapping(job.get("tres")), mapping(job.get("state")).get("current", job.get("state"))
    priority = job.get("priority")
    return {
        "Cluster": text(job.get("cluster")) or text(association.get("cluster")),
        "JobID": _id(job),
        "User": text(job.get("user")) or text(association.get("user")),
        "Account": text(job.get("account")) or text(association.get("account")),
        "Partition": text(job.get("partition")),
        "QOS": text(job.get("qos")),
        "Reservation": text(mapping(job.get("reservation")).get("name")),
        "Priority": _number(priority),
        "State": text(state[0] if isinstance(state, list) and state else state),
        **{name: _time(time.get(key)) for name, key in _TIMES.items()},
        "ElapsedRaw": _number(time.get("elapsed")),
        "TimelimitRaw": _number(time.get("limit")),
        "NNodes": _number(job.get("allocation_nodes")),
        "NodeList": text(job.get("nodes")) or "None assigned",
        "AllocTRES": _tres(tres.get("allocated")),
        "ReqTRES": _tres(tres.get("requested")),
    }


def _number(value: object) -> str | None:
    """Take a number that may be unset or without bound."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return text(value)


def _time(value: object) -> str | None:
    """Take seconds since 1970; 0 stands for none."""
    said = _number(value)
    return None if said in (None, "0") else said


def _id(job: dict[str, Any]) -> str | None:
    """Write the id as sacct does: `7_3` for a task of an array, `7+1` for a part of a heterogeneous job."""
    array, het = mapping(job.get("array")), mapping(job.get("het"))
    task, part = _number(array.get("task_id")), _number(het.get("job_offset"))
    for owner, mark, member in ((array, "_", task), (het, "+", part)):
        whole = text(owner.get("job_id"))
        if whole not in (None, "0") and member is not None:
            return f"{whole}{mark}{member}"
    return text(job.get("job_id"))


def _tres(listed: object) -> str:
    """Write resources as sacct does: `cpu=8,gres/gpu=4`."""
    found = []
    for each in objects(listed):
        kind, name, count = text(each.get("type")), text(each.get("name")), _number(each.get("count"))
        found.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(found)
