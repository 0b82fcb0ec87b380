"""What some machines of one type more or fewer would do: a replay for each such change."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from cranny.analysis.whatif.resized_cluster import resized
from cranny.analysis.whatif.waits import done_jobs, time_stats
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError, unknown
from cranny.model.topology_spec import MAX_MACHINES
from cranny.model.validate import counted, whole
from cranny.sim.result import Result
from cranny.traces.gpu_types import matching

CHANGED = 0.05  # share of the machines of a type that are tried more and fewer, if the caller asks for none
MOST_TYPES = 6  # that are tried unasked, those with the most GPUs


NO_WAITS = pl.DataFrame(schema={"job_id": pl.String(), "wait_s": pl.Float64()})  # where no job can run


class TypeChange(NamedTuple):
    """Some machines of one type more, or fewer if negative; of all types if it is None."""

    machines: int
    gpu_type: str | None = None


@dataclass(frozen=True, slots=True)
class TypeOutcome:
    """Mean waits before and after a change; those of `own` are of the jobs that ran on that type before it."""

    policy: str
    gpu_type: str | None
    machines: int  # more, or fewer if negative
    of: int  # machines there were before
    before_s: float  # mean wait of the jobs that run before and after
    after_s: float | None  # None if no job is left
    own_jobs: int
    own_before_s: float
    own_after_s: float | None
    lost_jobs: int  # that cannot run any more


# Replays on other clusters at the same time; returns the waits of jobs that ran, (job_id, wait_s), for each.
Runner = Callable[[Sequence[Cluster]], Sequence[pl.DataFrame]]


def wanted_changes(cluster: Cluster, asked: Sequence[TypeChange]) -> list[TypeChange]:
    """Return the changes asked for, with types as the cluster writes them; else a few of each of its types."""
    if asked:
        return [_checked(cluster, change) for change in asked]
    gpus: dict[str, int] = {}
    machines: dict[str, int] = {}
    for machine in cluster.machines:
        gpus[machine.gpu_type] = gpus.get(machine.gpu_type, 0) + machine.gpus
        machines[machine.gpu_type] = machines.get(machine.gpu_type, 0) + 1
    if len(gpus) < 2:
        return []
    largest = sorted(gpus, key=lambda name: (-gpus[name], name))[:MOST_TYPES]
    few = {name: max(1, round(CHANGED * machines[name])) for name in largest}
    return [TypeChange(sign * few[name], name) for name in largest for sign in (1, -1)]


def _checked(cluster: Cluster, change: TypeChange) -> TypeChange:
    """Find the cluster's name of a type, and refuse what cannot be done."""
    count, gpu_type = change
    if gpu_type is not None:
        known = sorted({machine.gpu_type for machine in cluster.machines} - {""})
        found = matching(gpu_type, known)
        if len(found) != 1:
            raise unknown("type of GPU", gpu_type, known)
        gpu_type = found[0]
    there = _count(cluster, gpu_type)
    whole(abs(count), "machines to add or remove", least=1)
    whole(count, "machines to add", least=-MAX_MACHINES, most=MAX_MACHINES - len(cluster.machines))
    if -count > there or -count >= len(cluster.machines):
        of = f" of {gpu_type}" if gpu_type else ""
        raise InputError(f"cannot remove {-count:,} of {counted(there, 'machine')}{of}")
    return TypeChange(count, gpu_type)


def _count(cluster: Cluster, gpu_type: str | None) -> int:
    return sum(gpu_type in (None, machine.gpu_type) for machine in cluster.machines)


def kept_waits(result: Result) -> pl.DataFrame:
    """Keep of a replay how long jobs waited."""
    return done_jobs(result).select("job_id", "wait_s")


def type_outcomes(
    run: Runner,
    base: Result,
    changes: Sequence[TypeChange],
    last: Collection[int] = frozenset(),
    uncounted: pl.Series | None = None,
) -> list[TypeOutcome]:
    """Replay each change and compare it with `base`, the replay on the unchanged cluster.

    The waits of the jobs with `uncounted` ids are not in means.
    """
    cluster, before = base.cluster, kept_waits(base)
    ran = run([resized(cluster, count, gpu_type, last) for count, gpu_type in changes])
    found = []
    for change, after in zip(changes, ran, strict=True):
        own = _on_type(base, change.gpu_type)
        still = before.join(after, on="job_id", suffix="_after")
        both = still if uncounted is None else still.filter(~pl.col("job_id").is_in(uncounted.implode()))
        theirs = both.join(own, on="job_id", how="semi")
        found.append(
            TypeOutcome(
                str(base.settings["policy"]),
                change.gpu_type,
                change.machines,
                _count(cluster, change.gpu_type),
                _mean_s(both["wait_s"]) or 0.0,
                _mean_s(both["wait_s_after"]),
                theirs.height,
                _mean_s(theirs["wait_s"]) or 0.0,
                _mean_s(theirs["wait_s_after"]),
                before.height - still.height,
            )
        )
    return found


def _mean_s(waits_s: pl.Series) -> float | None:
    """Return the mean wait; None if no job is left."""
    return time_stats(waits_s).mean_s if len(waits_s) else None


def _on_type(result: Result, gpu_type: str | None) -> pl.DataFrame:
    """Return the jobs that ran on machines of a type."""
    machines = [at for at, each in enumerate(result.cluster.machines) if gpu_type in (None, each.gpu_type)]
    return result.runs.filter(pl.col("machine").is_in(machines)).select("job_id").unique()
