"""Optimus: its placement for jobs of fixed size, and Optimus that resizes jobs.

Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018.

`Optimus` is its placement as a baseline of NetPack (B. Zhao et al., ASPLOS 2024, Sec. 2.3 and 6.1): as few
machines as suffice, those with the most free GPUs, with about as many workers on each; jobs keep their size.
Symbol:

    k    machines of the job: the first of those sorted by free GPUs, as few as hold it

Departure: a machine with less than its even share free gives all that it has, and the others hold the rest, so
that a job never waits while enough GPUs are free. A parameter server takes no GPU, so only workers are counted;
it is on the machine of rank 0.

`OptimusShares` resizes jobs, and `OptimusLb` is the baseline Optimus-LB of HAS/JPS (TPDS 2024). `order` is one of
four readings of which worker is next, see `_shared.heterogeneous.greedy_baselines`.
"""

from itertools import accumulate
from typing import Any

from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import one_of
from cranny.policies._shared.heterogeneous.greedy_baselines import ORDERS, optimus, optimus_lb
from cranny.policies._shared.heterogeneous.problem import Problem, Shares
from cranny.policies._shared.heterogeneous.sharing_policy import SharingPolicy
from cranny.policies._shared.ranked_fill import candidates, fill, ordered


class Optimus(WaitsForGpus):
    """Divide a job evenly among the fewest machines with the most free GPUs."""

    fragments_before_idle = False

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Find k, then share the workers out."""
        found = candidates(job, view)
        order = ordered(found, -found.free)
        held = accumulate(free for _, free in order)
        k = next((count for count, gpus in enumerate(held, 1) if gpus >= job.gpus), 0)
        # From the machine with the fewest free GPUs up: whatever one cannot hold, those before it can.
        even: list[tuple[int, int]] = []
        left = job.gpus
        for sharing in range(k, 0, -1):
            machine, free = order[sharing - 1]
            share = min(free, left // sharing)
            even.append((machine, share))
            left -= share
        return fill(job, view, even[::-1], f"preferred: most free GPUs, evenly over k = {k}")

    def first_choices(self, gpus: int, size: int) -> range:
        """Look for the emptiest machine."""
        return range(size, gpus - 1, -1)


class OptimusShares(SharingPolicy):
    """Optimus: one worker more to the job that gains most by it, as if all its workers had equal parts."""

    method = "optimus-shares"

    def __init__(self, *, order: str = "listed", **options: Any) -> None:
        """Set up with the order in which workers are given out, and the options of `SharingPolicy`."""
        super().__init__(**options)
        self._order = one_of(order, ORDERS, f"{self.method}: order")

    def solve(self, problem: Problem) -> Shares:
        """Greedy."""
        return optimus(problem, order=self._order)


class OptimusLb(OptimusShares):
    """Optimus with parts in proportion to throughput."""

    method = "optimus-lb"

    def solve(self, problem: Problem) -> Shares:
        """Greedy."""
        return optimus_lb(problem, self._order)
