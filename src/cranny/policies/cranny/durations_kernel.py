"""Counts of durations in binary trees, compiled: adding one, and the conditional distribution that follows.

A tree halves the range of the logarithm of a duration again and again: node 1 is all of it, the halves of node i
are 2i and 2i + 1, and the last nodes are the bins. `counts[group, 0, node]` and `counts[group, 1, node]`, both
times `scale[group]`, are the weights of what was learned of a group of jobs in the lower and the upper half of a
node; the scale lets all of them lose weight at once. `rows` are the groups of a job from the broadest to the
narrowest, -1 where nothing was learned. `prior` is the share of each node's lower half before anything is learned,
and `pseudo[i, depth]` how many observations the broader share counts for in group i of these.
"""

import numpy as np

from cranny.core.jit import compiled
from cranny.model.arrays import Floats, Ints

FORGOTTEN = 1e-9  # a weight as small is none


@compiled
def add(
    counts: Floats,
    scale: Floats,
    rows: Ints,
    prior: Floats,
    pseudo: Floats,
    keep: Floats,
    at: int,
    broader: Floats,
) -> None:
    """Count a duration in bin `at` of each of some groups, whose earlier weights shrink to a share `keep`.

    At each node a broader group counts the part that the narrower one took from it. `broader` is space to compute
    in.
    """
    depth, bins, groups = pseudo.shape[1], len(prior), len(rows)
    for group in range(groups):
        row = rows[group]
        scale[row] *= keep[group]
        if scale[row] < FORGOTTEN:
            for upper in range(2):
                for node in range(bins):
                    weight = counts[row, upper, node] * scale[row]
                    counts[row, upper, node] = weight if weight > FORGOTTEN else 0.0
            scale[row] = 1.0
    for level in range(depth):
        node = (bins + at) >> (depth - level)
        half = (bins + at) >> (depth - level - 1) & 1
        share = 1.0 - prior[node] if half else prior[node]
        for group in range(groups):
            broader[group] = share
            own, other = counts[rows[group], half, node], counts[rows[group], 1 - half, node]
            count = pseudo[group, level] / scale[rows[group]]
            share = (own + count * share) / (own + other + count)
        weight = 1.0
        for group in range(groups - 1, -1, -1):
            row = rows[group]
            own, taken = counts[row, half, node], pseudo[group, level] / scale[row] * broader[group]
            counts[row, half, node] = own + weight / scale[row]
            weight *= taken / (own + taken)


@compiled
def predict(
    counts: Floats,
    scale: Floats,
    rows: Ints,
    prior: Floats,
    pseudo: Floats,
    edges: Floats,
    means: Floats,
    lower: Floats,
    mass: Floats,
    ran: float,
    shares: Floats,
    found: Floats,
) -> None:
    """Write the mean duration of jobs that run longer than `ran`, and the quantiles at some `shares`, to `found`.

    `edges` are the limits of the bins, within which the logarithm is uniform, and `means` their means; `lower` and
    `mass` are space to compute in. Shares come in rising order.
    """
    depth, bins = pseudo.shape[1], len(prior)
    at = int(np.searchsorted(edges, ran, "right")) - 1
    mass[1] = 1.0
    for level in range(depth):
        first, past = (1 << level) + (at >> (depth - level)), 2 << level
        for node in range(first, past):  # not those wholly below `ran`
            lower[node] = prior[node]
        for group in range(len(rows)):
            row = rows[group]
            if row < 0:
                continue
            count = pseudo[group, level] / scale[row]
            for node in range(first, past):
                own, other = counts[row, 0, node], counts[row, 1, node]
                lower[node] = (own + count * lower[node]) / (own + other + count)
        for node in range(first, past):
            mass[2 * node] = mass[node] * lower[node]
            mass[2 * node + 1] = mass[node] * (1.0 - lower[node])
    # Of the first bin only the part above `ran` counts.
    end = edges[at + 1]
    mass[bins + at] *= np.log(end / ran) / np.log(end / edges[at])
    alive = mass[bins + at]
    mean = alive * (ran if end < ran * (1.0 + 1e-9) else (end - ran) / np.log(end / ran))
    for each in range(at + 1, bins):
        alive += mass[bins + each]
        mean += mass[bins + each] * means[each]
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
