"""Titan as printed: Algorithms 1-3 of its paper, without what `titan` adds.

J. Fang, G. Zhao, H. Xu, L. Luo, Z. Yao, A. Xie, "Non-Idle Machine-Aware Worker Placement for Efficient
Distributed Training in GPU Clusters", ICNP 2024.

Workers are taken in rank order; the machine that takes most of them comes first, of equals the lowest:
no tightest fit, and no map of ranks to machines by what they exchange. So it shows what those two are worth.

Departure: `merge` says how we read the lines that cannot be meant as they stand.
"""

from cranny.core.protocol import lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import positive
from cranny.policies.titan.bandwidth import UNLIMITED, WAIVED, Attainable, Bandwidth
from cranny.policies.titan.merge import merge
from cranny.policies.titan.search import FeasiblePlacement


class TitanLiteral:
    """Merge worker sets greedily, on non-idle machines first, within the bandwidth that is left."""

    def __init__(self, phase_budget_s: float = 1.0) -> None:
        self.bandwidth = Bandwidth(positive(phase_budget_s, "titan-literal: phase_budget_s"))
        self._attainable = Attainable(lambda job, empty: self._merged(job, empty, self.bandwidth) is not None)

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Return what Algorithm 3 deploys, if that is all workers."""
        found, note = self._merged(job, view, self.bandwidth), ""
        if found is None and not self._attainable(job, view.cluster):
            found, note = self._merged(job, view, UNLIMITED), WAIVED
        return None if found is None else view.placement(job, found.machines, note=note)

    def _merged(self, job: Job, view: Snapshot, bandwidth: Bandwidth) -> FeasiblePlacement | None:
        return merge(job, view, view.available(job), bandwidth) if lacks_gpus(job, view) is None else None

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return that GPUs are short, or that links are too busy."""
        if short := lacks_gpus(job, view):
            return short
        return "can start now" if self.place(job, view) else "no worker sets that are found meet the bandwidth"
