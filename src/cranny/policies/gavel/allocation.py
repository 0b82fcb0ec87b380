"""Gavel, as a baseline of HAS/JPS (TPDS 2024): rounds, and one GPU type a job in each round.

D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020. A
job asks for a fixed number of GPUs (`scale`). A linear program says which fraction of time X it should spend on
each type: its throughput over that with equal time on all GPUs, times its scale, is as high as can be for the
job where it is least. Then in each round those jobs run that are farthest behind their fractions.

HAS/JPS does not say which of Gavel's policies it compares with; this is the first of them (LAS, max-min fairness).
Fractions are worked out anew when a job is done.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cranny.model.errors import InputError
from cranny.model.validate import positive, whole
from cranny.policies._shared.heterogeneous.completion_times import exchange_s
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem

ROUND_S = 360.0  # Gavel's own
NOT_NOW = -1


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """What rounds lead to."""

    jct_s: Floats  # (jobs,)
    rounds: int

    @property
    def mean_jct_s(self) -> float:
        """Return the mean completion time."""
        return float(self.jct_s.mean())


def gavel(problem: Problem, scale: Sequence[int] | None = None, round_s: float = ROUND_S) -> Rounds:
    """Run all jobs by Gavel until they are done."""
    positive(round_s, "round_s")
    wanted = scales(problem, scale)
    speed = throughput(problem, wanted)
    left = np.array([float(job.work) for job in problem.jobs])
    done_s, rounds = np.zeros(len(left)), 0
    while (active := left > 0).any():
        share = fractions(problem, wanted, speed, active)
        received, since = np.zeros_like(share), rounds
        while (left[active] > 0).all():
            chosen = next_round(share, received, rounds - since, wanted, problem.totals)
            for job in np.flatnonzero(chosen != NOT_NOW).tolist():
                kind = chosen[job]
                took_s = min(round_s, left[job] / speed[job, kind])
                received[job, kind] += 1
                left[job] = 0.0 if took_s < round_s else left[job] - took_s * speed[job, kind]
                done_s[job] = rounds * round_s + took_s
            rounds += 1
    return Rounds(done_s, rounds)


def scales(problem: Problem, scale: Sequence[int] | None) -> Ints:
    """Check the numbers of GPUs that jobs ask for; by default as many as any type has that can run the job."""
    if scale is None:
        usable = np.where((problem.rates > 0) & (problem.totals > 0), problem.totals, problem.size + 1)
        return np.asarray(usable.min(axis=1))
    if len(scale) != len(problem.jobs):
        raise InputError(f"there are {len(scale)} scales for {len(problem.jobs)} jobs")
    for job, rates, asked in zip(problem.jobs, problem.rates, scale, strict=True):
        whole(asked, f"job {job.name!r}: scale")
        if not ((rates > 0) & (problem.totals >= asked)).any():
            raise InputError(f"job {job.name!r}: no GPU type that can run it has {asked} workers")
    return np.array(scale, dtype=np.int64)


def throughput(problem: Problem, scale: Ints) -> Floats:
    """Return samples/s of each job on its number of GPUs of each type, the network counted; 0 where it cannot."""
    work = np.array([float(job.work) for job in problem.jobs])[:, None]
    count = scale[:, None]
    inside = exchange_s(problem, problem.inside_gbps)[:, None]
    between = exchange_s(problem, min(problem.inside_gbps, problem.between_gbps))[:, None]
    exchange = (count - 1) / count * np.where(problem.counts.max(axis=0) >= count, inside, between)
    able = (problem.rates > 0) & (problem.totals >= count)
    return np.asarray(np.where(able, work / (work / np.where(able, count * problem.rates, 1.0) + exchange), 0.0))


def fractions(problem: Problem, scale: Ints, speed: Floats, active: np.typing.NDArray[np.bool_]) -> Floats:
    """Return the fraction of time that each job should spend on each type, (jobs, types)."""
    from scipy.optimize import linprog

    jobs, kinds = speed.shape
    equal = speed @ (problem.totals / problem.size)
    # X of all jobs and types, then the least normalised throughput, which is maximised.
    cells = jobs * kinds
    behind = np.zeros((jobs, cells + 1))
    busy, used = np.zeros((jobs, cells + 1)), np.zeros((kinds, cells + 1))
    for job in range(jobs):
        own = slice(job * kinds, (job + 1) * kinds)
        behind[job, own] = -speed[job] / equal[job] * scale[job]
        behind[job, -1] = 1.0
        busy[job, own] = 1.0
        used[np.arange(kinds), job * kinds + np.arange(kinds)] = scale[job]
    goal = np.zeros(cells + 1)
    goal[-1] = -1.0
    usable = (speed > 0) & active[:, None]
    solved = linprog(
        goal,
        A_ub=np.vstack([behind[active], busy, used]),
        b_ub=np.concatenate([np.zeros(int(active.sum())), np.ones(jobs), problem.totals]),
        bounds=[(0, 1 if can else 0) for can in usable.ravel()] + [(0, None)],
    )
    return np.asarray(solved.x[:-1]).reshape(jobs, kinds)


def next_round(share: Floats, received: Floats, rounds: int, scale: Ints, totals: Ints) -> Ints:
    """Return the type of each job in the next round, or NOT_NOW: those first that are farthest behind."""
    had = received / max(rounds, 1)
    priority = np.where(share > 1e-9, share / np.maximum(had, 1e-9), 0.0)
    chosen = np.full(len(share), NOT_NOW)
    left = totals.copy()
    for cell in np.argsort(-priority, axis=None, kind="stable").tolist():
        job, kind = divmod(cell, share.shape[1])
        if priority[job, kind] > 0 and chosen[job] == NOT_NOW and scale[job] <= left[kind]:
            chosen[job] = kind
            left[kind] -= scale[job]
    return chosen
