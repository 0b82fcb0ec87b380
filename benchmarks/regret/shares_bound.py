"""What no schedule of jobs that come at once and can be resized is below, in all metrics together.

A linear program for each order in which jobs may complete. Between two completions GPUs may be divided in any
fractions, so that it does not matter when in between, and three things cost nothing that do in truth: restarts,
communication, and a machine that is used in part (it counts as in use only as long as all its GPUs together would
need for the same work). Whole GPUs, restarts and exchanges only make a schedule worse, so each has metrics at
least as large as some solution of the program of its order. Mean JCT, slowdown, p99 JCT and machine-hours are
linear in the solution; fairness is not, and is at most 1.

    t_k     seconds between two completions
    u_mk    seconds for which machine m is in use then, at most t_k
    w_jmk   GPU-seconds of machine m that job j gets then, for all jobs at most u_mk times its GPUs

The least *worst ratio* is the least r with each metric at most r times that of the best other policy.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from benchmarks.regret.sharing import Sharing
from cranny.model.arrays import Floats
from cranny.sim.metrics import SECONDS_PER_HOUR

LINEAR = ("machine_hours", "mean_jct_s", "p99_jct_s", "mean_slowdown")
SHARE = 0.99  # of jobs, whose JCT is at most p99
MOST_JOBS = 6  # 720 orders


class JointBound(NamedTuple):
    """Ratios to the best other policy that no schedule is below, with the metrics all of the same schedule."""

    worst: float
    mean: float
    each: Mapping[str, float]  # of each metric alone


def joint_bound(shared: Sharing, best: Mapping[str, float]) -> JointBound:
    """Return the bound for the metrics of the best other policies, each so that less is better."""
    if len(shared.duration_s) > MOST_JOBS:
        raise ValueError(f"{len(shared.duration_s)} jobs complete in too many orders, at most {MOST_JOBS}")
    found = [_in_order(shared, order, best) for order in permutations(range(len(shared.duration_s)))]
    fairness = {"fairness": 1.0 / best["fairness"]} if "fairness" in best else {}
    each = {metric: min(bound.each[metric] for bound in found) for metric in LINEAR} | fairness
    total = min(math.fsum(fairness.values()) + len(LINEAR) * bound.mean for bound in found)
    return JointBound(max(min(bound.worst for bound in found), *fairness.values(), 0.0), total / len(each), each)


def _in_order(shared: Sharing, order: Sequence[int], best: Mapping[str, float]) -> JointBound:
    """Return the bound if jobs complete in this order, without fairness."""
    program = _Program(shared, order)
    ratios = {metric: row / best[metric] for metric, row in program.metrics().items()}
    each = {metric: program.least(row) for metric, row in ratios.items()}
    mean = program.least(np.mean([*ratios.values()], axis=0))
    return JointBound(program.least_worst([*ratios.values()]), mean, each)


class _Program:
    """The linear program of one order; a row has a number for each variable."""

    def __init__(self, shared: Sharing, order: Sequence[int]) -> None:
        self._shared, self._order = shared, order
        jobs, machines = shared.rate.shape
        self._span = np.arange(jobs)  # variables t_k
        self._used = jobs + np.arange(machines * jobs).reshape(machines, jobs)  # u_mk
        work = jobs + machines * jobs
        self._work = work + np.arange(jobs * machines * jobs).reshape(jobs, machines, jobs)  # w_jmk
        self._size = work + jobs * machines * jobs
        self._rows = [self._done(place, job) for place, job in enumerate(order)]
        self._most = [-1.0] * jobs
        for machine in range(machines):
            for interval in range(jobs):
                self._rows += self._within(machine, interval)
        self._most += [0.0] * (2 * machines * jobs)

    def _row(self) -> Floats:
        return np.zeros(self._size)

    def _done(self, place: int, job: int) -> Floats:
        """Have all of a job done by the end of its interval."""
        row = self._row()
        row[self._work[job, :, : place + 1]] = -self._shared.rate[job][:, None]
        return row

    def _within(self, machine: int, interval: int) -> list[Floats]:
        """Let a machine give what it has while it is in use, and be in use no longer than an interval."""
        gives, lasts = self._row(), self._row()
        gives[self._work[:, machine, interval]] = 1.0
        gives[self._used[machine, interval]] = -float(self._shared.gpus[machine])
        lasts[self._used[machine, interval]], lasts[self._span[interval]] = 1.0, -1.0
        return [gives, lasts]

    def metrics(self) -> dict[str, Floats]:
        """Return the rows of the metrics."""
        jobs = len(self._order)
        ends = np.zeros((jobs, self._size))
        for place, job in enumerate(self._order):
            ends[job, self._span[: place + 1]] = 1.0
        hours = self._row()
        hours[self._used] = 1.0 / SECONDS_PER_HOUR
        at = SHARE * (jobs - 1)
        below, part = math.floor(at), at % 1.0
        late = ends[self._order[below]] * (1.0 - part)
        if part:
            late = late + ends[self._order[below + 1]] * part
        slowdown = (ends / self._shared.duration_s[:, None]).mean(axis=0)
        return dict(zip(LINEAR, (hours, ends.mean(axis=0), late, slowdown), strict=True))

    def least(self, row: Floats) -> float:
        """Return the least value of a row."""
        return float(linprog(row, np.array(self._rows), self._most).fun)

    def least_worst(self, rows: Sequence[Floats]) -> float:
        """Return the least value that the largest of some rows has; it is one more variable, the last."""
        limits = np.column_stack([np.array(self._rows), np.zeros(len(self._rows))])
        below = np.column_stack([np.array(rows), -np.ones(len(rows))])
        goal = np.append(self._row(), 1.0)
        return float(linprog(goal, np.vstack([limits, below]), [*self._most, *[0.0] * len(rows)]).fun)
