"""Machines in order of preference: the filling that is common to policies which differ only in their preference.

There are two ways to fill. By machine: if machines exist that hold the whole job, the preference chooses among
those; otherwise machines are taken in order of preference, all free GPUs of each, until the job is placed. By
worker: one worker after the other goes to the machine that is preferred by then. In both, ranks that share a
machine are consecutive, and the first machine has rank 0, and with it the parameter server if the job has one.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DECIMALS = 9  # in Gbps, or shares: smaller differences do not count


class Candidates(NamedTuple):
    """The machines among which a preference chooses, lowest first; none if the job must wait."""

    machines: Ints  # (candidates,)
    free: Ints  # (candidates,) GPUs
    whole: bool  # whether each of them holds the whole job; otherwise none does


class Capacities(NamedTuple):
    """What each machine and what is above it could give if nothing ran, (machines,) each."""

    gpus: Ints
    link_gbps: Floats  # of its uplink
    switch: Ints  # the node above
    pat_gbps: Floats  # of that switch; 0 if it does not aggregate


@lru_cache(maxsize=16)
def capacities(cluster: Cluster) -> Capacities:
    """Return what the machines of a cluster have, as arrays."""
    machines = len(cluster.machines)
    switch = np.array(cluster.parent[:machines])
    return Capacities(
        np.array([machine.gpus for machine in cluster.machines]),
        np.array(cluster.uplink_gbps[:machines]),
        switch,
        np.array([gbps or 0.0 for gbps in cluster.pat_gbps])[switch],
    )


def candidates(job: Job, view: Snapshot) -> Candidates:
    """Find the machines that hold the whole job or, if there are none, all with a GPU for it."""
    free = view.usable(job, view.free)
    least = job.gpus
    whole = bool(free.max(initial=0) >= least)
    if not whole:
        least = 1 if free.sum() >= job.gpus else job.gpus
    machines = np.flatnonzero(free >= least)
    return Candidates(machines, free[machines], whole)


def ordered(found: Candidates, *keys: npt.ArrayLike) -> list[tuple[int, int]]:
    """Sort machines by keys, (candidates,) each, the weightiest first, least values first; equals by number.

    Returns each machine with its free GPUs; only the first if it holds the whole job.
    """
    columns = [rounded(np.asarray(key, dtype=np.float64)) for key in keys]
    if found.whole:
        order = np.arange(len(found.machines))
        for column in columns:
            order = order[column[order] == column[order].min()]
        order = order[:1]
    else:
        order = np.lexsort(columns[::-1])
    return list(zip(found.machines[order].tolist(), found.free[order].tolist(), strict=True))


def rounded(values: Floats) -> Floats:
    """Make equal what differs by rounding alone: the last bits of sums depend on the order of events."""
    return values.round(DECIMALS)


def fill(job: Job, view: Snapshot, order: Sequence[tuple[int, int]], note: str) -> Placement | None:
    """Give ranks all GPUs of one machine after the other; None if these machines do not hold the job."""
    ranks: list[int] = []
    for machine, gpus in order:
        ranks += [machine] * min(gpus, job.gpus - len(ranks))
        if len(ranks) == job.gpus:
            return view.placement(job, tuple(ranks), note=note)
    return None


def fill_by_worker(
    job: Job, view: Snapshot, preference: Callable[[Ints, Ints], npt.ArrayLike], note: str
) -> Placement | None:
    """Give each rank the machine that is preferred by then; None if the job must wait.

    The preference is of free GPUs and of workers of the job so far, (machines,) each; the least, then the lowest.
    """
    free = view.usable(job, view.free).copy()
    if free.sum() < job.gpus:
        return None
    held, order = np.zeros_like(free), dict[int, None]()
    for _ in range(job.gpus):
        keys = rounded(np.asarray(preference(free, held), dtype=np.float64))
        machine = int(np.where(free > 0, keys, np.inf).argmin())
        free[machine] -= 1
        held[machine] += 1
        order.setdefault(machine)
    return fill(job, view, [(machine, int(held[machine])) for machine in order], note)
