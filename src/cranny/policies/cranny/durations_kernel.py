"""Counts of durations in binary trees, compiled: adding one, and the conditional distribution that follows.

A tree halves the range of the logarithm of a duration again and again: node 1 is all of it, the halves of node i
are 2i and 2i + 1, and the last nodes are the bins. `counts[group, 0, node]` and `counts[group, 1, node]` are the
weights of what was learned of a group of jobs in the lower and in the upper half of a node. `rows` are the groups of
a job from the broadest to the narrowest. `prior` is the share of each node's lower half before anything is learned,
and `pseudo` how many observations the broader group's share counts for, at each depth.
"""

import numpy as np

from cranny.core.jit import compiled, inlined
from cranny.model.arrays import Floats, Ints


@inlined
def log_uniform_mean(low: float, high: float) -> float:
    """Return the mean of numbers whose logarithm is uniform between two limits."""
    ratio = high / low
    return low if ratio < 1.0 + 1e-9 else (high - low) / np.log(ratio)


@compiled
def add(counts: Floats, rows: Ints, prior: Floats, pseudo: Floats, keep: Floats, at: int, broader: Floats) -> None:
    """Count a duration in bin `at` of each of some groups, whose earlier weights shrink to a share `keep`.

    At each node a broader group counts the part that the narrower one took from it. `broader` is space to compute
    in.
    """
    depth, bins, groups = len(pseudo), len(prior), len(rows)
    for group in range(groups):
        for upper in range(2):
            for node in range(bins):
                counts[rows[group], upper, node] *= keep[group]
    for level in range(depth):
        node = (bins + at) >> (depth - level)
        half = (bins + at) >> (depth - level - 1) & 1
        share = 1.0 - prior[node] if half else prior[node]
        for group in range(groups):
            broader[group] = share
            own, other = counts[rows[group], half, node], counts[rows[group], 1 - half, node]
            share = (own + pseudo[level] * share) / (own + other + pseudo[level])
        weight = 1.0
        for group in range(groups - 1, -1, -1):
            own, taken = counts[rows[group], half, node], pseudo[level] * broader[group]
            counts[rows[group], half, node] = own + weight
            weight *= taken / (own + taken)


@compiled
def predict(
    counts: Floats,
    rows: Ints,
    prior: Floats,
    pseudo: Floats,
    edges: Floats,
    lower: Floats,
    mass: Floats,
    ran: float,
    shares: Floats,
    found: Floats,
) -> None:
    """Write the mean duration of jobs that run longer than `ran`, and the quantiles at some `shares`, to `found`.

    `edges` are the limits of the bins; `lower` and `mass` are space to compute in. Shares come in rising order.
    """
    depth, bins = len(pseudo), len(prior)
    at = int(np.searchsorted(edges, ran, "right")) - 1
    mass[1] = 1.0
    for level in range(depth):
        first, past, count = (1 << level) + (at >> (depth - level)), 2 << level, pseudo[level]
        for node in range(first, past):  # not those wholly below `ran`
            lower[node] = prior[node]
        for row in rows:
            for node in range(first, past):
                own, other = counts[row, 0, node], counts[row, 1, node]
                lower[node] = (own + count * lower[node]) / (own + other + count)
        for node in range(first, past):
            mass[2 * node] = mass[node] * lower[node]
            mass[2 * node + 1] = mass[node] * (1.0 - lower[node])
    # Within a bin the logarithm is uniform; of the first bin only the part above `ran` counts.
    mass[bins + at] *= np.log(edges[at + 1] / ran) / np.log(edges[at + 1] / edges[at])
    alive, mean, begin = 0.0, 0.0, ran
    for each in range(at, bins):
        alive += mass[bins + each]
        mean += mass[bins + each] * log_uniform_mean(begin, edges[each + 1])
        begin = edges[each + 1]
    found[0] = mean / alive
    reached, below, begin = at, 0.0, ran
    for i in range(len(shares)):
        wanted = shares[i] * alive
        while reached < bins - 1 and below + mass[bins + reached] < wanted:
            below += mass[bins + reached]
            reached += 1
            begin = edges[reached]
        part = min(1.0, (wanted - below) / mass[bins + reached])
        found[i + 1] = begin * (edges[reached + 1] / begin) ** part
