"""What held jobs of a log back besides the queue: the attempt before, and limits that the log does not tell.

An array may run so many of its tasks at once (`--array=1-100%5`), a user or an account hold so many GPUs. `sacct`
tells such a limit of no job that ran, but it shows: jobs of the group waited although enough GPUs were free, and
nearly always when one more would have been over the most that the group ever held. That most is the limit then.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from cranny.analysis.whatif.baseline import LoggedJobs
from cranny.analysis.whatif.unexplained import cluster_parts
from cranny.model.arrays import Floats
from cranny.model.cluster import Cluster
from cranny.sim.admission import After
from cranny.traces.trace import Trace

ARRAY = "array"
LIMITED_BY = (ARRAY, "user", "account", "qos")  # what a limit may hold for
WAITED_S = 60.0  # waits that are shorter come from starts that take time
LEAST_S = 600.0  # of waiting at its limit that a group needs
NEARLY_ALWAYS = 0.8  # share of the waiting with enough GPUs free that passes at the limit
LEAST_JOBS = 3  # of a group
MOST_WAITS = 100  # of a group that are looked at
# Tasks of arrays: 123_4 in Slurm, 123[4].server in PBS; with a cluster before, and an attempt after.
_TASK = r"^((?:[^/]+/)?\d+)(?:_\d+|\[\d+\].*?)(?:@\d+)?$"
_ATTEMPT = re.compile(r"^(.+)@(\d+)$")


@dataclass(frozen=True, slots=True, eq=False)
class GroupLimits:
    """Limits of groups of jobs, of one kind."""

    by: str  # one of `LIMITED_BY`
    group_of: Mapping[str, str]  # of jobs whose group has a limit
    most_gpus: Mapping[str, int]


def chained_attempts(trace: Trace) -> dict[str, After]:
    """Return for each attempt of a requeued job the one before, and the time from its end to this submission."""
    frame = trace.frame
    if not {"attempt", "start_s"} <= set(frame.columns) or not (frame["attempt"] > 1).any():
        return {}
    several = frame.filter(pl.col("start_s").is_finite()).select(
        "job_id", "submit_s", end_s=pl.col("start_s") + pl.col("duration_s")
    )
    attempts: dict[str, list[tuple[int, str, float, float]]] = {}
    for name, submit_s, end_s in several.rows():
        found = _ATTEMPT.match(name)
        base, number = (name, 1) if found is None else (found[1], int(found[2]))
        attempts.setdefault(base, []).append((number, name, submit_s, end_s))
    after = {}
    for rows in attempts.values():
        rows.sort()
        for (_, before, _, end_s), (_, name, submit_s, _) in pairwise(rows):
            after[name] = After(before, max(0.0, submit_s - end_s))
    return after


def inferred_limits(
    cluster: Cluster, trace: Trace, logged: LoggedJobs, by: str, until_s: float
) -> GroupLimits | None:
    """Return the limits that a log shows, of its jobs submitted until a time; None if it shows none.

    An array is known as a whole, since the limit is part of what its user asked for, whatever the time.
    """
    frame = trace.frame
    if by != ARRAY and (by not in frame.columns or not frame[by].count()):
        return None
    group = pl.col("job_id").str.extract(_TASK) if by == ARRAY else pl.col(by)
    named = frame.select("job_id", group=group).drop_nulls()
    jobs = logged.jobs.join(named, on="job_id")
    if by != ARRAY:
        jobs = jobs.filter(pl.col("submit_s") < until_s)
    most_gpus: dict[str, int] = {}
    for gpus, held, own in cluster_parts(cluster, trace, logged, jobs):
        waits = pl.col("start_s") - pl.col("submit_s") > WAITED_S
        likely = own.filter((waits.any() & (pl.len() >= LEAST_JOBS)).over("group"))
        if likely.is_empty():
            continue
        free = _free(gpus, *_arrays(held, "gpus", "start_s", "finish_s"))
        likely = likely.sort("group", maintain_order=True)
        names, first = np.unique(likely["group"].to_numpy(), return_index=True)
        columns = [
            np.split(each, first[1:]) for each in _arrays(likely, "gpus", "start_s", "finish_s", "submit_s")
        ]
        for name, *members in zip(names.tolist(), *columns, strict=True):
            most = _limit(free, *members)
            if most is not None:
                most_gpus[name] = max(most, most_gpus.get(name, 0))
    if not most_gpus:
        return None
    group_of = {name: group for name, group in named.rows() if group in most_gpus}
    return GroupLimits(by, group_of, most_gpus)


def _arrays(frame: pl.DataFrame, *names: str) -> list[Floats]:
    return [frame[name].cast(pl.Float64).to_numpy() for name in names]


def _free(gpus: int, held: Floats, start_s: Floats, finish_s: Floats) -> tuple[Floats, Floats]:
    """Return since when so many GPUs are free, times in order."""
    at_s, position = np.unique(np.concatenate([start_s, finish_s]), return_inverse=True)
    held_since = np.cumsum(np.bincount(position, weights=np.concatenate([held, -held]), minlength=len(at_s)))
    return at_s, np.asarray(gpus - held_since, dtype=np.float64)


def _limit(
    free: tuple[Floats, Floats], gpus: Floats, start_s: Floats, finish_s: Floats, submit_s: Floats
) -> int | None:
    """Return the most GPUs that a group held at once, if jobs waited for nearly nothing else; None if not."""
    held_at_s, held = _free(0, gpus, start_s, finish_s)
    most = -float(held.min())
    if most >= gpus.sum():
        return None  # all of them ran at once
    waited = np.flatnonzero(start_s - submit_s > WAITED_S)
    free_s = limited_s = 0.0
    for job in waited[:: -(-len(waited) // MOST_WAITS)].tolist():
        at_s = _times(submit_s[job], start_s[job], free[0], held_at_s)
        lasts_s = np.diff(at_s)
        enough = _value(free, at_s[:-1]) >= gpus[job]
        at_limit = gpus[job] - _value((held_at_s, held), at_s[:-1], before=0.0) > most
        free_s += float(lasts_s[enough].sum())
        limited_s += float(lasts_s[enough & at_limit].sum())
    return round(most) if limited_s >= LEAST_S and limited_s >= NEARLY_ALWAYS * free_s else None


def _times(from_s: float, to_s: float, *changes_s: Floats) -> Floats:
    """Return the ends of a stretch of time, and the times in it at which something changes."""
    inside = [each[np.searchsorted(each, from_s, "right") : np.searchsorted(each, to_s)] for each in changes_s]
    return np.unique(np.concatenate([[from_s, to_s], *inside]))


def _value(steps: tuple[Floats, Floats], at_s: Floats, before: float = np.inf) -> Floats:
    """Return the value of a step function at some times; `before` the first one."""
    step = np.searchsorted(steps[0], at_s, side="right") - 1
    return np.where(step < 0, before, steps[1][np.maximum(step, 0)])
