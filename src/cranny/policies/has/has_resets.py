"""has-resets: shares that are divided anew when a job ends, and chosen with that in mind.

Ours. HAS/JPS (TPDS 2024) divides workers anew at every *reset* (Sec. V-C), but each time it minimises the mean of
(8), in which a job keeps its share until it ends. That favours the wrong jobs. Without communication, and with
workers that are alike, the shares of P1 with weights w_i are proportional to sqrt(w_i W_i): with equal weights,
long jobs get more than short ones. But when a short job ends, others get its workers. So it pays to let it end
soon, as in shortest remaining processing time first (SRPT), which is optimal on one machine.

Symbols:

    W_i     remaining work: the seconds that a job would compute with all workers (Alg. 3, line 1, without its S)
    t_i     remaining time with the job's share, Eq. 7
    f_i     the same with its share by LAS, which is max-min fair
    v_i     weight by priority, 1 for jobs that all have the same
    w_i     weight, v_i W_i ^ -power
    c       slowdown, the most by which a job may be slower than with LAS
    r_i     restart, the seconds that a move takes

**A decision** minimises the sum of w_i t_i with t_i <= c f_i for every job: has-exact with weights and deadlines,
so it is proved, or has a bound. Deadlines of the jobs themselves count first, where shares that miss as few as
possible keep these limits. With power 1 shares are equal, but for the network and the types; with power 2
they are proportional to 1 / sqrt(W_i); with a high power all is for the shortest job, but for what c leaves to
others.

**Moves** must pay. Two solutions are compared by the sum of completion times that they lead to (`played_s`), not
by that of the t_i; where moves cost much, P1's own solution is a candidate as well, and shares stay for ever. A
job that stays where it is may have t_i <= c (f_i + r_i).

**No job starves.** When a job starts or moves, it gets 1 / c of the speed that LAS would give it, at least, and
keeps that until it moves. LAS gives it the highest level v that all S jobs can reach (`las`) or more, and v / S
only rises when a job ends. So of jobs that come together each ends within c (W_i S / v + b_i) seconds and its
restarts, v and S being those of the first moment, and b_i its exchanges between machines with very many workers
(`latest_s`).

**A bound.** Let workers of type t have a price p_t such that all workers together cost 1 a second. However its
shares change, job i pays at least e_i = work_i min_t p_t / rho_it until it ends, and all jobs together at most 1 a
second. So no schedule has a lower sum of completion times than SRPT on one machine with jobs of e_i seconds
(`bound_s`).
"""

from dataclasses import replace

import numpy as np

from cranny.core.jit import compiled
from cranny.policies._shared.heterogeneous.problem import Floats, Problem, Shares, exchange_s
from cranny.policies.has.has_exact import has_exact
from cranny.policies.has.las import las, levels

POWER = 2.0
SLOWDOWN = 2.0
STEPS = 500  # towards the prices of the highest bound


def has_resets(problem: Problem, power: float = POWER, slowdown: float = SLOWDOWN) -> Shares:
    """Divide workers until the next reset; the shares are of the problem with weights and deadlines."""
    weighed = zip(problem.jobs, weights(problem, power).tolist(), strict=True)
    jobs = tuple(replace(job, weight=weight) for job, weight in weighed)
    shares, fair = has_exact(replace(problem, jobs=jobs)), las(problem)
    limits_s = slowdown * fair.jct_s
    if (shares.jct_s <= limits_s).all():
        return shares
    # Deadlines make the search slower, so they come only where they are needed.
    limited = zip(jobs, limits_s.tolist(), strict=True)
    shares = has_exact(replace(problem, jobs=tuple(replace(job, deadline_s=limit_s) for job, limit_s in limited)))
    # With LAS no job is late, so has-exact finds such shares, unless its search ends early.
    return shares if not shares.late else Shares(shares.problem, fair.workers.copy())


def weights(problem: Problem, power: float) -> Floats:
    """Return how much the time of each job counts, by its work, that of the shortest 1, and priority; (jobs,)."""
    work_s = alone_s(problem)
    return np.asarray([job.weight for job in problem.jobs] * (work_s.min() / work_s) ** power)


def alone_s(problem: Problem) -> Floats:
    """Return W, the seconds that each job would compute with all workers, (jobs,)."""
    work = np.array([job.work for job in problem.jobs])
    return np.asarray(work / (problem.totals * problem.rates).sum(axis=1))


def played_s(times_s: Floats, work_s: Floats, restart_s: Floats, weight: Floats) -> float:
    """Return the sum of weighted completion times, with resets, from remaining times with the present shares.

    All are (jobs,). Workers of a job that ends go to the job that would end next, if it gains more by them than
    its restart. A job has the share W_i / t_i of the cluster.
    """
    return float(_play(times_s.copy(), work_s / times_s, restart_s, weight))


@compiled
def _play(left_s: Floats, share: Floats, restart_s: Floats, weight: Floats) -> float:
    """Return the sum of completion times; `left_s` is below zero for jobs that have ended."""
    jobs, total, now_s, spare = len(left_s), 0.0, 0.0, 0.0
    for _ in range(jobs):
        first = -1
        for job in range(jobs):
            if left_s[job] >= 0.0 and (first == -1 or left_s[job] < left_s[first]):
                first = job
        step_s = left_s[first]
        now_s += step_s
        total += weight[first] * now_s
        spare += share[first]
        left_s[first] = -1.0
        following, gain = -1, 0.0
        for job in range(jobs):
            if left_s[job] >= 0.0:
                left_s[job] -= step_s
                more = left_s[job] * spare / (share[job] + spare) - restart_s[job]
                if more > 0.0 and (following == -1 or left_s[job] < left_s[following]):
                    following, gain = job, more
        if following != -1:
            left_s[following] -= gain
            share[following] += spare
            spare = 0.0
    return total


def latest_s(problem: Problem, slowdown: float = SLOWDOWN) -> Floats:
    """Return when each job ends at the latest if no other comes, no worker fails and moves cost nothing."""
    level = float((las(problem).totals * levels(problem)).sum(axis=1).min())
    network_s = exchange_s(problem, apart=True)
    return np.asarray(slowdown * (alone_s(problem) * len(problem.jobs) / level + network_s))


def bound_s(problem: Problem) -> float:
    """Return a mean completion time that no schedule is below, whenever it divides workers anew."""
    rates, there = problem.rates[:, problem.totals > 0], problem.totals[problem.totals > 0]
    work = np.array([job.work for job in problem.jobs])
    able = rates > 0
    best, price = 0.0, np.full(len(there), 1.0 / there.sum())
    for step in range(1, STEPS + 1):
        cells = np.where(able, price / np.where(able, rates, 1.0), np.inf)
        kind = cells.argmin(axis=1)
        least = work * cells.min(axis=1)
        place = np.empty(len(work))
        # A job delays those after it, and itself.
        place[np.argsort(-least, kind="stable")] = np.arange(1, len(work) + 1)
        best = max(best, float((place * least).mean()))
        # The bound is concave in the prices: a step along its slope, and back to one in all.
        slope = np.bincount(kind, place * work / rates[np.arange(len(work)), kind], len(there))
        price = price * np.exp(slope / there / (slope / there).max() / np.sqrt(step))
        price = price / (price @ there)
    return best
