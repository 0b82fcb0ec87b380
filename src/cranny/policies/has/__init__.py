"""HAS and JPS, and what they are compared with: the workers of a heterogeneous cluster divided among many jobs.

K. Liu, J. Wang, Z. Huang, J. Pan, "Sampling-Based Multi-Job Placement for Heterogeneous Deep Learning Clusters",
TPDS 2024. `has_jps` follows the paper, `Las` is one of its baselines, and `has_exact` is ours: it minimises the
mean completion time itself. Each method solves one `Problem`. Here they are policies, which divide the cluster
anew whenever something changes; solvers are compiled, so they are imported only when they are used. Nothing here
reads a clock, and other policies must not import it: what they share is in `_shared.heterogeneous`.
"""

from typing import Any

from cranny.model.validate import between, whole
from cranny.policies._shared.heterogeneous.greedy_baselines import las, optimus_lb
from cranny.policies._shared.heterogeneous.problem import Problem, Shares
from cranny.policies._shared.heterogeneous.sharing_policy import SharingPolicy


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


class Las(SharingPolicy):
    """LAS as HAS's paper has it: the least throughput, over that of an equal share, as high as possible."""

    method = "las"

    def solve(self, problem: Problem) -> Shares:
        """Max-min fairness."""
        return las(problem)
