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
OFF_S = 900.0  # a machine that is idle for so long or longer counts as off


class Truth(NamedTuple):
    """The numbers of a log, in a window if there is one."""

    jobs: int
    gpu_hours: float
    waited: int  # jobs whose wait counts: submitted in the window
    mean_wait_s: float
    machine_hours: float  # in which a machine ran some job, also one without whole GPUs


class Run(NamedTuple):
    gpus: int  # 0 if it has none, or only parts of some
    submit_s: float
    eligible_s: float
    start_s: float
    end_s: float
    machines: frozenset[str]


class Hours(NamedTuple):
    """Machine-hours of a cluster."""

    used: float
    idle: float
    off: float  # idle for a quarter of an hour or longer
    off_gpus: float  # GPU-hours of these


Stretches = dict[str, list[tuple[float, float]]]  # of each machine, in which it is in use


def truth(text: str, zone: str, begin: str | None = None, finish: str | None = None) -> Truth:
    """Work out the numbers of a log; `begin` and `finish` are times in its zone."""
    where = ZoneInfo(zone)
    begin_s, finish_s = window_s(text, zone, begin, finish)
    runs = [
        run for run in all_runs(table(text), where, finish_s) if run.start_s < finish_s and run.end_s > begin_s
    ]
    jobs = [run for run in runs if run.gpus]
    gpu_s = sum(run.gpus * (min(run.end_s, finish_s) - max(run.start_s, begin_s)) for run in jobs)
    waits_s = [run.start_s - run.eligible_s for run in jobs if run.submit_s >= begin_s]
    machine_s = sum(covered_s(each) for each in in_use(runs, begin_s, finish_s).values())
    mean_wait_s = sum(waits_s) / len(waits_s) if waits_s else 0.0
    return Truth(len(jobs), gpu_s / HOUR_S, len(waits_s), mean_wait_s, machine_s / HOUR_S)


def window_s(text: str, zone: str, begin: str | None, finish: str | None) -> tuple[float, float]:
    """Return the window in seconds since 1970; without edges from the first to the last time of the log."""
    where = ZoneInfo(zone)
    times = [moment_s(row[name], where) for row in table(text) for name in ("Submit", "Start", "End")]
    begin_s = min(s for s in times if s is not None) if begin is None else moment_s(begin, where)
    finish_s = max(s for s in times if s is not None) if finish is None else moment_s(finish, where)
    assert begin_s is not None
    assert finish_s is not None
    return begin_s, finish_s


def in_use(runs: list[Run], begin_s: float, finish_s: float) -> Stretches:
    """Return when each machine ran some job, in the window."""
    busy: Stretches = defaultdict(list)
    for run in runs:
        for machine in run.machines:
            name = machine.lower().partition(".")[0]  # with or without its domain
            busy[name].append((max(run.start_s, begin_s), min(run.end_s, finish_s)))
    return busy


def machine_hours(busy: Stretches, gpus: dict[str, int], begin_s: float, finish_s: float) -> Hours:
    """Return the hours of machines with so many GPUs each; other machines do not count."""
    used = off = off_gpus = 0.0
    for machine, own in gpus.items():
        inside = [(max(start_s, begin_s), min(end_s, finish_s)) for start_s, end_s in busy.get(machine, [])]
        inside = [each for each in inside if each[1] > each[0]]
        used += covered_s(inside)
        until_s = begin_s
        for start_s, end_s in [*sorted(inside), (finish_s, finish_s)]:
            if start_s - until_s >= OFF_S:
                off += start_s - until_s
                off_gpus += own * (start_s - until_s)
            until_s = max(until_s, end_s)
    idle = len(gpus) * (finish_s - begin_s) - used
    return Hours(*(each / HOUR_S for each in (used, idle, off, off_gpus)))


def table(text: str) -> list[dict[str, str]]:
    """Split a log into its rows."""
    lines = text.strip().splitlines()
    names = lines[0].split("|")
    return [dict(zip(names, line.split("|"), strict=True)) for line in lines[1:]]


def all_runs(rows: list[dict[str, str]], where: ZoneInfo, last_s: float) -> list[Run]:
    """Return what ran; the parts of a heterogeneous job as one."""
    runs: list[Run] = []
    parts: dict[str, list[Run]] = defaultdict(list)
    for row in rows:
        if "." in row["JobID"] or not hosts(row["NodeList"]):
            continue
        gpus = re.search(r"gres/gpu=(\d+)", row["AllocTRES"])
        by_type = re.findall(r"gres/gpu:([^=,]+)=(\d+)", row["AllocTRES"])
        count = int(gpus.group(1)) if gpus else sum(int(number) for _, number in by_type)
        is_part_of_gpu = any(re.search(r"\dg\.\d+gb", name) for name, _ in by_type)
        submit_s, start_s = moment_s(row["Submit"], where), moment_s(row["Start"], where)
        assert submit_s is not None
        assert start_s is not None
        eligible_s, end_s = moment_s(row["Eligible"], where), moment_s(row["End"], where)
        run = Run(
            0 if is_part_of_gpu else count,
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
    """Read a time, in a zone if it names none; of an hour that comes twice, the first."""
    if text in NO_TIME:
        return None
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=where)).timestamp()


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
