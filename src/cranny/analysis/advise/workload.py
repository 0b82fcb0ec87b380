"""A workload sized up: what of a log decides which policy suits it."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from cranny.model.cluster import Cluster
from cranny.traces.inspect import DAY_S, HOUR_S, StepFunction, requested
from cranny.traces.trace import Trace

LONGEST = 0.05  # of the jobs: what share of the GPU-hours they hold says how uneven lengths are
GPUS_PER_MACHINE, MACHINES_PER_RACK = 8, 8  # of a cluster that is made up for a log
MADE_UP_LOAD = 0.8


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs of a log on a cluster, in numbers; shares are of one."""

    jobs: int
    days: float
    gpu_hours: float
    load: float  # GPUs asked for on average up to the last submission, over those of the cluster
    peak_load: float
    machine_gpus: int  # of the largest machine
    several_machines_jobs: float  # share of jobs that need more than one machine
    several_machines_gpu_hours: float
    longest_gpu_hours: float  # share of the GPU-hours that the longest jobs hold
    median_duration_s: float
    oversubscription: float  # of the switch that is oversubscribed most; 0 if there is only one
    gpu_types: int  # that the cluster has
    elastic_jobs: float  # share of jobs whose number of GPUs may change
    tenants: int  # 0 if the log names none
    with_limit: float  # share of jobs for which the log has a running time that was asked for

    @classmethod
    def of(cls, trace: Trace, cluster: Cluster) -> Self:
        """Size up the jobs of a trace that has some."""
        frame = trace.frame
        gpus, duration_s = frame["gpus"].to_numpy().astype(np.float64), frame["duration_s"].to_numpy()
        gpu_s = gpus * duration_s
        total = float(gpu_s.sum()) or 1.0
        span_s = float(frame["submit_s"][-1]) - float(frame["submit_s"][0])
        asked = requested(trace)
        largest = max(machine.gpus for machine in cluster.machines)
        large = gpus > largest
        longest = np.argsort(-duration_s, kind="stable")[: max(1, round(LONGEST * len(gpus)))]
        return cls(
            jobs=len(trace),
            days=span_s / DAY_S,
            gpu_hours=total / HOUR_S,
            load=asked.mean / cluster.gpus,
            peak_load=float(asked.value.max()) / cluster.gpus,
            machine_gpus=largest,
            several_machines_jobs=float(large.mean()),
            several_machines_gpu_hours=float(gpu_s[large].sum()) / total,
            longest_gpu_hours=float(gpu_s[longest].sum()) / total,
            median_duration_s=float(np.median(duration_s)),
            oversubscription=_oversubscription(cluster),
            gpu_types=len([kind for kind in cluster.machines_with if kind]),
            elastic_jobs=max(_share(frame, "least_gpus"), _share(frame, "most_gpus")),
            tenants=frame["tenant"].n_unique() if _share(frame, "tenant") else 0,
            with_limit=_share(frame, "limit_s"),
        )

    @property
    def may_resize(self) -> bool:
        """Whether a policy that divides GPUs among jobs has something to divide."""
        return self.elastic_jobs > 0 or self.gpu_types > 1

    def facts(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return asdict(self)


def _share(frame: pl.DataFrame, column: str) -> float:
    return frame[column].count() / frame.height if column in frame.columns else 0.0


def _oversubscription(cluster: Cluster) -> float:
    """Return what the machines or switches below a switch could send over what its uplink carries, at most."""
    below = dict.fromkeys(range(len(cluster.machines), cluster.root), 0.0)
    for node in range(cluster.root):
        if cluster.parent[node] != cluster.root:
            below[cluster.parent[node]] += cluster.uplink_gbps[node]
    return max((gbps / cluster.uplink_gbps[switch] for switch, gbps in below.items()), default=0.0)


def fitting_shape(trace: Trace) -> tuple[int, int, int]:
    """Return racks, machines a rack and GPUs a machine of a cluster that a log would load to four fifths."""
    gpus = max(requested(trace).mean / MADE_UP_LOAD, float(trace.frame["gpus"].to_numpy().max()))
    machines = max(1, math.ceil(gpus / GPUS_PER_MACHINE))
    racks = math.ceil(machines / MACHINES_PER_RACK)
    return racks, math.ceil(machines / racks), GPUS_PER_MACHINE


def stretch(trace: Trace, most: int) -> tuple[Trace, int]:
    """Return at most so many consecutive jobs: the stretch whose load is most like that of the whole trace.

    Jobs that would still run when it begins come first, with what is left of them: on an empty cluster no policy
    has anything to decide. Returns how many they are, too.
    """
    count = len(trace)
    if not most or count <= most:
        return trace, 0
    submit_s = trace.frame["submit_s"].to_numpy()
    asked = requested(trace)
    starts = np.unique(np.append(np.arange(0, count - most, max(1, most // 2)), count - most))
    loads = np.array([_mean_between(asked, submit_s[start], submit_s[start + most - 1]) for start in starts])
    first = int(starts[np.argmin(np.abs(loads - asked.mean))])
    begins_s = float(submit_s[first])
    end_s = pl.col("submit_s") + pl.col("duration_s")
    before = trace.frame.slice(0, first).filter(end_s > begins_s)
    left = before.with_columns(submit_s=pl.lit(begins_s), duration_s=end_s - begins_s)
    return replace(trace, frame=pl.concat([left, trace.frame.slice(first, most)])), left.height


def _mean_between(asked: StepFunction, start_s: float, end_s: float) -> float:
    """Return the mean of a step function between two times; its value there if they are equal."""
    if end_s <= start_s:
        return float(asked.at(np.array([start_s]))[0])
    return float(asked.means(np.array([start_s, end_s]))[0])
