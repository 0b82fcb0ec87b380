"""Jobs connected by the links they share, as arrays; and the compiled search for shifts that fit all links.

An edge is a job on a link. Edges are numbered link by link. Each link has angles of its own; a shift turns a job
on a link by the nearest whole number of them.
"""

import math
from typing import NamedTuple

import numpy as np

from cranny.core.jit import reordering
from cranny.model.arrays import Floats, Ints
from cranny.network.interleave.affinity import AffinityGraph
from cranny.network.interleave.rotation_kernel import every_excess, put
from cranny.network.interleave.unified_circle import doubled

_HALF_UP = 0.5 + 1e-6  # shifts that differ by whole angles must be rounded alike, whatever is left of rounding


class JointArrays(NamedTuple):
    """Links, jobs and edges; and buffers for a search."""

    rows: Floats  # demand at the angles of the edge's link, twice in a row, edge after edge
    row_at: Ints  # (edges,) where an edge's begins
    rotations: Ints  # (edges,)
    iteration_s: Floats  # (edges,) of the edge's job
    angle_s: Floats  # (edges,) an angle of the edge's link, in the time of its job
    link_of: Ints  # (edges,)
    job_of: Ints  # (edges,)
    edges_of: Ints  # (edges,) job after job
    edge_at: Ints  # (jobs + 1,) where a job's begin
    angles: Ints  # (links,)
    gbps: Floats  # (links,)
    totals: Floats  # demand of all jobs, link after link
    total_at: Ints  # (links,)
    tries: Floats  # excess at each rotation of an edge's job, edge after edge
    try_at: Ints  # (edges,)

    @classmethod
    def of(cls, graph: AffinityGraph) -> "JointArrays":
        """Lay out a graph; jobs are numbered in the order of `graph.jobs`."""
        circles, fits = [link.circles for link in graph.links], [fit.unified for fit in graph.fits]
        number = {job: at for at, job in enumerate(graph.jobs)}
        owners = np.array([number[job] for on in circles for job in on], dtype=np.int64)
        rows = [doubled(tuple(on.values()), unified) for on, unified in zip(circles, fits, strict=True)]
        counts, angles = np.array([(len(each), each.shape[1] // 2) for each in rows], dtype=np.int64).T
        link_of = np.repeat(np.arange(len(rows)), counts)
        turns = np.array([rotations for unified in fits for rotations in unified.rotations], dtype=np.int64)
        return cls(
            rows=np.concatenate([each.ravel() for each in rows]),
            row_at=_starts(2 * angles[link_of]),
            rotations=turns,
            iteration_s=np.array([time_s for unified in fits for time_s in unified.iterations_s]),
            angle_s=np.array([angle_s for unified in fits for angle_s in unified.angles_s]),
            link_of=link_of,
            job_of=owners,
            edges_of=np.argsort(owners, kind="stable"),
            edge_at=np.append(_starts(np.bincount(owners)), len(owners)),
            angles=angles,
            gbps=np.array([link.gbps for link in graph.links]),
            totals=np.zeros(int(angles.sum())),
            total_at=_starts(angles),
            tries=np.empty(int(turns.sum())),
            try_at=_starts(turns),
        )


def _starts(lengths: Ints) -> Ints:
    """Return where each of some runs begins when they stand one after the other."""
    return np.cumsum(lengths) - lengths


@reordering
def turn_of(arrays: JointArrays, edge: int, shift_s: float) -> int:
    """Return the rotation that a shift is on an edge's link."""
    within_s = shift_s % arrays.iteration_s[edge]
    turns = math.floor(within_s / arrays.angle_s[edge] + _HALF_UP)
    return turns if turns < arrays.rotations[edge] else 0


@reordering
def add(arrays: JointArrays, edge: int, shift_s: float, sign: float) -> None:
    """Add an edge's job to the demand of its link, or take it away."""
    link = arrays.link_of[edge]
    angles, at = arrays.angles[link], arrays.total_at[link]
    total = arrays.totals[at : at + angles]
    row = arrays.rows[arrays.row_at[edge] : arrays.row_at[edge] + 2 * angles]
    put(total, row, turn_of(arrays, edge, shift_s), sign, total)


@reordering
def add_all(arrays: JointArrays, shifts_s: Floats) -> None:
    """Compute the demand of every link."""
    arrays.totals[:] = 0.0
    for edge in range(len(arrays.link_of)):
        add(arrays, edge, shifts_s[arrays.job_of[edge]], 1.0)


@reordering
def excess_of(arrays: JointArrays, link: int) -> float:
    """Return the excess of a link as its jobs are turned now."""
    total = 0.0
    for i in range(arrays.total_at[link], arrays.total_at[link] + arrays.angles[link]):
        above = arrays.totals[i] - arrays.gbps[link]
        total += above if above > 0.0 else 0.0
    return total


@reordering
def lost(arrays: JointArrays, job: int, shift_s: float) -> float:
    """Return what the links of a job lose in score when it has a shift, from the tries of its edges."""
    total = 0.0
    for i in range(arrays.edge_at[job], arrays.edge_at[job + 1]):
        edge = arrays.edges_of[i]
        link = arrays.link_of[edge]
        excess = arrays.tries[arrays.try_at[edge] + turn_of(arrays, edge, shift_s)]
        total += excess / (arrays.angles[link] * arrays.gbps[link])
    return total


@reordering
def best_shift(arrays: JointArrays, job: int, shift_s: float, close: float) -> float:
    """Return the shift of a job at which its links score best; the one it has unless another is better."""
    for i in range(arrays.edge_at[job], arrays.edge_at[job + 1]):
        edge = arrays.edges_of[i]
        link = arrays.link_of[edge]
        angles, at = arrays.angles[link], arrays.total_at[link]
        row = arrays.rows[arrays.row_at[edge] : arrays.row_at[edge] + 2 * angles]
        tries = arrays.tries[arrays.try_at[edge] : arrays.try_at[edge] + arrays.rotations[edge]]
        every_excess(arrays.totals[at : at + angles], row, arrays.rotations[edge], arrays.gbps[link], tries)
    best, least = shift_s, lost(arrays, job, shift_s) - close
    for i in range(arrays.edge_at[job], arrays.edge_at[job + 1]):
        edge = arrays.edges_of[i]
        for turn in range(arrays.rotations[edge]):
            candidate = turn * arrays.angle_s[edge]
            found = lost(arrays, job, candidate)
            if found < least:
                best, least = candidate, found
    return best


@reordering
def could_gain(arrays: JointArrays, job: int, least: Floats, close: float) -> bool:
    """Say whether some link of a job is above the least excess that it can have."""
    for i in range(arrays.edge_at[job], arrays.edge_at[job + 1]):
        link = arrays.link_of[arrays.edges_of[i]]
        if excess_of(arrays, link) > least[link] + close * arrays.angles[link] * arrays.gbps[link]:
            return True
    return False


@reordering
def settle(arrays: JointArrays, shifts_s: Floats, least: Floats, sweeps: int, close: float) -> None:
    """Turn one job after the other to where its links score best, until nothing changes.

    `least` is a lower bound of each link's excess; jobs whose links all reach it stay as they are.
    """
    add_all(arrays, shifts_s)
    for _ in range(sweeps):
        changed = False
        for job in range(len(shifts_s)):
            if not could_gain(arrays, job, least, close):
                continue
            for i in range(arrays.edge_at[job], arrays.edge_at[job + 1]):
                add(arrays, arrays.edges_of[i], shifts_s[job], -1.0)
            best = best_shift(arrays, job, shifts_s[job], close)
            changed = changed or best != shifts_s[job]
            shifts_s[job] = best
            for i in range(arrays.edge_at[job], arrays.edge_at[job + 1]):
                add(arrays, arrays.edges_of[i], best, 1.0)
        if not changed:
            break
