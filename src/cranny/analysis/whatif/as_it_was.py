"""Where the jobs of a log really ran: the runs of the log, in the columns in which a replay records its own.

A log names machines and how many GPUs a job held on each, but not which of them: here these are the lowest free
ones. Logs of Slurm do not say how GPUs are divided among several machines: where there is no room for what was
assumed, a job holds there what is free. If that is not enough, earlier jobs were divided otherwise than assumed,
and GPUs are held twice: which machines were in use, and how many GPUs in all, is right all the same. A job that
cannot have run where the log says, however others were divided, is counted with the reason, and has no run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from cranny.analysis.whatif.headroom import HOUR_S
from cranny.analysis.whatif.held_slots import held_gpus
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster, Machine
from cranny.traces.trace import Trace

NEARLY_ALL = 0.95  # share of the GPU-hours whose machines must be known to speak of idle machines at all
CLOCK_S = 1.0  # an end that is this close to start and duration is the same but for rounding
SHOWN_NAMES = 5  # of machines that are not in the cluster
# Why a job of a log has no run; a job counts under the first that holds.
NO_START = "without a start"
NO_MACHINES = "without machines"
ELSEWHERE = "on machines that are not in the cluster"
OTHER_COUNT = "that held another number of GPUs than they asked for"
NO_ROOM = "on machines whose GPUs other jobs held at that time"
_REASONS = (NO_START, NO_MACHINES, ELSEWHERE, OTHER_COUNT, NO_ROOM)
TOKEN = r"^(.*?)(?::(\d{1,6}))?$"  # noqa: S105 - a machine's name, and the GPUs held there
STRETCH: Mapping[str, pl.DataType] = {
    "machine": pl.Int32(),
    "start_s": pl.Float64(),
    "end_s": pl.Float64(),
}  # in which a machine is in use


class Unplaced(NamedTuple):
    """Jobs of a log that could not be placed, for one reason."""

    jobs: int
    gpu_hours: float


@dataclass(frozen=True, slots=True, eq=False)
class AsItWas:
    """The runs of a log; `row` says to which row of the log each belongs."""

    runs: pl.DataFrame  # see `sim.record.RUNS`, jobs in the order of the log, machines in that of their lists
    row: Ints  # (runs,)
    gpu_hours: float  # of all jobs of the log
    unplaced: Mapping[str, Unplaced]  # by reason
    unknown_machines: Sequence[str]  # names in the log that the cluster has not
    beside: pl.DataFrame  # stretches in which jobs without a run were on machines of the cluster
    divided_otherwise: int = 0  # jobs whose GPUs are divided among their machines otherwise than assumed
    held_twice: int = 0  # jobs that hold GPUs of others, since it is not known how those were divided

    @property
    def share(self) -> float:
        """The share of the log's GPU-hours that has runs."""
        lost = sum(each.gpu_hours for each in self.unplaced.values())
        return 1.0 - lost / self.gpu_hours if self.gpu_hours > 0 else 0.0

    @property
    def is_known(self) -> bool:
        """Whether enough is known to say which machines were idle."""
        return self.share >= NEARLY_ALL


def as_it_was(trace: Trace, cluster: Cluster) -> AsItWas | None:
    """Return where jobs ran; None if the log names no machine, or no start."""
    frame = trace.frame
    if not {"ran_on", "start_s"} <= set(frame.columns) or not frame["ran_on"].count():
        return None
    start_s, end_s = logged_times_s(frame)
    asked = frame["gpus"].to_numpy().astype(np.int64)
    parts, unknown_machines = _parts(frame["ran_on"], asked, cluster)
    job, machine, count = (parts[name].to_numpy() for name in ("job", "machine", "count"))
    found, known, held = (
        np.bincount(job, weights=each, minlength=len(asked)) for each in (np.ones(len(job)), machine >= 0, count)
    )
    masks = (~np.isfinite(start_s), found == 0, known < found, held != asked)
    reason = np.select(masks, np.arange(1, len(_REASONS)), 0)  # (jobs,) 0 for those to be placed
    placeable = reason[job] == 0
    job, machine, count = job[placeable], machine[placeable], count[placeable]
    gpus, held_twice = held_gpus(cluster.machines, start_s, end_s, job, machine, count)
    fits = gpus > 0
    reason[job[~fits]] = len(_REASONS)
    beside = _beside(parts, reason, start_s, end_s)
    job = job[fits]
    runs = pl.DataFrame(
        {
            "job_id": frame["job_id"].gather(job),
            "start_s": start_s[job],
            "end_s": end_s[job],
            "machine": machine[fits].astype(np.int32),
            "gpus": gpus[fits],
        }
    )
    gpu_hours = asked * frame["duration_s"].to_numpy() / HOUR_S
    otherwise = len(np.unique(job[np.bitwise_count(gpus[fits]) != count[fits]]))
    unplaced = _counted(reason, gpu_hours)
    return AsItWas(runs, job, float(gpu_hours.sum()), unplaced, unknown_machines, beside, otherwise, held_twice)


def _beside(parts: pl.DataFrame, reason: Ints, start_s: Floats, end_s: Floats) -> pl.DataFrame:
    """Return where jobs were that have no run: whatever they held, these machines were in use."""
    job, machine = parts["job"].to_numpy(), parts["machine"].to_numpy()
    there = (reason[job] > 0) & (machine >= 0) & np.isfinite(start_s[job])
    columns = {"machine": machine[there], "start_s": start_s[job[there]], "end_s": end_s[job[there]]}
    return pl.DataFrame(columns, schema_overrides=STRETCH)


def logged_times_s(frame: pl.DataFrame) -> tuple[Floats, Floats]:
    """Return start and end of each job; the end is one duration after the start, as in every replay."""
    start_s = frame["start_s"].cast(pl.Float64).to_numpy()
    end_s: Floats = start_s + frame["duration_s"].to_numpy()
    if "end_s" in frame.columns:
        # What the log says is the same time without the rounding of a sum, by which two jobs could overlap.
        said_s = frame["end_s"].cast(pl.Float64).to_numpy()
        end_s = np.where((np.abs(said_s - end_s) <= CLOCK_S) & (said_s >= start_s), said_s, end_s)
    return start_s, end_s


def machines_by_name(names: Iterable[str], machines: Sequence[Machine]) -> dict[str, int]:
    """Find the machine of each name of a log: exactly, without case, or without the domain that one of them has.

    Names that fit several machines are not found.
    """
    exact = {machine.name: index for index, machine in enumerate(machines)}
    folded = _once((machine.name.lower(), index) for index, machine in enumerate(machines))
    hosts = _once((_host(machine.name), index) for index, machine in enumerate(machines))
    found = {}
    for name in names:
        machine = exact.get(name, folded.get(name.lower()))
        if machine is None:
            machine = hosts.get(_host(name))
            if machine is not None and "." in name and "." in machines[machine].name:
                machine = None  # of two domains
        if machine is not None:
            found[name] = machine
    return found


def _parts(ran_on: pl.Series, asked: Ints, cluster: Cluster) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return a row (job, machine, count) for each machine of each job, and names that the cluster has not.

    A machine that is not in the cluster is -1. One that a list names twice stands where it is first.
    """
    listed = pl.DataFrame({"job": np.arange(len(ran_on)), "token": ran_on.str.split(" ")}).explode("token")
    listed = listed.filter(pl.col("token").is_not_null() & (pl.col("token") != ""))
    tokens = listed.select(pl.col("token").unique(maintain_order=True)).with_columns(
        name=pl.col("token").str.extract(TOKEN, 1),
        count=pl.col("token").str.extract(TOKEN, 2).cast(pl.Int64),
    )
    names = tokens["name"].unique(maintain_order=True).to_list()
    known = machines_by_name(names, cluster.machines)
    tokens = tokens.with_columns(
        machine=pl.col("name").replace_strict(known, default=-1, return_dtype=pl.Int64)
    ).drop("name")
    parts = listed.join(tokens, on="token", how="left", maintain_order="left").select("job", "machine", "count")
    job, machine = parts["job"].to_numpy(), parts["machine"].to_numpy()
    count = parts["count"].fill_null(-1).to_numpy()
    listed_machines = np.bincount(job, minlength=len(asked))  # (jobs,)
    divided = (np.bincount(job, weights=count < 0, minlength=len(asked)) > 0)[job]
    nth = np.arange(len(job)) - (np.cumsum(listed_machines) - listed_machines)[job]
    evenly = asked[job] // listed_machines[job] + (nth < asked[job] % listed_machines[job])
    parts = pl.DataFrame({"job": job, "machine": machine, "count": np.where(divided, evenly, count)})
    parts = parts.filter(pl.col("count") > 0)
    several = listed_machines[parts["job"].to_numpy()] > 1
    if several.any() and parts.filter(several).select("job", "machine").is_duplicated().any():
        parts = (
            parts.group_by("job", "machine", maintain_order=True)
            .agg(pl.col("count").sum())
            .sort("job", maintain_order=True)
        )
    return parts, tuple(name for name in names if name not in known)


def _counted(reason: Ints, gpu_hours: Floats) -> dict[str, Unplaced]:
    """Count the jobs of each reason that occurs."""
    jobs = np.bincount(reason, minlength=len(_REASONS) + 1)
    hours = np.bincount(reason, weights=gpu_hours, minlength=len(_REASONS) + 1)
    return {
        name: Unplaced(int(jobs[at]), float(hours[at])) for at, name in enumerate(_REASONS, start=1) if jobs[at]
    }


def _once(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the pairs whose name occurs once."""
    found: dict[str, int] = {}
    twice = set()
    for name, index in pairs:
        if found.setdefault(name, index) != index:
            twice.add(name)
    return {name: index for name, index in found.items() if name not in twice}


def _host(name: str) -> str:
    return name.lower().partition(".")[0]
