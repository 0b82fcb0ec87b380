"""What a log of sacct says, worked out row by row in plain Python: no code of the readers, no tables.

Read as Slurm writes it: a row a job, steps have a dot in their id, parts of a heterogeneous job a plus, attempts
of a requeued job the same id. A job without machines never ran. One without an end runs to the end of the window,
or to the last time in the log.
"""

import re
from collections import defaultdict
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

NO_TIME = ("", "Unknown", "None")
HOUR_S = 3600.0


class Truth(NamedTuple):
    """The numbers of a log, in a window if there is one."""

    jobs: int
    gpu_hours: float
    waited: int  # jobs whose wait counts: submitted in the window
    mean_wait_s: float
    machine_hours: float  # in which a machine ran some GPU job


class Run(NamedTuple):
    gpus: int
    submit_s: float
    eligible_s: float
    start_s: float
    end_s: float
    machines: frozenset[str]


def truth(text: str, zone: str, begin: str | None = None, finish: str | None = None) -> Truth:
    """Work out the numbers of a log; `begin` and `finish` are times in its zone."""
    where = ZoneInfo(zone)
    lines = text.strip().splitlines()
    names = lines[0].split("|")
    rows = [dict(zip(names, line.split("|"), strict=True)) for line in lines[1:]]
    times = [moment_s(row[name], where) for row in rows for name in ("Submit", "Start", "End")]
    begin_s = min(s for s in times if s is not None) if begin is None else moment_s(begin, where)
    finish_s = max(s for s in times if s is not None) if finish is None else moment_s(finish, where)
    assert begin_s is not None
    assert finish_s is not None
    runs = [run for run in all_runs(rows, where, finish_s) if run.start_s < finish_s and run.end_s > begin_s]
    gpu_s = sum(run.gpus * (min(run.end_s, finish_s) - max(run.start_s, begin_s)) for run in runs)
    waits_s = [run.start_s - run.eligible_s for run in runs if run.submit_s >= begin_s]
    busy: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        for machine in run.machines:
            busy[machine].append((max(run.start_s, begin_s), min(run.end_s, finish_s)))
    machine_s = sum(covered_s(intervals) for intervals in busy.values())
    mean_wait_s = sum(waits_s) / len(waits_s) if waits_s else 0.0
    return Truth(len(runs), gpu_s / HOUR_S, len(waits_s), mean_wait_s, machine_s / HOUR_S)


def all_runs(rows: list[dict[str, str]], where: ZoneInfo, last_s: float) -> list[Run]:
    """Return what ran on GPUs; the parts of a heterogeneous job as one."""
    runs: list[Run] = []
    parts: dict[str, list[Run]] = defaultdict(list)
    for row in rows:
        if "." in row["JobID"] or not hosts(row["NodeList"]):
            continue
        gpus = re.search(r"gres/gpu=(\d+)", row["AllocTRES"])
        by_type = re.findall(r"gres/gpu:([^=,]+)=(\d+)", row["AllocTRES"])
        count = int(gpus.group(1)) if gpus else sum(int(number) for _, number in by_type)
        is_part_of_gpu = any(re.search(r"\dg\.\d+gb", name) for name, _ in by_type)
        if not count or is_part_of_gpu:
            continue
        submit_s, start_s = moment_s(row["Submit"], where), moment_s(row["Start"], where)
        assert submit_s is not None
        assert start_s is not None
        eligible_s, end_s = moment_s(row["Eligible"], where), moment_s(row["End"], where)
        run = Run(
            count,
            submit_s,
            submit_s if eligible_s is None else eligible_s,
            start_s,
            last_s if end_s is None else end_s,
            frozenset(hosts(row["NodeList"])),
        )
        if "+" in row["JobID"]:
            parts[row["JobID"].split("+")[0]].append(run)
        else:
            runs.append(run)
    for group in parts.values():
        first = group[0]
        machines = frozenset().union(*(run.machines for run in group))
        end_s = max(run.end_s for run in group)
        runs.append(first._replace(gpus=sum(run.gpus for run in group), machines=machines, end_s=end_s))
    return runs


def moment_s(text: str, where: ZoneInfo) -> float | None:
    """Read a time; of an hour that comes twice, the first."""
    return None if text in NO_TIME else datetime.fromisoformat(text).replace(tzinfo=where).timestamp()


def hosts(text: str) -> list[str]:
    """Write out a list of machines, such as `n[1-2,4],m7`."""
    if text in ("", "None assigned", "(null)"):
        return []
    found = []
    for prefix, ranges in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?", text):
        for part in ranges.split(",") if ranges else [""]:
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1) if part else ()
            found += [f"{prefix}{number:0{len(first)}d}" for number in numbers] if part else [prefix]
    return found


def covered_s(intervals: list[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total_s, until_s = 0.0, float("-inf")
    for start_s, end_s in sorted(intervals):
        total_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return total_s
