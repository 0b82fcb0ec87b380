"""The best placements of a few jobs that share the network with max-min fair rates.

Table 3 gives out rates centrally, see `netpack`; a network does not. Here every placement is tried that could be
best, in the order of what it would cost if each job had the network to itself. Sharing can only make that
worse, so the search ends where it is no less than the best that was found. Placements that differ only in how
many GPUs they take on the same machines are the same to the network, and one of them is tried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cranny.core.flows import Flows, isolated_rate, parameter_server
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.network.steady.rates import Rates, stream

MOST = 5_000_000  # placements of all jobs together that are put in order

Spread = tuple[int, ...]  # (machines,) GPUs of a job


@dataclass(frozen=True, slots=True)
class MaxMinOptimum:
    """The best placements of a batch of jobs, and what they cost."""

    placements: tuple[Placement, ...]
    comm_s: float
    tried: int


class _Option(NamedTuple):
    """What a network sees of a job's placement."""

    machines: tuple[int, ...]
    server: int | None
    aggregate: bool
    flows: Flows
    alone_s: float


def comm_s(cluster: Cluster, jobs: Sequence[Job], placements: Sequence[Placement]) -> float:
    """Return what placements cost: the sum of d / v over jobs that send, v being the max-min fair rates."""
    streams = [stream(cluster, job, placement) for job, placement in zip(jobs, placements, strict=True)]
    return _shared_s(cluster, [each.flows for each in streams], [each.gigabits for each in streams])


def best(jobs: Sequence[Job], view: Snapshot) -> MaxMinOptimum | None:
    """Return the best placements of a batch of jobs; None if they do not fit together."""
    check_batch(jobs, view)
    cluster = view.cluster
    options = [list(_options(job, view)) for job in jobs]
    if np.prod([float(len(each)) for each in options]) > MOST:
        raise CrannyError(
            f"max-min: {len(jobs)} jobs on {len(cluster.machines)} machines have too many placements"
        )
    spreads = _fitting(jobs, view)
    alone_s = np.zeros(())
    for each in options:
        alone_s = np.add.outer(alone_s, [option.alone_s for option in each])
    gigabits = [job.profile.grad_bytes * BITS_PER_BYTE / GIGA for job in jobs]
    found: tuple[float, tuple[_Option, ...]] | None = None
    tried = 0
    for index in np.argsort(alone_s, axis=None, kind="stable"):
        if found is not None and alone_s.flat[index] >= found[0]:
            break
        at = np.unravel_index(index, alone_s.shape)
        chosen = tuple(each[int(place)] for each, place in zip(options, at, strict=True))
        if tuple(option.machines for option in chosen) in spreads:
            tried += 1
            took_s = _shared_s(cluster, [option.flows for option in chosen], gigabits)
            if found is None or took_s < found[0]:
                found = (took_s, chosen)
    if found is None:
        return None
    placements = [
        Placement(np.repeat(np.arange(len(spread)), spread).tolist(), server=o.server, aggregate=o.aggregate)
        for o, spread in zip(found[1], spreads[tuple(o.machines for o in found[1])], strict=True)
    ]
    return MaxMinOptimum(tuple(placements), found[0], tried)


def check_batch(jobs: Sequence[Job], view: Snapshot) -> None:
    """Raise unless all jobs of a batch have parameter servers, and no other job uses the network."""
    for job in jobs:
        if job.collective != "ina":
            raise CrannyError(f"job {job.id!r} has no parameter server: its collective is {job.collective!r}")
    for running in view.running.values():
        if running.communication.link_gbps:
            raise CrannyError(f"job {running.job.id!r} uses links already: a batch starts with the network empty")


def gpus_for(job: Job, view: Snapshot) -> list[int]:
    """Return the GPUs that a job could have on each machine."""
    return [min(job.gpus, int(free)) for free in view.usable(job, view.free)]


def _shared_s(cluster: Cluster, flows: Sequence[Flows], gigabits: Sequence[float]) -> float:
    rates = Rates.of(cluster)
    numbers = rates.add_all(flows)
    return sum(d / rates.rate_gbps(number) for d, number in zip(gigabits, numbers, strict=True))


def _options(job: Job, view: Snapshot) -> Iterator[_Option]:
    """Yield a job's sets of machines with every server, and aggregation on and off."""
    cluster, free = view.cluster, gpus_for(job, view)
    gigabits = job.profile.grad_bytes * BITS_PER_BYTE / GIGA
    up = [i for i in range(len(free)) if view.is_up(i)]
    usable = [i for i in up if free[i]]
    for count in range(1, min(job.gpus, len(usable)) + 1):
        for machines in combinations(usable, count):
            if sum(free[i] for i in machines) < job.gpus:
                continue
            for server in up if count > 1 else machines:
                for aggregate in (True, False) if count > 1 else (False,):
                    flows = parameter_server(cluster, machines, server, ina=aggregate)
                    rate_gbps, _ = isolated_rate(cluster, flows)
                    beside = server if count > 1 else None
                    yield _Option(machines, beside, aggregate, flows, gigabits / rate_gbps)


def _fitting(jobs: Sequence[Job], view: Snapshot) -> dict[tuple[tuple[int, ...], ...], tuple[Spread, ...]]:
    """Return the sets of machines that jobs can have at the same time, each with GPUs that show it."""
    # Of the ways to come to the same sets with as many GPUs left on each machine, one is enough.
    ways: dict[tuple[tuple[tuple[int, ...], ...], Spread], tuple[Spread, ...]] = {
        ((), tuple(view.free.tolist())): ()
    }
    for job in jobs:
        allowed = gpus_for(job, view)
        more = {}
        for (sets, left), before in ways.items():
            for spread in _spreads(job.gpus, [min(pair) for pair in zip(allowed, left, strict=True)]):
                machines = tuple(i for i, here in enumerate(spread) if here)
                rest = tuple(have - here for have, here in zip(left, spread, strict=True))
                more[(*sets, machines), rest] = (*before, spread)
        ways = more
    return {sets: spreads for (sets, _), spreads in ways.items()}


def _spreads(gpus: int, free: Sequence[int]) -> Iterator[Spread]:
    """Yield all ways to take so many GPUs."""
    if not free:
        if gpus == 0:
            yield ()
        return
    for here in range(min(gpus, free[0]) + 1):
        for others in _spreads(gpus - here, free[1:]):
            yield (here, *others)
