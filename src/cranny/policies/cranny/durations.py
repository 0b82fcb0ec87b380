"""How long jobs run, from what jobs of the same tenant, model and size ran before, with the uncertainty.

What was learned is kept by groups, each of which follows the one before it until it has observations of its own:

    all  >  size  >  model and size  >  tenant and size  >  tenant, model and GPUs  >  the tenant's last few jobs

where sizes are GPUs up to a power of two, and the last group is there for jobs that come in bursts. A group has a
histogram of the logarithm of durations, ten bins for each factor of two, as a binary tree: at each node the share
of the lower half is that of the broader group, counted as `PSEUDO` observations, and the group's own on top. So a
duration that repeats itself stands out even where the rest is spread wide. An observation counts in the broader
group by the part that the narrower one took from there, which is all for its first and little once it has many
alike: a tenant with a thousand equal jobs does not make them likely for others, and nothing counts six times.

Each group is a Polya tree (M. Lavine, "Some Aspects of Polya Tree Distributions for Statistical Modelling", Annals
of Statistics 1992) around that of the broader group; what is passed on to the broader one is the expected number
of new tables in "Hierarchical Dirichlet Processes" (Journal of the American Statistical Association, 2006).
Observations lose weight by the number of newer ones in the same group, and broad groups remember longest.

Before anything is learned the distribution is the published one of two clusters (`PUBLISHED`). A job that has run
for some time has the distribution of those that ran longer: with a heavy tail, as in real logs, it has the more to
go the longer it has run.

A stated `duration_s` is exact, or else a limit: then the ratio of the real to the stated time is learned for each
tenant in the same way. Before, it is uniform from 0 to 1, as found for limits that users state on parallel
computers (A. Mu'alem, D. Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in
Scheduling the IBM SP2 with Backfilling", IEEE TPDS 2001).

The constants were chosen on logs of ITP and Philly; `cranny bench durations` measures on others.
"""

import math
from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.change_log import Change
from cranny.core.traffic import isolated
from cranny.model.arrays import Floats
from cranny.model.errors import InputError
from cranny.model.job import Job


def _portable(values: Floats) -> Floats:
    """Round off the last bits of powers and logarithms: they differ between processors, and estimates must not."""
    return np.array([float(f"{value:.10g}") for value in values.flat]).reshape(values.shape)


DEPTH = 8  # of the tree
BINS = 1 << DEPTH
BINS_PER_DOUBLING = 10
EDGES: Floats = _portable(np.exp2(np.arange(BINS + 1.0) / BINS_PER_DOUBLING))  # of the bins, from 1 s to 1.6 years
MEANS: Floats = _portable(np.diff(EDGES) / np.diff(np.log(EDGES)))  # if the logarithm is uniform within a bin
# Newer observations in a group after which one counts half, from the broadest group to the narrowest.
HALF_LIVES = (3000.0, 1000.0, 1000.0, 300.0, 100.0, 5.0)
PSEUDO: Floats = _portable(np.array([*[5.0 * np.power(1.5, np.arange(DEPTH))] * 5, np.full(DEPTH, 20.0)]))
RATIO_GROUPS = [0, 4]  # of all jobs and of a tenant; they are learned as these of the groups above
MOST_GROUPS = 2048  # in 8 MiB; beyond, the group that was learned last the longest ago is forgotten
SHARES: Floats = np.array([0.1, 0.5, 0.9])  # of the jobs, that end before the three quantiles
# Percent of GPU jobs that run at most 1, 4, 16, 64, ... s: the mean of Philly's and Helios's curve as published in
# the project of Q. Hu et al., "Characterization of Large Language Model Development in the Datacenter", NSDI 2024.
# Jobs of less than a second count as of one. The last number is ours, beyond the curves.
PUBLISHED = (0.0, 3.3, 7.2, 21.9, 44.0, 65.1, 83.4, 92.3, 96.3, 99.0, 99.9, 99.99)
WITHIN_LIMIT = 0.95  # of the jobs with a stated limit, before anything is learned
LIMIT_BIN = 220  # the bin that begins at a job's limit, among the bins of ratios
# What a job that outlives all that was expected has to go, for each second beyond: mean and quantiles of a Pareto
# distribution of shape 2, the heaviest tail of a whole number that has a mean.
OUTLIVED = (1.0, *(1.0 / np.sqrt(1.0 - SHARES) - 1.0).tolist())

Group = tuple[str | int, ...]


class RemainingTime(NamedTuple):
    """How long a job still runs on one machine; with a heavy tail the mean may lie above the interval."""

    mean_s: float
    low_s: float  # one in ten ends before
    median_s: float
    high_s: float  # nine in ten end before


class DurationEstimates:
    """What was learned of durations, in bounded memory."""

    def __init__(self, *, trust_stated: bool = True, half_lives: Sequence[float] = HALF_LIVES) -> None:
        self.trust_stated = trust_stated
        self._keep = _portable(np.exp2(-1.0 / np.array(half_lives, dtype=np.float64)))
        self._keep_ratios = self._keep[RATIO_GROUPS]
        self._row: dict[Group, int] = {}  # of each group; the one that was learned last is at the end
        self._counts: Floats = np.zeros((16, 2, BINS))  # (groups, halves, nodes)
        self._scale: Floats = np.ones(16)  # (groups,) of the counts
        # Space to compute in.
        self._broader: Floats = np.zeros(len(self._keep))
        self._lower: Floats = np.zeros(BINS)
        self._mass: Floats = np.zeros(2 * BINS)
        self._found: Floats = np.zeros(1 + len(SHARES))

    def learn(self, job: Job, ran_s: float) -> None:
        """Learn that a job ended after so many seconds of its own work on one machine."""
        if not 0.0 <= ran_s < math.inf:
            raise InputError(f"job {job.id!r}: ran_s must be a number of seconds, zero or more, not {ran_s!r}")
        self._add(_groups(job), _DURATIONS, self._keep, ran_s)
        if not self.trust_stated and job.duration_s is not None:
            ratio = ran_s / _ratio_unit_s(job.duration_s)
            self._add(_ratio_groups(job), _RATIOS, self._keep_ratios, ratio)

    def learn_ended(self, changes: Iterable[Change], now_s: float, stopped: Container[str]) -> None:
        """Learn from the jobs that have ended by now among some changes: they neither run nor wait.

        `stopped` holds the ids of jobs that ran and wait to go on. Cancelled jobs count as ended.
        """
        last = {change.running.job.id: change for change in changes}  # a job that moves ends and starts
        for job_id, (running, sign) in last.items():
            if sign < 0 and job_id not in stopped:
                self.learn(running.submitted, worked_s(running, now_s))

    def remaining(self, job: Job, ran_s: float = 0.0) -> RemainingTime:
        """Estimate how long a job still runs on one machine that has done so many seconds of its work."""
        stated_s = job.duration_s
        if stated_s is None:
            return self._predict(_groups(job), _DURATIONS, 1.0, ran_s)
        if not self.trust_stated:
            return self._predict(_ratio_groups(job), _RATIOS, _ratio_unit_s(stated_s), ran_s)
        left_s = stated_s - ran_s
        return _outlived(-left_s) if left_s < 0 else RemainingTime(left_s, left_s, left_s, left_s)

    def _predict(self, groups: Sequence[Group], before: "_Before", unit_s: float, ran_s: float) -> RemainingTime:
        """Return what remains after `ran_s` by some groups, whose times are in units of `unit_s`."""
        ran = max(ran_s / unit_s, 1.0)
        if ran >= _MOST:
            return _outlived(ran_s)
        rows = np.array([self._row.get(group, -1) for group in groups])
        space = self._lower, self._mass
        _kernel().predict(
            self._counts,
            self._scale,
            rows,
            before.prior,
            before.pseudo,
            EDGES,
            MEANS,
            *space,
            ran,
            SHARES,
            self._found,
        )
        # To the millisecond, again because of the last bits of logarithms.
        return RemainingTime(*(max(0.0, round(total * unit_s - ran_s, 3)) for total in self._found.tolist()))

    def _add(self, groups: Sequence[Group], before: "_Before", keep: Floats, value: float) -> None:
        """Count a value in some groups."""
        rows = np.array([self._learned_now(group) for group in groups])
        at = min(max(bisect_right(_EDGE_LIST, value) - 1, 0), BINS - 1)
        _kernel().add(self._counts, self._scale, rows, before.prior, before.pseudo, keep, at, self._broader)

    def _learned_now(self, group: Group) -> int:
        """Return the row of a group, a new one if need be, and note that it was learned last."""
        row = self._row.pop(group, -1)
        if row < 0:
            row = len(self._row)
            if row == MOST_GROUPS:
                row = self._row.pop(next(iter(self._row)))
                self._counts[row], self._scale[row] = 0.0, 1.0
            elif row == len(self._counts):
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
                self._scale = np.concatenate([self._scale, np.ones_like(self._scale)])
        self._row[group] = row
        return row


class _Before(NamedTuple):
    """What is known of groups before anything is learned."""

    prior: Floats  # (nodes,) share of the lower half of each
    pseudo: Floats  # (groups, depth)


@cache
def _kernel() -> ModuleType:
    """Return the compiled part, once it is needed: an import at each call would take as long as what it does."""
    return import_module("cranny.policies.cranny.durations_kernel")


def worked_s(running: Running, now_s: float) -> float:
    """Return what a running job has done of its work, in seconds on one machine, at most.

    In this run it is taken to be as slow as its placement makes it with no other job on its links, and in earlier
    ones as fast as on one machine; a snapshot does not say more.
    """
    slowdown = isolated(running.job, running.communication) * running.stretch
    ran_s = now_s - running.started_s
    if running.attained_gpu_s:  # it began with its restart
        ran_s = max(0.0, ran_s - running.submitted.restart_s)
    return running.attained_gpu_s / running.submitted.gpus + ran_s / slowdown


def _groups(job: Job) -> tuple[Group, ...]:
    """Return the groups of a job, the broadest first."""
    tenant, model, gpus = job.tenant, job.profile.name, job.gpus
    size = (gpus - 1).bit_length()
    return (), (size,), (model, size), (size, tenant), (tenant, model, gpus), (tenant,)


def _ratio_groups(job: Job) -> tuple[Group, ...]:
    """Return the groups by which the ratio of real to stated times is learned."""
    return (-1,), (-1, job.tenant)


def _ratio_unit_s(stated_s: float) -> float:
    """Return the unit of time in which a stated limit is where the bin of limits begins."""
    return max(stated_s, 1.0) / _EDGE_LIST[LIMIT_BIN]


def _outlived(beyond_s: float) -> RemainingTime:
    """Return what remains of a job that has run so much longer than expected."""
    return RemainingTime(*(factor * beyond_s for factor in OUTLIVED))


def _lower_shares(cumulative: Floats) -> Floats:
    """Return the share of each node's lower half, (bins,), in a distribution given at the edges of the bins."""
    lower = np.zeros(BINS)
    for depth in range(DEPTH):
        width = BINS >> depth
        low, middle, high = cumulative[:-1:width], cumulative[width // 2 :: width], cumulative[width::width]
        lower[1 << depth : 2 << depth] = (middle - low) / (high - low)
    return lower


def _published() -> Floats:
    """Return the published distribution at the edges of the bins; the logarithm is uniform between its points."""
    last = BINS / BINS_PER_DOUBLING
    points = [*range(0, 2 * len(PUBLISHED), 2), last]
    return np.interp(np.arange(BINS + 1) / BINS_PER_DOUBLING, points, [*PUBLISHED, 100.0])


def _limits() -> Floats:
    """Return the distribution of the ratio of real to stated times at the edges of the bins, before any is known.

    It is uniform up to the limit, and beyond its logarithm is.
    """
    within = EDGES[: LIMIT_BIN + 1] / EDGES[LIMIT_BIN]
    within = WITHIN_LIMIT * (within - within[0]) / (1.0 - within[0])
    return np.concatenate([within, np.linspace(WITHIN_LIMIT, 1.0, BINS + 1 - LIMIT_BIN)[1:]])


_EDGE_LIST: list[float] = EDGES.tolist()
_MOST = _EDGE_LIST[-1] * (1.0 - 1e-9)  # the part of the last bin beyond it is too small to compute with
_DURATIONS = _Before(_lower_shares(_published()), PSEUDO)
_RATIOS = _Before(_lower_shares(_limits()), PSEUDO[RATIO_GROUPS])
