"""Optimus as a policy that resizes jobs, and the baseline Optimus-LB of HAS/JPS (TPDS 2024).

Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018.
"""

from cranny.policies._shared.heterogeneous.problem import Problem
from cranny.policies._shared.heterogeneous.sharing_policy import Sharing
from cranny.policies._shared.heterogeneous.solution import Shares


class OptimusShares(Sharing):
    """Optimus: one worker more to the job that gains most by it, as if all its workers had equal parts."""

    method = "optimus-shares"

    def solve(self, problem: Problem) -> Shares:
        """Greedy."""
        from cranny.policies._shared.heterogeneous.optimus_greedy import optimus

        return optimus(problem)


class OptimusLb(Sharing):
    """Optimus with parts in proportion to throughput."""

    method = "optimus-lb"

    def solve(self, problem: Problem) -> Shares:
        """Greedy."""
        from cranny.policies._shared.heterogeneous.optimus_greedy import optimus_lb

        return optimus_lb(problem)
