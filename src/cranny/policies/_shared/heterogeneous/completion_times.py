"""Completion times of jobs from their workers, and how fair they are; HAS/JPS (TPDS 2024), Eq. 2-7, 32 and 33."""

from math import inf

import numpy as np

from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem

BITS = 8.0
GIGA = 1e9
ROUNDING = 1e-12  # relatively; who is later than his deadline by no more than this is in time


def exchange_s(problem: Problem, gbps: float) -> Floats:
    """Return the seconds that each job would exchange gradients for if it had very many workers, (jobs,).

    Eq. 6 times T, without its factor (K_i - 1) / K_i.
    """
    bits = np.array([2 * job.epochs * job.exchanges_per_epoch * job.model_bytes * BITS for job in problem.jobs])
    return bits / (gbps * GIGA) if gbps != inf else np.zeros_like(bits)


def compute_s(problem: Problem, totals: Ints, *, equal: bool = False) -> Floats:
    """Return the seconds of all epochs without the network, for workers of each type (jobs, types); (jobs,).

    Eq. 11, where samples are split in proportion to throughput. With an `equal` split the slowest worker decides,
    Eq. 3.
    """
    work = np.array([job.work for job in problem.jobs])
    if equal:
        slowest = np.where(totals > 0, problem.rates, inf).min(axis=1)
        return np.asarray(work / (totals.sum(axis=1) * slowest))
    return np.asarray(work / (totals * problem.rates).sum(axis=1))


def network_s(problem: Problem, workers: Ints) -> Floats:
    """Return the seconds that jobs exchange gradients for, with workers (jobs, machines, types); Eq. 5 and 6."""
    count = workers.sum(axis=(1, 2))
    machines = (workers.sum(axis=2) > 0).sum(axis=1)
    alone = exchange_s(problem, problem.inside_gbps)
    spread = exchange_s(problem, min(problem.inside_gbps, problem.between_gbps))
    return np.asarray((count - 1) / count * np.where(machines > 1, spread, alone))


def equal_s(problem: Problem) -> Floats:
    """Return the times that equal shares of every worker would give, (jobs,); the Lambda^[e] of Eq. 32.

    Departure: as printed, Eq. 32 sums over all jobs, and gets faster with more of them. An S-th part of the
    cluster has an S-th part of its throughput, so the compute term is T * S * |Pi| / sum of rho. Such a share
    lies on all machines, so r is the rate between machines where there are several.
    """
    jobs, size = len(problem.jobs), problem.size
    whole = (problem.totals * problem.rates).sum(axis=1)
    spread = (problem.counts.sum(axis=1) > 0).sum() > 1
    gbps = min(problem.inside_gbps, problem.between_gbps) if spread else problem.inside_gbps
    work = np.array([job.work for job in problem.jobs])
    return np.asarray(jobs * work / whole + (1 - jobs / size) * exchange_s(problem, gbps))


def fairness(times_s: Floats, equal_times_s: Floats) -> float:
    """Return Jain's index of the times against those of equal shares, from 1 / S to 1; Eq. 33."""
    ratio = times_s / equal_times_s
    return float(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum()))
