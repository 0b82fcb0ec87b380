"""HAS and JPS, and what they are compared with: the workers of a heterogeneous cluster divided among many jobs.

K. Liu, J. Wang, Z. Huang, J. Pan, "Sampling-Based Multi-Job Placement for Heterogeneous Deep Learning Clusters",
TPDS 2024. `has_jps` follows the paper, `las` is one of its baselines. `has_exact` is ours: it minimises the mean
completion time itself; and so is `has_resets`, which knows that shares change again. Each method solves one
`Problem`. Here they are policies, which divide the cluster anew whenever something changes; solvers are compiled,
so they are imported only when they are used. Nothing here reads a clock, and other policies must not import it:
what they share is in `_shared.heterogeneous`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from cranny.model.job import Job
from cranny.model.validate import between, whole
from cranny.policies._shared.heterogeneous.fewer_moves import MethodTerms
from cranny.policies._shared.heterogeneous.greedy_baselines import optimus_lb
from cranny.policies._shared.heterogeneous.instance import Instance, Solve
from cranny.policies._shared.heterogeneous.min_max_workers import within
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem, Shares
from cranny.policies._shared.heterogeneous.sharing_policy import ResetState, SharingPolicy

MAX_SLOWDOWN = 1_000_000  # practically no limit


class Has(SharingPolicy):
    """HAS: all categories of numbers of workers, the highest throughput of each, the lowest mean JCT of these."""

    method = "has"

    def solve(self, problem: Problem) -> Shares:
        """Algorithm 2."""
        from cranny.policies.has.has_jps import has

        return has(problem)


class Jps(SharingPolicy):
    """JPS: HAS for a sample of promising categories."""

    method = "jps"

    def __init__(self, *, samples: int = 60, alpha: float = 0.7, beta: float = 1.0, **options: Any) -> None:
        """Set up with N, alpha and beta of the paper; the other options are those of `SharingPolicy`."""
        super().__init__(**options)
        self._settings: dict[str, Any] = {
            "samples": whole(samples, "jps: samples"),
            "alpha": between(alpha, "jps: alpha", 0, 1),
            "beta": between(beta, "jps: beta", 0, 1),
        }

    def solve(self, problem: Problem) -> Shares:
        """Algorithm 3.

        Departure: where some jobs cannot run on some types, a sample may hold no feasible category. Then
        Optimus-LB decides.
        """
        from cranny.policies.has.has_jps import jps
        from cranny.policies.has.market import NoCategoryError

        try:
            return jps(problem, self.rng, **self._settings)
        except NoCategoryError:
            return optimus_lb(problem)


class HasExact(SharingPolicy):
    """has-exact: the mean JCT itself; with beta below 1 also fairly."""

    method = "has-exact"

    def __init__(self, *, beta: float = 1.0, **options: Any) -> None:
        """Set up with a weight between mean JCT (1) and fairness (0), and the options of `SharingPolicy`."""
        super().__init__(**options)
        self._beta = between(beta, "has-exact: beta", 0, 1)

    def solve(self, problem: Problem) -> Shares:
        """Local search, dual bound, branch and bound."""
        from cranny.policies.has.has_exact import has_exact

        return has_exact(problem, self._beta)

    def terms(self, instance: Instance, chosen: Sequence[int], divisible: Ints, restart_s: Floats) -> MethodTerms:
        """Count remaining times by weight, and late jobs."""
        weight = instance.weight[list(chosen)]
        terms = super().terms(instance, chosen, divisible, restart_s)
        return _with_deadlines(
            terms._replace(total_s=lambda seconds: float(weight @ seconds)), instance, restart_s
        )


class HasResets(SharingPolicy):
    """has-resets: as has-exact, with the next reset in mind: short jobs first, and none far behind LAS."""

    method = "has-resets"

    def __init__(self, *, power: float = 2.0, slowdown: float = 2.0, **options: Any) -> None:
        """Set up with the power of remaining work in weights, and how much slower than by LAS a job may be.

        The other options are those of `SharingPolicy`.
        """
        super().__init__(**options)
        self._power = between(power, "has-resets: power", 0, 10)
        self._slowdown = between(slowdown, "has-resets: slowdown", 1, MAX_SLOWDOWN)

    def solve(self, problem: Problem) -> Shares:
        """has-exact with weights and deadlines."""
        from cranny.policies.has.has_resets import has_resets

        return has_resets(problem, self._power, self._slowdown)

    def methods(self, jobs: Sequence[Job]) -> Sequence[Solve]:
        """Return the method; where moves cost something also P1, since shares may then stay for ever."""
        from cranny.policies.has.has_resets import has_resets

        static = partial(has_resets, power=0.0, slowdown=self._slowdown)
        return (self.solve, static) if any(job.restart_s for job in jobs) else (self.solve,)

    def terms(self, instance: Instance, chosen: Sequence[int], divisible: Ints, restart_s: Floats) -> MethodTerms:
        """Play out what a solution leads to, and limit how long each job may take."""
        from cranny.policies.has.has_resets import alone_s, played_s

        if not chosen:
            return super().terms(instance, chosen, divisible, restart_s)
        limit_s = self._slowdown * instance.seconds(self._fair(instance, chosen, divisible))
        stays_s = limit_s.copy()
        stays_s[: len(restart_s)] += self._slowdown * restart_s
        costs_s = np.array([instance.jobs[job].restart_s for job in chosen])
        work_s, weight = alone_s(instance.subproblem(chosen, divisible)), instance.weight[list(chosen)]
        terms = (
            super()
            .terms(instance, chosen, divisible, restart_s)
            ._replace(
                total_s=lambda seconds: played_s(seconds, work_s, costs_s, weight),
                limit_s=limit_s,
                limit_if_stays_s=stays_s,
            )
        )
        return _with_deadlines(terms, instance, restart_s)

    def _fair(self, instance: Instance, chosen: Sequence[int], divisible: Ints) -> Ints:
        """Return the shares of LAS, (jobs, machines)."""
        from cranny.policies.has.las import las

        return within(instance, las, chosen, divisible)

    def _divided(self, reset: ResetState) -> Ints:
        """Return the cheapest of several solutions; that of LAS if a job would be too slow with all others."""
        costs, held = reset.costs, super()._divided(reset)
        if costs.left_s(held) < np.inf:
            return held
        return self._fair(costs.instance, costs.chosen, costs.divisible)


class Las(SharingPolicy):
    """LAS as HAS's paper has it: the least throughput, over that of an equal share, as high as possible."""

    method = "las"

    def solve(self, problem: Problem) -> Shares:
        """Max-min fairness."""
        from cranny.policies.has.las import las

        return las(problem)


def _with_deadlines(terms: MethodTerms, instance: Instance, restart_s: Floats) -> MethodTerms:
    """Return terms in which moves count by the weights of jobs, and one late job more than all times together."""
    worst_s = instance.slowest_s
    worst_s[: len(restart_s)] += restart_s
    late_s = 2.0 * float((instance.weight * worst_s).sum())  # twice, for the margins of moves
    return terms._replace(weight=instance.weight, deadline_s=instance.deadline_s, late_s=late_s)
