"""NetPack's Table 3 by trying everything: every placement, every server, every set of switches that aggregate.

For each the best rates are a small convex problem, solved in closed form. It has few forms, as most placements
load links alike, and each form is solved once.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cranny.model.cluster import Cluster
from cranny.model.job import Job

Floats = npt.NDArray[np.float64]
# What a row counts of v and of a of each job, and how much it may be.
Row = tuple[tuple[tuple[float, float], ...], float]


class Choice(NamedTuple):
    """A job's workers, server and switches: w, y and z."""

    gpus: tuple[int, ...]  # (machines,)
    server: int | None
    switches: tuple[int, ...]


def spreads(gpus: int, free: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all ways to take so many GPUs."""
    if not free:
        if gpus == 0:
            yield ()
        return
    for here in range(min(gpus, free[0]) + 1):
        for others in spreads(gpus - here, free[1:]):
            yield (here, *others)


def choices(cluster: Cluster, gpus: int, free: Sequence[int], *, printed: bool) -> Iterator[Choice]:
    """Yield all that (2) and (5) to (10) allow one job; one that spans machines has one server."""
    racks = range(len(cluster.rack_names))
    for spread in spreads(gpus, free):
        machines = {machine for machine, here in enumerate(spread) if here}
        if len(machines) == 1:
            yield Choice(spread, None, ())
            continue
        for server in range(len(free)):
            near = racks if printed else {cluster.rack_of[machine] for machine in {*machines, server}}
            for count in range(len(near) + 1):
                for switches in combinations(sorted(near), count):
                    yield Choice(spread, server, switches)


def rows(cluster: Cluster, chosen: Sequence[Choice], *, printed: bool) -> list[Row]:
    """Return (3), (4), (8) and a <= v as rows over v and a of each job; those that count nothing are left out."""
    found: list[Row] = []
    for machine in range(len(cluster.machines)):
        counts = []
        for job in chosen:
            of_v = of_a = 0.0
            if job.server is not None:
                workers = {each for each, here in enumerate(job.gpus) if here}
                senders = workers if printed else workers - {job.server}
                of_v += machine in senders
                if machine == job.server:  # a + n b = n v - (n - 1) a
                    of_v += len(senders)
                    of_a -= len(senders) - 1
            counts.append((of_v, of_a))
        found.append((tuple(counts), cluster.uplink_gbps[machine]))
    for rack, node in enumerate(dict.fromkeys(cluster.parent[: len(cluster.machines)])):
        counts = [(0.0, float(rack in job.switches)) for job in chosen]
        found.append((tuple(counts), cluster.pat_gbps[node] or 0.0))
    for index, job in enumerate(chosen):
        counts = [(0.0, 0.0)] * len(chosen)
        counts[index] = (-1.0, 1.0) if job.switches else (0.0, 1.0)
        found.append((tuple(counts), 0.0))
    return [row for row in found if any(pair != (0.0, 0.0) for pair in row[0])]


@lru_cache(maxsize=100_000)
def least_seconds(form: frozenset[Row], gigabits: tuple[float | None, ...]) -> float:
    """Return the least sum of d / v under these rows; None stands for a job that sends nothing.

    The rates that can be had are a polytope. With one job the best is a corner; with two, it is on the line
    between two corners.
    """
    senders = [index for index, each in enumerate(gigabits) if each is not None]
    if not senders:
        return 0.0
    d = np.array([gigabits[index] for index in senders], dtype=np.float64)
    matrix = np.array([[pair[index][part] for part in (0, 1) for index in senders] for pair, _ in form])
    at = corners(
        np.vstack([matrix, -np.eye(matrix.shape[1])]),
        np.array([limit for _, limit in form] + [0.0] * matrix.shape[1]),
    )
    rates = np.unique(np.maximum(at[:, : len(d)], 0.0).round(9), axis=0)
    best = min(seconds(d, each) for each in rates)
    if len(d) == 1:
        return best
    assert len(d) == 2, "no more than two jobs that send"
    for one, other in combinations(rates, 2):
        way = other - one
        if way[0] * way[1] < 0.0:  # what one job gains the other loses; best where both changes cancel
            ratio = np.sqrt(-d[0] * way[0] / (d[1] * way[1]))  # v of the first over v of the second
            share = (ratio * one[1] - one[0]) / (way[0] - ratio * way[1])
            best = min(best, seconds(d, one + np.clip(share, 0.0, 1.0) * way))
    return best


def seconds(d: Floats, rates: Floats) -> float:
    """Return the sum of d / v; without a rate it takes forever."""
    return float((d / rates).sum()) if (rates > 0.0).all() else math.inf


def corners(matrix: Floats, limits: Floats) -> Floats:
    """Return all corners of a polytope: where as many rows as there are variables are met, and none is broken."""
    subsets = np.array(list(combinations(range(len(matrix)), matrix.shape[1])))
    square, right = matrix[subsets], limits[subsets]
    regular = np.abs(np.linalg.det(square)) > 1e-9
    at: Floats = np.linalg.solve(square[regular], right[regular][..., None])[..., 0]
    return at[(at @ matrix.T <= limits + 1e-7).all(axis=1)]


def optimum(cluster: Cluster, free: Sequence[int], jobs: Sequence[Job], *, printed: bool = False) -> float | None:
    """Return the optimum of Table 3; None if the jobs do not fit together, (1)."""
    best: float | None = None
    for chosen in product(*(list(choices(cluster, job.gpus, free, printed=printed)) for job in jobs)):
        held = zip(*(each.gpus for each in chosen), strict=True)
        if any(sum(here) > most for here, most in zip(held, free, strict=True)):
            continue
        gigabits = tuple(
            None if each.server is None else job.profile.grad_bytes * 8 / 1e9
            for each, job in zip(chosen, jobs, strict=True)
        )
        took = least_seconds(frozenset(rows(cluster, chosen, printed=printed)), gigabits)
        best = took if best is None else min(best, took)
    return best
