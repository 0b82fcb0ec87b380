"""How long a job that is larger than those of the log would wait.

It is asked for many moments of the window, each for itself: a job of so many GPUs is submitted then, behind all
jobs submitted before it, and gets a reservation, as conservative backfilling gives it: it starts as soon as so
many GPUs are free of those jobs for good, so that it delays none of them however long it runs. Jobs submitted
after it come after it. So its wait follows from what a run has recorded, without another replay, and in the same
way for the log itself. GPUs are of one type and may lie on any machines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl

from cranny.analysis.whatif.baseline import NEARLY_ALL, LoggedJobs
from cranny.model.arrays import Floats
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.validate import whole
from cranny.sim.result import Result
from cranny.traces.inspect import Window
from cranny.traces.trace import Trace

MOMENTS = 400  # of the window at which a job is submitted, in the middle of as many equal parts
COMMON = 0.01  # share of the jobs that are of a size or larger, for it to be a common one
TIMES = (1, 2, 4)  # the largest common size, for jobs that the log hardly has


@dataclass(frozen=True, slots=True)
class LargeJobWait:
    """The wait of jobs of one size, over the moments at which they are submitted."""

    gpus: int
    gpu_type: str | None  # None if the cluster has one type only
    mean_s: float
    p90_s: float
    at_once: float  # share of the moments at which it would start without waiting


@dataclass(frozen=True, slots=True)
class LargestPool:
    """The GPUs of one type: those of the type that has the most."""

    gpu_type: str | None  # None if all machines are of one type
    machines: frozenset[int]
    gpus: int
    rack: int  # GPUs of the rack that has the most of them

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Find the type with the most GPUs; of equals the first by name."""
        gpus: dict[str, int] = {}
        for machine in cluster.machines:
            gpus[machine.gpu_type] = gpus.get(machine.gpu_type, 0) + machine.gpus
        most = min(gpus, key=lambda name: (-gpus[name], name))
        own = frozenset(at for at, machine in enumerate(cluster.machines) if machine.gpu_type == most)
        racks: dict[int, int] = {}
        for at in own:
            racks[cluster.rack_of[at]] = racks.get(cluster.rack_of[at], 0) + cluster.machines[at].gpus
        return cls(most if len(gpus) > 1 else None, own, gpus[most], max(racks.values()))


def sizes_to_ask(trace: Trace, pool: LargestPool, asked: Sequence[int] = ()) -> list[int]:
    """Return sizes of jobs: those asked for, else the largest common one, multiples of it, and that of a rack."""
    if asked:
        for size in asked:
            if whole(size, "GPUs of a large job", least=1) > pool.gpus:
                of = f" of {pool.gpu_type}" if pool.gpu_type else ""
                raise InputError(f"a job of {size:,} GPUs: there are {pool.gpus:,}{of}")
        return sorted(set(asked))
    gpus = np.sort(trace.frame["gpus"].to_numpy())
    common = int(gpus[-max(1, int(COMMON * gpus.size))])
    return sorted({size for size in (*(common * times for times in TIMES), pool.rack) if size <= pool.gpus})


def held_by_result(result: Result, pool: LargestPool) -> pl.DataFrame:
    """Return a row (submit_s, start_s, end_s, gpus) for each stretch in which a job held GPUs of the pool."""
    runs = result.runs
    if len(pool.machines) < len(result.cluster.machines):
        runs = runs.filter(pl.col("machine").is_in(list(pool.machines)))
    held = runs.select("job_id", "start_s", "end_s", gpus=pl.col("gpus").bitwise_count_ones().cast(pl.Float64))
    return held.join(result.jobs.select("job_id", "submit_s"), on="job_id", how="inner").drop("job_id")


def held_by_log(logged: LoggedJobs, pool: LargestPool) -> pl.DataFrame | None:
    """Return the same for a log that does not say on which machines; None if too little is known."""
    if logged.share < NEARLY_ALL or pool.gpu_type is not None:
        return None
    return logged.jobs.select(
        "submit_s", "start_s", pl.col("finish_s").alias("end_s"), pl.col("gpus").cast(pl.Float64)
    )


def large_job_waits(
    held: pl.DataFrame, pool: LargestPool, sizes: Sequence[int], window: Window, moments: int = MOMENTS
) -> list[LargeJobWait]:
    """Return the wait of jobs of each size, over moments spread evenly over the window."""
    edges_s = np.linspace(*window, moments + 1)
    waits_s = np.array([*_waits_s(held, pool.gpus, sizes, (edges_s[1:] + edges_s[:-1]) / 2)])
    return [
        LargeJobWait(
            size, pool.gpu_type, float(own.mean()), float(np.quantile(own, 0.9)), float((own == 0).mean())
        )
        for size, own in zip(sizes, waits_s.T, strict=True)
    ]


def _waits_s(held: pl.DataFrame, gpus: int, sizes: Sequence[int], at_s: Floats) -> Iterator[Floats]:
    """Yield for each moment, in their order, the wait of a job of each size that is submitted then, (sizes,)."""
    ordered = held.sort("submit_s")
    submit_s, start_s, end_s, count = (
        ordered[name].to_numpy() for name in ("submit_s", "start_s", "end_s", "gpus")
    )
    past = np.searchsorted(submit_s, at_s, side="right")  # of the jobs that come before each moment
    room = gpus - np.array(sizes, dtype=np.float64)  # that others may hold
    ahead, seen = np.arange(0), 0
    for now_s, new in zip(at_s.tolist(), past.tolist(), strict=True):
        ahead = np.concatenate([ahead, np.arange(seen, new)])
        ahead, seen = ahead[end_s[ahead] > now_s], new
        starts_s, ends_s = np.maximum(start_s[ahead], now_s), end_s[ahead]
        times_s, place = np.unique(np.concatenate([[now_s], starts_s, ends_s]), return_inverse=True)
        change = np.concatenate([[0.0], count[ahead], -count[ahead]])
        taken = np.cumsum(np.bincount(place, weights=change))  # from each time to the next; nothing after the last
        full = taken[:-1, None] > room  # (times - 1, sizes)
        last = np.where(full.any(axis=0), len(full) - np.argmax(full[::-1], axis=0), 0) if len(full) else 0
        yield np.broadcast_to(times_s[last] - now_s, room.shape)
