"""Slurm's own placement beside cranny's: the same stream of jobs through two real Slurms at the same time.

    python -m tests.slurm.side_by_side --jobs 300 --nodes 64

Both have topology/tree and backfill with a resolution of one second. In one of them jobs start where Slurm puts
them; in the other they opt in by a comment, and cranny places them. Jobs only sleep, so that how long they take
does not depend on where they are: what differs is when they start, and where. Both schedules are then measured by
the code that measures logs for `cranny what-if`.
"""

import argparse
import json
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cranny.analysis.whatif.what_if import what_if
from cranny.backends.slurm.slurm_cluster import read_slurm_cluster
from cranny.backends.slurm.slurm_commands import SlurmCommands
from cranny.channel.placed_comment import PlacedComment
from cranny.service.job_log import COLUMNS
from cranny.traces.read import read_trace
from tests.slurm.real_slurm import RealSlurm, until
from tests.slurm.stream import LUA, Served

SHAPES = ((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8))  # nodes, GPUs of each: equally often
GPUS = 8  # of a node
LEAST_S, MOST_S = 10.0, 160.0  # of a job
PATIENCE_S = 3600.0


@dataclass(frozen=True)
class StreamJob:
    """A job of the stream."""

    at_s: float
    nodes: int
    gpus: int  # of each node
    sleep_s: float

    @property
    def limit_min(self) -> int:
        """The time limit: users ask for more than they need."""
        return math.ceil(1.5 * self.sleep_s / 60)


def drawn(
    jobs: int, nodes: int, load: float, seed: int, least_s: float = LEAST_S, most_s: float = MOST_S
) -> list[StreamJob]:
    """Draw jobs that come at random and ask for a share of the cluster."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    shapes = [shape for shape in SHAPES if shape[0] <= nodes // 2]
    made = [(*rng.choice(shapes), least_s * (most_s / least_s) ** rng.random()) for _ in range(jobs)]
    gpu_s = sum(count * each * sleep_s for count, each, sleep_s in made)
    gap_s = gpu_s / (nodes * GPUS * load) / jobs
    at_s, stream = 0.0, []
    for count, each, sleep_s in made:
        at_s += rng.expovariate(1 / gap_s)
        stream.append(StreamJob(at_s, count, each, sleep_s))
    return stream


def submit(slurm: RealSlurm, job: StreamJob, *, ours: bool) -> str:
    """Submit a job; those of cranny opt in."""
    shape = (f"-N{job.nodes}", f"--gpus-per-node={job.gpus}", "--ntasks-per-node=1", f"--time={job.limit_min}")
    mark = ("--comment=cranny",) if ours else ()
    return slurm.sbatch(*mark, *shape, script=f"#!/bin/sh\nexec sleep {job.sleep_s:.2f}\n")


def measured(slurm: RealSlurm, ids: Sequence[str], stream: Sequence[StreamJob], folder: Path) -> dict[str, float]:
    """Measure the schedule that a Slurm has made of a stream, as a log."""
    answer = json.loads(slurm.call("squeue", "--json", "-t", "all"))
    known = {str(job["job_id"]): job for job in answer["jobs"]}
    lines = ["|".join(COLUMNS)]
    for job_id, asked in zip(ids, stream, strict=True):
        job = known[job_id]
        if job["job_state"] != "COMPLETED":
            raise RuntimeError(f"job {job_id} is {job['job_state']}")
        times = (str(job[name]) for name in ("submit_time", "start_time", "end_time"))
        tres = f"gres/gpu={asked.nodes * asked.gpus},gres/gpu:h100={asked.nodes * asked.gpus}"
        shape = (f"{asked.limit_min}:00", job["nodes"], tres, tres)
        lines.append("|".join((job_id, "user", "main", job["job_state"], *times, *shape)))
    log = folder / "sacct.txt"
    log.write_text("\n".join(lines) + "\n")
    cluster = read_slurm_cluster(SlurmCommands(conf=str(slurm.conf)))
    facts: dict[str, Any] = what_if(read_trace(log), cluster, ["best-fit"], search=False, processes=1).facts()
    was = facts["cases"][0]
    return {
        "mean wait (s)": was["waits"]["wait"]["mean_s"],
        "p99 wait (s)": was["waits"]["wait"]["p99_s"],
        "mean JCT (s)": was["waits"]["jct"]["mean_s"],
        "fragmentation": was["mean_fragmentation"],
        "machines per job": was["spread"]["machines"],
        "racks per job": was["spread"]["racks"],
        "machines in use": was["machines"]["used"],
        "largest startable job (GPUs)": was["largest_job"]["anywhere"]["mean_gpus"],
        "... on idle machines (GPUs)": was["largest_job"]["on_idle_machines"]["mean_gpus"],
    }


def compare(stream: Sequence[StreamJob], nodes: int) -> dict[str, dict[str, float]]:
    """Run a stream through both, at the same time."""
    rack = max(2, nodes // 8)
    given: dict[str, Any] = {"rack": rack, "min_job_age_s": 86_400}
    alone, led = RealSlurm(nodes, GPUS, **given), RealSlurm(nodes, GPUS, lua=LUA, **given)
    folder = Path(tempfile.mkdtemp(prefix="cranny-beside-"))
    served = Served(led, folder)
    try:
        for each in (alone, led):
            each.start()
        served.start()
        led.comes_to(submit(led, StreamJob(0.0, 1, 1, 0.1), ours=True), "COMPLETED")  # its policy is compiled then
        ids: dict[RealSlurm, list[str]] = {alone: [], led: []}
        begun = time.monotonic()
        for job in stream:
            time.sleep(max(0.0, begun + job.at_s - time.monotonic()))
            for each, known in ids.items():
                known.append(submit(each, job, ours=each is led))
        until(lambda: not any(map(_open, ids)), "the end of all jobs", PATIENCE_S)
        _check_placed(led, ids[led])
        return {
            name: measured(each, ids[each], stream, folder) for name, each in (("slurm", alone), ("cranny", led))
        }
    finally:
        served.kill()
        for each in (alone, led):
            each.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _check_placed(slurm: RealSlurm, ids: Sequence[str]) -> None:
    """Raise if a job was not started by cranny: the two schedules would have the same author."""
    known = {str(job["job_id"]): job for job in json.loads(slurm.call("squeue", "--json", "-t", "all"))["jobs"]}
    for job_id in ids:
        placed = PlacedComment.read(known[job_id]["admin_comment"])
        if placed is None or not placed.nodes:
            raise RuntimeError(f"job {job_id} was not placed by cranny: {known[job_id]['admin_comment']!r}")


def _open(slurm: RealSlurm) -> bool:
    time.sleep(0.5)
    return bool(slurm.call("squeue", "-h", "-o", "%A", check=False).split())


def main() -> int:
    """Print both schedules and their ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--load", type=float, default=1.0, help="share of all GPUs that jobs ask for")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = compare(drawn(asked.jobs, asked.nodes, asked.load, asked.seed), asked.nodes)
    sys.stdout.write(f"{'':30}{'Slurm':>10}{'cranny':>10}{'ratio':>8}\n")
    for name, before in found["slurm"].items():
        after = found["cranny"][name]
        ratio = f"{after / before:.3f}" if before else "-"
        sys.stdout.write(f"{name:30}{before:10.3f}{after:10.3f}{ratio:>8}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
