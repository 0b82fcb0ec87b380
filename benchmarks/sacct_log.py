"""A made-up `sacct` log of a cluster with partitions, as long as one likes: what `what-if-million` reads.

Jobs have the sizes and durations that were published for Philly. They are replayed on the cluster with best fit
and backfill, so that starts and machines are such as a scheduler could have chosen. Some partitions share
machines; some jobs are tasks of arrays; some rows are of jobs that were cancelled before they started.
"""

from pathlib import Path

import numpy as np
import polars as pl

from cranny.model.arrays import Ints
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.run import simulate
from cranny.traces.generate import generate_trace
from cranny.traces.trace import Trace

FROM = 1_735_689_600  # the first submission: 2025-01-01, 00:00 UTC
LOAD = 0.8
RACK = 16  # machines
# Type of GPU: machines, and GPUs of each.
TYPES = {"a100": (64, 8), "h100": (32, 8), "v100": (48, 4)}
# Partition: type of GPU, first machine and one past the last, and its share of the jobs of that type.
PARTITIONS = {
    "a100": ("a100", 0, 64, 0.90),
    "a100-long": ("a100", 32, 64, 0.10),
    "h100": ("h100", 0, 32, 1.0),
    "v100": ("v100", 0, 48, 0.85),
    "debug": ("v100", 0, 8, 0.15),
}
LARGEST = 64  # GPUs of a job
TASKS = 8  # of an array
ARRAYS = 0.15  # share of jobs that are tasks of arrays
NEVER_STARTED = 0.03  # share of rows
USERS, ACCOUNTS = 400, 25
HOUR_S = 3600
MOST_HOURS = 14 * 24  # that a user may ask for
STATES = {"COMPLETED": 0.74, "FAILED": 0.14, "CANCELLED by 1000": 0.08, "TIMEOUT": 0.04}


def cluster() -> Cluster:
    """Return the cluster whose log this is."""
    racks = []
    for gpu_type, (count, gpus) in TYPES.items():
        machines = [Machine(_name(gpu_type, at), gpus, gpu_type) for at in range(count)]
        for first in range(0, count, RACK):
            own = tuple(machines[first : first + RACK])
            racks.append(Switch(f"{gpu_type}-rack{first // RACK}", own, (100.0,) * len(own)))
    partitions = {
        name: [_name(gpu_type, at) for at in range(first, past)]
        for name, (gpu_type, first, past, _) in PARTITIONS.items()
    }
    return Cluster.of(Switch("core", tuple(racks), (RACK * 100.0,) * len(racks)), partitions)


def write_log(path: Path, rows: int, seed: int = 0) -> None:
    """Write a log with so many rows."""
    rng = np.random.default_rng(seed)
    cancelled = int(rows * NEVER_STARTED)
    trace = _jobs(rows - cancelled, rng)
    ran = simulate(cluster(), trace, "best-fit", "instant", order="backfill", limits=True, seed=seed)
    ran_on = ran.runs.group_by("job_id", maintain_order=True).agg("machine")
    jobs = trace.frame.join(ran.jobs.select("job_id", "start_s", "finish_s"), on="job_id").join(
        ran_on, on="job_id"
    )
    frame = pl.concat([_started(jobs, rng), _cancelled(jobs, cancelled, rng)]).sort("Submit", maintain_order=True)
    frame.write_csv(path, separator="|", quote_style="never")


def _jobs(count: int, rng: np.random.Generator) -> Trace:
    """Draw the jobs of all partitions, whose load is the same for as long as the log lasts."""
    gpus = {name: machines * size for name, (machines, size) in TYPES.items()}
    parts = []
    for gpu_type, own in gpus.items():
        jobs = max(1, round(count * own / sum(gpus.values())))
        seed = int(rng.integers(2**31))
        frame = generate_trace("philly", jobs, seed, load=LOAD, gpus=own, max_gpus=LARGEST).frame
        names = [name for name, (kind, *_) in PARTITIONS.items() if kind == gpu_type]
        shares = [PARTITIONS[name][3] for name in names]
        chosen = pl.Series(names).gather(rng.choice(len(names), size=jobs, p=shares))
        parts.append(frame.with_columns(partition=chosen, gpu_type=pl.lit(gpu_type)))
    frame = pl.concat(parts).with_columns(pl.col("submit_s").floor(), pl.col("duration_s").ceil())
    frame = frame.sort("submit_s", maintain_order=True).head(count)
    array, task = _arrays(frame.height, rng)
    # The tasks of an array come together, to one partition.
    frame = frame[array].with_columns(
        submit_s=frame["submit_s"].gather(array),
        duration_s=frame["duration_s"],
        job_id=pl.concat_str(pl.Series(1000 + array), pl.Series(_task_names(task))),
    )
    # Nobody in the debug partition asks for more than it has.
    smaller = pl.when(pl.col("partition") == "debug").then(pl.min_horizontal("gpus", 8)).otherwise("gpus")
    asked = np.ceil(frame["duration_s"].to_numpy() / HOUR_S * rng.uniform(1.05, 6.0, frame.height))
    frame = frame.with_columns(gpus=smaller.cast(pl.Int32), limit_s=HOUR_S * np.minimum(asked, MOST_HOURS) * 1.0)
    frame = frame.with_columns(duration_s=pl.min_horizontal("duration_s", "limit_s"))
    return Trace.from_frame(frame.sort("submit_s", maintain_order=True), "made up")


def _arrays(count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return for each job the first job of its array, itself if it is in none, and which task it is, or -1."""
    array, task = np.arange(count), np.full(count, -1)
    for first in np.flatnonzero(rng.random(count // TASKS) < ARRAYS).tolist():
        array[first * TASKS : (first + 1) * TASKS] = first * TASKS
        task[first * TASKS : (first + 1) * TASKS] = np.arange(TASKS)
    return array, task


def _task_names(task: Ints) -> list[str]:
    return [f"_{number}" if number >= 0 else "" for number in task.tolist()]


def _started(jobs: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return the rows of jobs that ran."""
    user = rng.zipf(1.6, jobs.height) % USERS
    state = pl.Series(list(STATES)).gather(rng.choice(len(STATES), size=jobs.height, p=list(STATES.values())))
    names = np.array([machine.name for machine in cluster().machines])
    node_list = [_node_list(names[own].tolist()) for own in jobs["machine"].to_list()]
    machines = pl.col("machine").list.len()
    tres = pl.format(
        "billing={},cpu={},gres/gpu:{}={},gres/gpu={},mem={}G,node={}",
        *(pl.col("gpus") * 8, pl.col("gpus") * 8, "gpu_type", "gpus", "gpus", pl.col("gpus") * 60, machines),
    )
    return jobs.select(
        JobID="job_id",
        User=pl.format("user{}", pl.Series(user)),
        Account=pl.format("group{}", pl.Series(user % ACCOUNTS)),
        Partition="partition",
        QOS=pl.lit("normal"),
        State=state,
        Submit=_time("submit_s"),
        Eligible=_time("submit_s"),
        Start=_time("start_s"),
        End=_time("finish_s"),
        ElapsedRaw=pl.col("duration_s").cast(pl.Int64),
        Timelimit=_length("limit_s"),
        NNodes=machines.cast(pl.Int64),
        NodeList=pl.Series(node_list),
        AllocTRES=tres,
        ReqTRES=tres,
    )


def _cancelled(jobs: pl.DataFrame, count: int, rng: np.random.Generator) -> pl.DataFrame:
    """Return rows of jobs that were cancelled before they started, like some that ran."""
    like = _started(jobs[np.sort(rng.choice(jobs.height, size=count))], rng)
    return like.with_columns(
        JobID=pl.format("{}", pl.int_range(pl.len()) + 1000 + jobs.height),
        State=pl.lit("CANCELLED by 1000"),
        Start=pl.lit("Unknown"),
        End=pl.col("Submit"),
        ElapsedRaw=pl.lit(0, dtype=pl.Int64),
        NodeList=pl.lit("None assigned"),
        AllocTRES=pl.lit(""),
    )


def _name(gpu_type: str, at: int) -> str:
    return f"{gpu_type}-{at:03d}"


def _node_list(names: list[str]) -> str:
    """Write machines as Slurm does; those of a job are of one type."""
    if len(names) == 1:
        return names[0]
    prefix = names[0].rpartition("-")[0]
    numbers = sorted(int(name.rpartition("-")[2]) for name in names)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = (f"{first:03d}" if first == last else f"{first:03d}-{last:03d}" for first, last in runs)
    return f"{prefix}-[{','.join(parts)}]"


def _time(column: str) -> pl.Expr:
    """Write seconds from the beginning of the log as a time."""
    return pl.from_epoch(pl.col(column).cast(pl.Int64) + FROM, time_unit="s").dt.to_string("%Y-%m-%dT%H:%M:%S")


def _length(column: str) -> pl.Expr:
    """Write seconds as days, hours, minutes and seconds."""
    seconds = pl.col(column).cast(pl.Int64)
    parts = (seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60, seconds % 60)
    return pl.format("{}-{}:{}:{}", parts[0], *(part.cast(pl.String).str.zfill(2) for part in parts[1:]))
